"""Events of a journal."""

from dataclasses import dataclass
from pathlib import Path

from strandline.events import Event


@dataclass(frozen=True, slots=True)
class TornTailCut(Event):
    """Recovery cut off bytes that were never acknowledged."""

    folder: Path
    bytes: int
    next_offset: int
    problem: str


@dataclass(frozen=True, slots=True)
class SegmentRolled(Event):
    """A new segment began."""

    folder: Path
    base_offset: int


@dataclass(frozen=True, slots=True)
class SegmentsRemoved(Event):
    """Retention removed whole segments; offsets below `first_offset` are gone."""

    folder: Path
    removed: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class JournalPoisoned(Event):
    """A write or fsync failed; the journal accepts nothing until it is reopened."""

    folder: Path
    cause: str
