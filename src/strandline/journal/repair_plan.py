"""How a repair is planned: look, mend what hides the rest, look again, then say which bytes and offsets are affected.

Headers and overlaps come first, because nothing behind a bad header was read and nothing behind an overlap is in its
place; they are mended in a view only. What is left are gaps: bytes that hold nothing good, and offsets that are lost.

Invariants: nothing is changed; a whole batch is never inside a gap, also not one that stands in the wrong company.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from strandline.checksums import crc32c
from strandline.errors import FormatError
from strandline.files import Disk, File, read_file
from strandline.journal.batch import BadBatch, Batch, journal_tag
from strandline.journal.examination import Damage, Examination, Progress, SegmentScan
from strandline.journal.frontier import FRONTIER_NAME, Frontier, parse_frontier
from strandline.journal.index import format_index_name, parse_index
from strandline.journal.manifest import MANIFEST_NAME, Manifest, load_manifest
from strandline.journal.quarantine import COPY_BYTES
from strandline.journal.recovery import examine
from strandline.journal.repair_steps import (
    AddSegment,
    BeginRepair,
    CutTail,
    Gap,
    MarkLost,
    RebuildIndex,
    RewriteHeader,
    RewriteSegment,
    SetAside,
    Step,
    WriteCheckpoint,
)
from strandline.journal.repaired_view import RepairedView
from strandline.journal.segment import (
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    BadBatchAt,
    SegmentHeader,
    find_batch,
    format_segment_name,
    parse_segment_header,
    parse_segment_name,
    walk,
)

PAGE_BYTES = 4096
Fingerprint = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair would do, in order; `lost` are the offset ranges that it would mark as lost."""

    steps: tuple[Step, ...]
    lost: tuple[tuple[int, int], ...]
    damage: tuple[Damage, ...]
    seen: Fingerprint
    """The state of the folder that the plan was made for."""

    def describe(self) -> list[str]:
        """Return a sentence for each step."""
        return [step.describe() for step in self.steps]


def index_is_wrong(disk: Disk, folder: Path, scan: SegmentScan, *, active: bool) -> bool:
    """Whether the index file does not fit the segment, which was read deeply. The active one's may be behind."""
    data = read_file(disk, folder / format_index_name(scan.base_offset))
    if data is None:
        return not active
    index, right = parse_index(data, scan.base_offset), scan.index
    if index is None or right is None:
        return True
    count = len(index.offsets) if active else len(right.offsets)
    return (index.offsets, index.positions) != (right.offsets[:count], right.positions[:count])


def checkpoint_problem(disk: Disk, folder: Path, found: Examination) -> str | None:
    """Return what is wrong with the manifest or the frontier of a journal that was read deeply, or None."""
    if found.manifest is None:
        return "the manifest is missing or damaged"
    if not _fits(disk, folder, found, found.manifest):
        return "the manifest does not fit the segments"
    frontier = found.frontier
    if frontier is None:
        return None if read_file(disk, folder / FRONTIER_NAME) is None else "the frontier is damaged"
    if frontier.identity != found.identity:
        return "the frontier is another journal's"
    bases = {scan.base_offset for scan in found.segments}
    if frontier.active_base not in bases or frontier.written_offset > found.next_offset:
        return "the frontier names offsets that are not there"
    return None


def _fits(disk: Disk, folder: Path, found: Examination, manifest: Manifest) -> bool:
    """Whether opening may believe what the manifest says of sizes and positions."""
    sealed = {row.base_offset: (row.end_offset, row.bytes) for row in manifest.sealed}
    for scan in found.segments:
        if scan.base_offset == manifest.active_base and not _has_boundary(disk, folder, scan, manifest):
            return False
        if sealed.get(scan.base_offset, (scan.end_offset, scan.size)) != (scan.end_offset, scan.size):
            return False
    return True


