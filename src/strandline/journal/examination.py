"""What recovery found in a journal's folder, as values, and what its bad places mean: a torn suffix, or damage.

Invariants: nothing here reads or writes; a stretch of a segment is good and has offsets, or bad and has a problem; bad
or missing bytes below the proof are damage, those at or above it were never acknowledged and are torn; after `judge`
the offsets that remain are contiguous but for the damage.
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
        """Return a sentence for a message."""
        where = f"{format_segment_name(self.segment)} at byte {self.position:,}"
        return f"{where}: {self.problem}; offsets [{self.first_offset}, {self.end_offset}) cannot be read"


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes at the end that were never acknowledged: `bytes` from `position` on, and the later segments `dropped`."""

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
    """The content of a journal's folder."""

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
        """Whether the folder holds no journal yet."""
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


@dataclass(slots=True)
class _Hole:
    """A gap in the offsets: bad bytes, or a missing segment."""

    segment: int
    """Which of the examined segments, by number."""
    position: int
    length: int
    first_offset: int
    end_offset: int | None
    problem: str


def _holes(segments: list[SegmentScan], expected: int, *, is_first_known: bool) -> list[_Hole]:
    """Return the gaps in the offsets, in order."""
    holes: list[_Hole] = []
    open_hole: _Hole | None = None
    for i, scan in enumerate(segments):
        goods = [Stretch(0, 0, scan.base_offset, scan.base_offset), *scan.stretches]
        for stretch in goods:
            if stretch.problem is not None:
                open_hole = _Hole(i, stretch.position, stretch.end - stretch.position, expected, None, stretch.problem)
                holes.append(open_hole)
                continue
            if open_hole is not None:
                open_hole.end_offset = stretch.first_offset
            elif stretch.first_offset != expected:
                problem = "a segment is missing" if stretch.first_offset > expected else "segments overlap"
                if not i and not is_first_known:
                    problem = "segments before it are missing, and so is the manifest"
                holes.append(_Hole(i, 0, 0, expected, stretch.first_offset, problem))
            open_hole = None
            expected = stretch.end_offset
    return holes


def judge(found: Examination) -> None:
    """Decide where the journal ends, what is torn and what is damaged."""
    segments = found.segments
    for hole in _holes(segments, found.first_offset, is_first_known=found.manifest is not None):
        if hole.first_offset >= found.proof:
            _tear(found, hole)
            break
        end = found.proof if hole.end_offset is None else hole.end_offset
        base = segments[hole.segment].base_offset
        found.damage.append(Damage(base, hole.position, hole.length, hole.first_offset, end, hole.problem))
    found.next_offset = segments[-1].end_offset if segments else found.first_offset
    reported = max((damage.end_offset for damage in found.damage), default=found.first_offset)
    first_missing = max(found.next_offset, reported)
    if first_missing < found.proof:
        base, position = (segments[-1].base_offset, segments[-1].end_position) if segments else (first_missing, 0)
        problem = "offsets that were durable are missing"
        found.damage.append(Damage(base, position, 0, first_missing, found.proof, problem))


def _tear(found: Examination, hole: _Hole) -> None:
    """Remove the torn suffix from the examination and record what must be cut."""
    whole_segment = hole.position == 0
    keep = hole.segment if whole_segment else hole.segment + 1
    dropped = found.segments[keep:]
    del found.segments[keep:]
    lost_bytes = sum(scan.size for scan in dropped)
    base, position = (dropped[0].base_offset, 0) if whole_segment else (0, hole.position)
    if not whole_segment:
        scan = found.segments[-1]
        base = scan.base_offset
        lost_bytes += scan.size - hole.position
        scan.end_position, scan.end_offset = hole.position, hole.first_offset
        if scan.index is not None:
            scan.index.cut(hole.first_offset)
    names = tuple(scan.base_offset for scan in dropped)
    found.torn = Torn(base, position, lost_bytes, hole.problem, names)
