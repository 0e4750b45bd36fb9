"""What a part shows, read again and again by a thread of its own.

Invariants: a page shows the last value that was read and never waits for a store or a server; a read that fails leaves
the last value in place, with the problem beside it, whatever it failed with; listeners are told when the value or the
problem changed. No problem holds a password of an address.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from strandline.config.passwords import masked
from strandline.errors import StrandlineError

T = TypeVar("T")
EVERY_S = 1.0
_REST = 4.0
"""A read that takes long is repeated after so many times its duration."""
POINTS_MAX = 600


class Need(NamedTuple):
    """Something that needs a person."""

    text: str
    link: str
    is_urgent: bool = False


class Polled(Generic[T]):
    """A value that is read again and again; `kind` is what pages follow."""

    def __init__(self, kind: str, name: str, read: Callable[[], T], *, every_s: float = EVERY_S) -> None:
        self.kind = kind
        self.name = name
        self._read = read
        self._every_s = every_s
        self._lock = threading.Lock()
        self._value: T | None = None
        self._problem: str | None = None
        self.reads = 0

    @property
    def value(self) -> T | None:
        """Return the last value, None before the first read."""
        with self._lock:
            return self._value

    @property
    def problem(self) -> str | None:
        """Return why the last read failed, None if it did not."""
        with self._lock:
            return self._problem

    def step(self) -> bool:
        """Read once; return whether there is something new to show."""
        value, problem = self.value, None
        try:
            value = self._read()
        except (StrandlineError, OSError) as error:
            problem = str(masked(str(error)))
        except Exception as error:  # noqa: BLE001 - told as the problem: a thread that ended would show old values as new
            problem = str(masked(f"{type(error).__name__}: {error}"))
        with self._lock:
            changed = self.reads == 0 or value != self._value or problem != self._problem
            self._value, self._problem = value, problem
            self.reads += 1
        return changed

    def run(self, ending: threading.Event, changed: Callable[[str], None]) -> None:
        """Read until the end, and tell of changes."""
        while not ending.is_set():
            began = time.monotonic()
            if self.step():
                changed(self.kind)
            ending.wait(max(self._every_s, (time.monotonic() - began) * _REST))


class Series:
    """Points over time, the latest `POINTS_MAX` of them."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=POINTS_MAX)
        self._lock = threading.Lock()

    def add(self, at_s: float, value: float) -> None:
        """Add a point."""
        with self._lock:
            self._points.append((at_s, value))

    def points(self) -> list[tuple[float, float]]:
        """Return the points, oldest first."""
        with self._lock:
            return list(self._points)

    def rate(self, window_s: float = 10.0) -> float | None:
        """Return by how much the value grew in a second, of late; None if one point is all there is."""
        points = self.points()
        if len(points) < 2:  # noqa: PLR2004 - a slope needs two
            return None
        last = points[-1]
        first = next(point for point in points if point[0] >= last[0] - window_s)
        first = points[-2] if first is last else first
        return max(0.0, (last[1] - first[1]) / (last[0] - first[0])) if last[0] > first[0] else None