def _has_boundary(disk: Disk, folder: Path, scan: SegmentScan, manifest: Manifest) -> bool:
    """Whether a batch begins, or the segment ends, where the checkpoint says."""
    position, offset = SEGMENT_HEADER_BYTES, scan.base_offset
    with closing(disk.open(folder / format_segment_name(scan.base_offset), "read")) as file:
        for at, batch in walk(file, position, offset, stop=manifest.durable_offset, check=False):
            position, offset = at + batch.stored_bytes, batch.next_offset
    return (position, offset) == (manifest.active_bytes, manifest.durable_offset)


def _frontier(disk: Disk, folder: Path) -> Frontier | None:
    data = read_file(disk, folder / FRONTIER_NAME)
    return None if data is None else parse_frontier(data)


def fingerprint(disk: Disk, folder: Path) -> Fingerprint:
    """Return what changes whenever a writer, or another repair, was at work."""
    found: list[tuple[str, int]] = []
    for name in disk.names(folder):
        if parse_segment_name(name) is not None:
            with closing(disk.open(folder / name, "read")) as file:
                found.append((name, file.size()))
        elif name in (MANIFEST_NAME, FRONTIER_NAME):
            found.append((name, crc32c(read_file(disk, folder / name) or b"")))
    return tuple(found)


