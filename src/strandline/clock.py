"""Time, passed in: wall time for records and deadlines, elapsed time for how long something took or may take.

A component takes a `Clock`, so that a test or a simulation decides what time it is.
"""

import threading
import time
from typing import Protocol

NS_PER_S = 1_000_000_000
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What time it is, in nanoseconds since 1970 (UTC). May step backwards, as wall clocks do."""

    def now_ns(self) -> int:
        """Return the wall time now."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now_ns(self) -> int:
        """Return the wall time now."""
        return time.time_ns()


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        """Return the time it was last set to."""
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Move by `seconds`, which may be negative."""
        with self._lock:
            self._now_ns += int(seconds * 1e9)


def elapsed_ns() -> int:
    """Return nanoseconds of a clock that never steps and also counts the time that the machine was suspended.

    Its beginning means nothing: only differences within one machine do. Linux's ordinary monotonic clock stands still
    while a machine is suspended, and what it measures would last that much longer for other machines.
    """
    return time.clock_gettime_ns(_SLEEPLESS)
