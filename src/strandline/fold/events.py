"""What a watched fold tells its listeners: how far it is, and what it had to do to get there."""

from dataclasses import dataclass

from strandline.events import Event
from strandline.protocol.repairs import RepairPlan


@dataclass(frozen=True, slots=True)
class WatchBegan(Event):
    """A watch was attached after a revision; with `anew`, it begins with the bucket's state."""

    bucket: str
    revision: int
    anew: bool


@dataclass(frozen=True, slots=True)
class BatchStored(Event):
    """A batch and its cursor are in the store; `seconds` is what storing took."""

    updates: int
    bytes: int
    revision: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CaughtUp(Event):
    """Everything that the bucket held when the watch was attached is in the store."""

    revision: int


@dataclass(frozen=True, slots=True)
class LagMeasured(Event):
    """A look at the bucket: its last revision, and the one that the store holds; `lag` counts those between."""

    stored: int
    last: int

    @property
    def lag(self) -> int:
        """Return how many revisions are not stored yet, those of other keys included."""
        return max(0, self.last - self.stored)


@dataclass(frozen=True, slots=True)
class StoreFailed(Event):
    """The store failed; its batch comes before the next one, unless these failures in a row are too many."""

    failures: int
    reason: str


@dataclass(frozen=True, slots=True)
class StoreReopened(Event):
    """The store was opened again and stands at a revision; `expected` is where it stood before."""

    revision: int
    expected: int


@dataclass(frozen=True, slots=True)
class SourceAway(Event):
    """The bucket cannot be reached, for so long now; it is tried again. What is stored can be read meanwhile."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SourceBack(Event):
    """The bucket was away for so long, and is watched again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CursorFellOut(Event):
    """The bucket no longer reaches back to the fold's cursor, or is another one than it was; a repair follows."""

    revision: int
    reason: str


@dataclass(frozen=True, slots=True)
class GapPassed(Event):
    """The bucket begins after the cursor, but what it lost was overwritten, for the cursor is too young for more."""

    revision: int
    first_revision: int


@dataclass(frozen=True, slots=True)
class RepairBegan(Event):
    """A repair begins."""

    plan: RepairPlan
    reason: str


@dataclass(frozen=True, slots=True)
class RepairEnded(Event):
    """The fold differs from what it is repaired from no more: keys that were put and deleted, and how long it took.

    A repair from a listing deletes; the values follow with the watch, as updates.
    """

    plan: RepairPlan
    put: int
    deleted: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StaleKeysPossible(Event):
    """Updates were missed and nothing is done about deletes among them, as the fold's owner chose."""

    revision: int


@dataclass(frozen=True, slots=True)
class EvictingSeen(Event):
    """The bucket can evict current values; the fold remembers that for ever."""

    revision: int


@dataclass(frozen=True, slots=True)
class EntriesLeft(Event):
    """So many entries left the fold because they left the bucket: they expired, or the log begins after them."""

    removed: int
    first_revision: int