class Planner:
    """Looks at a folder, and at what it would be after the first steps, until all steps are known."""

    def __init__(self, disk: Disk, folder: Path, progress: Progress | None) -> None:
        self._folder = folder
        self._progress = progress
        self._view = RepairedView(disk)
        self._first_steps: list[Step] = []
        self._gaps: dict[int, list[Gap]] = {}
        self._added: list[AddSegment] = []

    def plan(self, seen: Fingerprint) -> RepairPlan:
        """Return the plan."""
        identity = self._identity()
        self._recognise_headers(identity)
        found = self._look()
        damage = tuple(found.damage)
        while self._mend_headers(found, identity) or self._mend_overlap(found):
            found = self._look()
        self._find_gaps(found, identity)
        changes = [*self._first_steps, *self._segment_steps(found)]
        steps = [*changes, *self._index_steps(found)]
        if found.segments or self._added:
            problem = "segments were changed" if changes else checkpoint_problem(self._view, self._folder, found)
            steps += [WriteCheckpoint(problem)] if problem else []
        lost = tuple(sorted(self._lost()))
        if damage or self._first_steps:
            steps.insert(0, BeginRepair(_proof(found, identity), tuple(sorted(self._gaps)), lost))
        return RepairPlan(tuple(steps), lost, damage, seen)

    def _look(self) -> Examination:
        found = examine(self._view, self._folder, deep=True, progress=self._progress)
        if found.is_empty and found.manifest is None and found.torn is None:
            raise FormatError(str(self._folder), "there is no journal here", hint="check the path")
        return found

    def _lost(self) -> Iterator[tuple[int, int]]:
        for gaps in self._gaps.values():
            yield from ((gap.first_offset, gap.end_offset) for gap in gaps if gap.loses)
        yield from ((added.first_offset, added.end_offset) for added in self._added)

    # Segment headers.

    def _bases(self) -> Iterator[int]:
        bases = (parse_segment_name(name) for name in self._view.names(self._folder))
        return (base for base in bases if base is not None)

    def _open(self, base: int) -> File:
        return self._view.open(self._folder / format_segment_name(base), "read")

    def _identity(self) -> bytes:
        """Return the journal's identity as the first file tells it that can; a new one where none can."""
        manifest = load_manifest(self._view, self._folder)
        if manifest is not None:
            return manifest.identity
        guesses: list[bytes] = []
        for base in self._bases():
            with closing(self._open(base)) as file:
                head = file.pread(SEGMENT_HEADER_BYTES, 0)
                guesses += _guess_identity(head, _first_batch(file, base))
            try:
                return parse_segment_header(head, format_segment_name(base)).identity
            except (BadBatch, FormatError):
                continue
        frontier = _frontier(self._view, self._folder)
        return frontier.identity if frontier is not None else next(iter(guesses), os.urandom(16))

    def _recognise_headers(self, identity: bytes) -> None:
        """Mend headers that no longer look like a segment's although the rest does; `examine` would refuse them."""
        for base in self._bases():
            with closing(self._open(base)) as file:
                head = file.pread(SEGMENT_HEADER_BYTES, 0)
                try:
                    parse_segment_header(head, format_segment_name(base))
                except BadBatch:
                    continue
                except FormatError:
                    if _first_batch(file, base) is not None or _is_header_of(head, identity, base):
                        self._mend_header(file, base, identity)

    def _mend_header(self, file: File, base: int, identity: bytes) -> None:
        batch = _first_batch(file, base)
        header = SegmentHeader(identity, base, 0 if batch is None else batch.append_ns)
        self._view.headers[base] = header
        self._first_steps.append(RewriteHeader(header))

    def _mend_headers(self, found: Examination, identity: bytes) -> bool:
        """Mend the headers that `examine` found damaged; return whether there were any."""
        bases = [scan.base_offset for scan in found.segments if not scan.end_position]
        for base in bases:
            with closing(self._open(base)) as file:
                self._mend_header(file, base, identity)
        return bool(bases)

    # Overlaps.

    def _mend_overlap(self, found: Examination) -> bool:
        """Take one of two segments with the same offsets out of the way, or a part of it; return whether there are."""
        for before, after in pairwise(found.segments):
            if after.base_offset >= before.end_offset:
                continue
            if after.end_offset <= before.end_offset:
                self._view.gone.add(after.base_offset)
                self._first_steps.append(SetAside(after.base_offset, "the segment before it has its offsets"))
            else:
                position = self._find_position(before, after.base_offset)
                self._view.ends[before.base_offset] = position
                reason = "the next segment has their offsets"
                self._first_steps.append(CutTail(before.base_offset, position, before.size - position, reason))
            return True
        return False

    def _find_position(self, scan: SegmentScan, offset: int) -> int:
        """Return where the first batch begins that reaches `offset`."""
        stretch = next(s for s in scan.stretches if s.problem is None and s.end_offset > offset)
        with closing(self._open(scan.base_offset)) as file:
            batches = walk(file, stretch.position, stretch.first_offset, check=False)
            return next(position for position, batch in batches if batch.next_offset > offset)

    # Gaps.

    def _find_gaps(self, found: Examination, identity: bytes) -> None:
        """Say of each damage, and of the torn tail, which bytes are affected and which offsets are lost."""
        scans = {scan.base_offset: scan for scan in found.segments}
        for damage in found.damage:
            lost = (damage.first_offset, damage.end_offset)
            before = [scan for scan in found.segments if scan.base_offset <= damage.first_offset]
            if damage.length:
                with closing(self._open(damage.segment)) as file:
                    self._add_gaps(damage.segment, _gaps_around_whole_batches(file, damage, journal_tag(identity)))
            elif before:
                self._add_gaps(before[-1].base_offset, [Gap(before[-1].end_position, 0, *lost, at_end=True)])
            else:
                self._added.append(AddSegment(identity, *lost))
        torn = found.torn
        if torn is not None and torn.position:
            end_offset = scans[torn.segment].end_offset
            with closing(self._open(torn.segment)) as file:
                length = max(0, _end_of_data(file) - torn.position)
            self._add_gaps(torn.segment, [Gap(torn.position, length, end_offset, end_offset, at_end=True)])

    def _add_gaps(self, base: int, gaps: Iterable[Gap]) -> None:
        self._gaps.setdefault(base, []).extend(gaps)

    def _segment_steps(self, found: Examination) -> list[Step]:
        steps: list[Step] = list(self._added)
        for scan in found.segments:
            gaps = self._gaps.get(scan.base_offset, [])
            reason = "bytes follow the last batch"
            if found.torn is not None and found.torn.segment == scan.base_offset:
                reason = f"torn: {found.torn.problem}"
            in_place = _in_place(scan, gaps, reason)
            steps += [RewriteSegment(scan.base_offset, scan.size, tuple(gaps))] if in_place is None else in_place
        if found.torn is not None:
            steps += [SetAside(base, f"torn: {found.torn.problem}") for base in found.torn.dropped]
        return steps

    def _index_steps(self, found: Examination) -> Iterator[Step]:
        yield from (RebuildIndex(added.first_offset) for added in self._added)
        for scan in found.segments:
            active = scan is found.segments[-1]
            if scan.base_offset in self._gaps or index_is_wrong(self._view, self._folder, scan, active=active):
                yield RebuildIndex(scan.base_offset)


