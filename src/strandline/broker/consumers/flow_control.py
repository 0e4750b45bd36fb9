"""Limits of a push consumer: the flow control window, the rate limit, and the pace of a replay.

Invariants: the window is nats-server's: it begins at a sixteenth of 32 MiB and doubles with each reply; a request is
sent when more than half of it is outstanding, and nothing is sent while more than all of it is. Pure.
"""

from bisect import bisect_right
from itertools import accumulate
from secrets import choice

WINDOW_MAX = 32 << 20
WINDOW_FIRST = WINDOW_MAX // 16
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Window:
    """The bytes that a push consumer has sent and the client has not confirmed."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._window = WINDOW_FIRST
        self._outstanding = 0
        self._confirmed_by_answer = 0
        self.request = b""
        """The reply subject of the pending request, empty if none."""

    @property
    def is_stalled(self) -> bool:
        """Whether the window is full."""
        return self._outstanding > self._window

    def fits(self, sizes: list[int]) -> int:
        """Return how many messages may be sent before a request is due or the window is full."""
        bound = self._window if self.request else self._window // 2
        # The message that crosses the bound is still sent.
        return min(len(sizes), bisect_right(list(accumulate(sizes)), bound - self._outstanding) + 1)

    def sent(self, sizes: list[int], *, ask: bool = False) -> bytes:
        """Note sent messages; return the reply subject of a request that is due now, or nothing."""
        self._outstanding += sum(sizes)
        if not self.request and (ask or self._outstanding > self._window // 2):
            return self.ask()
        if self.request and sizes and self._outstanding - self._confirmed_by_answer >= self._window:
            self._confirmed_by_answer += sizes[-1]
        return b""

    def ask(self) -> bytes:
        """Start a request; return its reply subject."""
        self.request = self._prefix + "".join(choice(_DIGITS) for _ in range(4)).encode()
        self._confirmed_by_answer = self._outstanding
        return self.request

    def answered(self, subject: bytes) -> bool:
        """Take a reply; return whether it is to the pending request."""
        if not self.request or subject != self.request:
            return False
        self._window = min(2 * self._window, WINDOW_MAX)
        self._outstanding = max(0, self._outstanding - self._confirmed_by_answer)
        self.request = b""
        self._confirmed_by_answer = 0
        return True


class RateLimit:
    """A token bucket: bytes per second, with a burst."""

    def __init__(self, bytes_s: float, burst: int, now_ns: int) -> None:
        self._bytes_s = bytes_s
        self._burst = burst
        self._credit = float(burst)
        self._at_ns = now_ns

    def fits(self, sizes: list[int], now_ns: int) -> int:
        """Return how many messages may be sent now."""
        self._credit = min(self._burst, self._credit + (now_ns - self._at_ns) * self._bytes_s / 1e9)
        self._at_ns = now_ns
        if self._credit >= self._burst:
            # A message larger than the burst is sent when the bucket is full.
            return max(1, bisect_right(list(accumulate(sizes)), self._credit))
        return bisect_right(list(accumulate(sizes)), self._credit)

    def sent(self, sizes: list[int]) -> None:
        """Note sent messages."""
        self._credit -= sum(sizes)

    def ready_ns(self, size: int) -> int:
        """Return when a message of some size may be sent."""
        return self._at_ns + int((min(size, self._burst) - self._credit) * 1e9 / self._bytes_s) + 1


class Replay:
    """Delivery at the original pace, for the messages that existed at the start."""

    GAP_NS = 1_000_000

    def __init__(self, until: int) -> None:
        self._until = until
        self._last_ns = 0
        self._ready_ns: int | None = None
        self.is_over = False

    def fits(self, times: list[int], now_ns: int) -> tuple[int, int | None]:
        """Return how many messages may be sent now, and when the next may be, if it must wait."""
        if self._ready_ns is not None:
            if now_ns < self._ready_ns:
                return 0, self._ready_ns
            self._last_ns = times[0]
            self._ready_ns = None
        before = self._last_ns
        for at, time_ns in enumerate(times):
            if before and time_ns - before > self.GAP_NS:
                if not at:
                    self._ready_ns = now_ns + time_ns - before
                return at, self._ready_ns
            before = time_ns
        return len(times), None

    def sent(self, last_time_ns: int, position: int) -> None:
        """Note the time and the position of the last sent message."""
        self._last_ns = last_time_ns
        self.is_over = position > self._until


def fitting(sizes: list[int], bound: int) -> int:
    """Return how many messages fit into some bytes together."""
    return bisect_right(list(accumulate(sizes)), bound)
