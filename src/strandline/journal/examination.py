"""What recovery found in a journal's folder, as values.

Invariants: nothing here reads or writes; a stretch of a segment is good and has offsets, or bad and has a problem.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from strandline.errors import Damaged
from strandline.journal.frontier import Frontier
from strandline.journal.index import Index
from strandline.journal.manifest import Manifest
from strandline.journal.segment import format_segment_name

Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes to read)."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets that were durable and cannot be read; `length` 0 means that the bytes are not there at all."""

    segment: int
    position: int
    length: int
    first_offset: int
    end_offset: int
    problem: str

    def describe(self) -> str:
        """Return a sentence for people."""
        where = f"{format_segment_name(self.segment)} at byte {self.position:,}"
        return f"{where}: {self.problem}; offsets [{self.first_offset}, {self.end_offset}) cannot be read"


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes at the end that nobody was promised: `bytes` from `position` on, and the later segments `dropped`."""

    segment: int
    position: int
    bytes: int
    problem: str
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive bytes of a segment: good ones hold [first_offset, end_offset), bad ones have a problem."""

    position: int
    end: int
    first_offset: int = 0
    end_offset: int = 0
    problem: str | None = None


@dataclass(slots=True)
class SegmentScan:
    """One segment as it was found."""

    base_offset: int
    size: int
    end_offset: int
    end_position: int
    stretches: list[Stretch] = field(default_factory=list)
    created_ns: int = 0
    last_append_ns: int = 0
    index: Index | None = None
    """None where the segment was trusted, not read, and its index must be loaded or rebuilt."""
    batches: int = 0
    lost: int = 0
    """Offsets that a repair marked as lost."""


@dataclass(slots=True)
class Examination:
    """What a folder holds."""

    identity: bytes | None
    first_offset: int
    next_offset: int
    proof: int
    segments: list[SegmentScan]
    damage: list[Damage]
    torn: Torn | None
    leftovers: list[str]
    foreign: list[str]
    manifest: Manifest | None
    frontier: Frontier | None

    @property
    def is_empty(self) -> bool:
        """Whether there is no journal here yet."""
        return not self.segments and not self.damage

    def refuse_damage(self, folder: Path) -> None:
        """Raise `Damaged` if there is any."""
        if not self.damage:
            return
        first = self.damage[0]
        more = f" (and {len(self.damage) - 1} more places)" if len(self.damage) > 1 else ""
        safe = (
            f"offsets [{self.first_offset}, {first.first_offset}) are whole and can be read with a reader; "
            f"copy the folder, then look at `strandline journal repair --dry-run {folder}`"
        )
        raise Damaged(str(folder), first.describe() + more, safe=safe)
