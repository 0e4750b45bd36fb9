"""Consumers that could not be opened, or failed: why each is offline, and when it is loaded again.

Invariants: pure. One that fails is loaded again at once; if that does not help, after pauses that double up to a
minute, and begin anew for one that went well for a minute. Files that are not whole, or not ours, are left alone.
"""

from dataclasses import dataclass

from strandline.errors import Damaged, FormatError

Key = tuple[str, str]
"""A stream and a consumer; no consumer, where none of a stream could be looked for."""
PAUSE_MIN_NS, PAUSE_MAX_NS = 100_000_000, 60_000_000_000
WELL_NS = 60_000_000_000


@dataclass(slots=True)
class _Trial:
    """When a consumer is, or was last, loaded again, and how long it has to wait if that does not help."""

    due_ns: int
    pause_ns: int
    is_waiting: bool = True


class Offline:
    """Which consumers of an account are offline."""

    def __init__(self) -> None:
        self.reasons: dict[Key, str] = {}
        self._trials: dict[Key, _Trial] = {}

    def note(self, key: Key, error: Exception, now_ns: int) -> int | None:
        """Note that a consumer is offline; return in how many nanoseconds it is loaded again, None if never."""
        self.reasons[key] = str(error) or type(error).__name__
        last = self._trials.pop(key, None)
        if isinstance(error, Damaged | FormatError) or not key[1]:
            return None
        if last is None or now_ns - last.due_ns > WELL_NS:
            last = _Trial(now_ns, 0)
        pause_ns = last.pause_ns
        self._trials[key] = _Trial(now_ns + pause_ns, min(max(PAUSE_MIN_NS, 2 * pause_ns), PAUSE_MAX_NS))
        return pause_ns

    def take_due(self, now_ns: int) -> list[Key]:
        """Return those whose time has come; who is not noted again is there."""
        due = [key for key, trial in self._trials.items() if trial.is_waiting and trial.due_ns <= now_ns]
        for key in due:
            self._trials[key].is_waiting = False
        return due

    def end(self, key: Key) -> None:
        """Note that a consumer is there again."""
        self.reasons.pop(key, None)

    def forget(self, stream: str, consumer: str | None = None) -> None:
        """Forget a consumer that is removed, or all of a stream."""
        for kept in (self.reasons, self._trials):
            for key in [key for key in kept if key[0] == stream and consumer in (None, key[1])]:
                del kept[key]

    @property
    def next_ns(self) -> int | None:
        """When somebody is to be loaded again, None if nobody is."""
        return min((trial.due_ns for trial in self._trials.values() if trial.is_waiting), default=None)
