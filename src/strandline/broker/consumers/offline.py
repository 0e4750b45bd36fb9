"""Offline consumers: the reason of each, and the time of the next attempt to load it.

Invariants: pure. A failed consumer is loaded again at once, then after pauses that double up to a minute and start over
after a minute without a failure. Damaged and foreign files are left alone.
"""

from dataclasses import dataclass

from strandline.errors import Damaged, FormatError

Key = tuple[str, str]
"""A stream and a consumer; an empty consumer stands for all of a stream."""
PAUSE_MIN_NS, PAUSE_MAX_NS = 100_000_000, 60_000_000_000
WELL_NS = 60_000_000_000


@dataclass(slots=True)
class _Retry:
    """The time of an attempt, and the pause after it if it fails."""

    due_ns: int
    pause_ns: int
    is_waiting: bool = True


class OfflineConsumers:
    """The offline consumers of an account."""

    def __init__(self) -> None:
        self.reasons: dict[Key, str] = {}
        self._retries: dict[Key, _Retry] = {}

    def note(self, key: Key, error: Exception, now_ns: int) -> int | None:
        """Record that a consumer is offline; return the pause before the next attempt in ns, None for never."""
        self.reasons[key] = str(error) or type(error).__name__
        last = self._retries.pop(key, None)
        if isinstance(error, Damaged | FormatError) or not key[1]:
            return None
        if last is None or now_ns - last.due_ns > WELL_NS:
            last = _Retry(now_ns, 0)
        pause_ns = last.pause_ns
        self._retries[key] = _Retry(now_ns + pause_ns, min(max(PAUSE_MIN_NS, 2 * pause_ns), PAUSE_MAX_NS))
        return pause_ns

    def take_due(self, now_ns: int) -> list[Key]:
        """Return the consumers to load now; a consumer that is not noted again is online."""
        due = [key for key, retry in self._retries.items() if retry.is_waiting and retry.due_ns <= now_ns]
        for key in due:
            self._retries[key].is_waiting = False
        return due

    def end(self, key: Key) -> None:
        """Record that a consumer is online again."""
        self.reasons.pop(key, None)

    def forget(self, stream: str, consumer: str | None = None) -> None:
        """Forget a deleted consumer, or all of a stream."""
        for kept in (self.reasons, self._retries):
            for key in [key for key in kept if key[0] == stream and consumer in (None, key[1])]:
                del kept[key]

    @property
    def next_ns(self) -> int | None:
        """The time of the next attempt, None if there is none."""
        return min((retry.due_ns for retry in self._retries.values() if retry.is_waiting), default=None)
