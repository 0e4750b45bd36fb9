"""What bad places of a journal mean: a torn suffix, which nobody was promised, or damage.

Invariants: pure; bad or missing bytes below the proof are damage, those at or above it are torn; what is torn is taken
out of the examination, and the offsets that remain are contiguous but for the damage.
"""

from dataclasses import dataclass

from strandline.journal.examination import Damage, Examination, SegmentScan, Stretch, Torn


@dataclass(slots=True)
class _Hole:
    """A place where the offsets do not go on: bad bytes, or a segment that is missing."""

    segment: int
    """Which of the examined segments, by number."""
    position: int
    length: int
    first_offset: int
    end_offset: int | None
    problem: str


def _holes(segments: list[SegmentScan], expected: int, *, is_first_known: bool) -> list[_Hole]:
    """Return the places where offsets do not go on, in order."""
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
    """Take the torn suffix out of the examination and say what must be cut."""
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