def _proof(found: Examination, identity: bytes) -> Frontier:
    proof = max(found.proof, found.first_offset)
    active = found.segments[-1].base_offset if found.segments else proof
    return Frontier(identity, found.first_offset, max(proof, found.next_offset), proof, active)


def _first_batch(file: File, base: int) -> Batch | None:
    try:
        return next((batch for _, batch in walk(file, SEGMENT_HEADER_BYTES, base)), None)
    except BadBatchAt:
        return None


def _guess_identity(head: bytes, batch: Batch | None) -> list[bytes]:
    """Return what a damaged header says, with the tag that a whole batch vouches for; nothing where that is zeros."""
    identity = head[16:32].ljust(16, b"\0")
    if batch is not None and batch.tag:
        identity = batch.tag.to_bytes(4, "little") + identity[4:]
    return [identity] if any(identity) else []


def _is_header_of(head: bytes, identity: bytes, base: int) -> bool:
    if len(head) < SEGMENT_HEADER_BYTES:
        return False
    fields = SEGMENT_HEADER.unpack_from(head)
    return (fields[4], fields[5]) == (identity, base)


def _gaps_around_whole_batches(file: File, damage: Damage, tag: int) -> Iterator[Gap]:
    """Yield what is bad of a damaged stretch: whole batches may stand in it that have only lost their neighbours."""
    position, first = damage.position, damage.first_offset
    search, stop = position, damage.position + damage.length
    while (found := find_batch(file, search, first, tag)) is not None and found[0] < stop:
        at, batch = found
        search = at + 8
        if batch.next_offset <= damage.end_offset and _is_sound(batch):
            yield Gap(position, at - position, first, batch.base_offset, at_end=False)
            position, first = at + batch.stored_bytes, batch.next_offset
            search = position
    at_end = stop >= file.size()
    length = (_end_of_data(file) if at_end else stop) - position
    yield Gap(position, max(0, length), first, damage.end_offset, at_end=at_end)


def _end_of_data(file: File) -> int:
    """Return where the reserved space begins: the first whole page of the zeros with which a file ends."""
    size = end = file.size()
    while end:
        begin = max(0, end - COPY_BYTES)
        data = file.pread(end - begin, begin).rstrip(b"\0")
        if data:
            used = begin + len(data)
            return min(size, used + -used % PAGE_BYTES)
        end = begin
    return 0


def _is_sound(batch: Batch) -> bool:
    try:
        batch.check_columns()
    except BadBatch:
        return False
    return True


def _in_place(scan: SegmentScan, gaps: list[Gap], reason: str) -> list[Step] | None:
    """Return the steps that mend a segment where it stands, or None where a gap has no room for its mark."""
    steps: list[Step] = []
    for gap in gaps:
        batches = gap.at_least() if gap.at_end else gap.exactly()
        if gap.loses and batches:
            steps.append(MarkLost(scan.base_offset, gap, tuple(batches)))
        elif gap.at_end and not gap.loses:
            steps += [CutTail(scan.base_offset, gap.position, gap.length, reason)] if gap.length else []
        elif gap.loses or gap.length:
            return None
    return steps
