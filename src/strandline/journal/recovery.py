"""Recovery: reads a folder and tells what is whole, what is torn and what is damaged; it changes nothing.

The question after a crash is whether bad bytes were ever promised. Everything below the *proof* was: the highest
durable offset named by the manifest, by the frontier, or by any valid batch. Bad bytes at or above the proof are a torn
suffix, which was never acknowledged, and are cut off. Bad or missing bytes below it are damage: they are reported,
never skipped and never cut.

Invariants: examining writes nothing; offsets that are reported readable are contiguous from `first_offset` to
`next_offset`; a segment of another journal is refused, by its header; with a manifest, only the batches that follow its
checkpoint are read, which after a clean shutdown are none, and `deep` reads everything. A journal begins where the
manifest says, or without one the frontier, and only without both with its first segment.
"""

from contextlib import closing, suppress
from pathlib import Path

from strandline.errors import FormatError
from strandline.files import TEMP_SUFFIX, Disk, File, read_file
from strandline.journal.batch import BadBatch, Batch, journal_tag
from strandline.journal.examination import Examination, Progress, SegmentScan, Stretch, judge
from strandline.journal.frontier import FRONTIER_NAME, Frontier, parse_frontier
from strandline.journal.index import Index, format_index_name, parse_index, parse_index_name
from strandline.journal.lost_offsets import LOST_NAME
from strandline.journal.manifest import MANIFEST_NAME, Manifest, Sealed, load_manifest
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatchAt,
    SegmentHeader,
    find_batch,
    format_segment_name,
    parse_segment_name,
    read_segment_header,
    refuse_stranger,
    walk,
)

LOCK_NAME = "lock"
QUARANTINE_NAME = "quarantine"


def examine(disk: Disk, folder: Path, *, deep: bool = False, progress: Progress | None = None) -> Examination:
    """Look at a journal's folder. A folder that is missing or empty is an empty examination."""
    try:
        names = disk.names(folder)
    except FileNotFoundError:
        names = []
    manifest = load_manifest(disk, folder)
    frontier = _load_frontier(disk, folder)
    bases, leftovers, foreign = _sort_names(names, manifest)
    examination = Examination(None, 0, 0, 0, [], [], None, leftovers, foreign, manifest, frontier)
    if manifest is not None:
        examination.identity = manifest.identity
        examination.first_offset = examination.next_offset = manifest.first_offset
        examination.proof = manifest.durable_offset
    elif bases:
        examination.first_offset = examination.next_offset = bases[0]
    _Examiner(disk, folder, examination, deep=deep, progress=progress).run(bases)
    return examination


def _load_frontier(disk: Disk, folder: Path) -> Frontier | None:
    data = read_file(disk, folder / FRONTIER_NAME)
    return None if data is None else parse_frontier(data)


def is_ours(name: str) -> bool:
    """Whether a journal makes files or folders of this name, apart from temporary ones."""
    if name in (MANIFEST_NAME, FRONTIER_NAME, LOST_NAME, LOCK_NAME, QUARANTINE_NAME):
        return True
    return parse_segment_name(name) is not None or parse_index_name(name) is not None


def _sort_names(names: list[str], manifest: Manifest | None) -> tuple[list[int], list[str], list[str]]:
    """Return (segments, leftovers of an interrupted step, files that are not ours)."""
    first = manifest.first_offset if manifest is not None else 0
    bases: list[int] = []
    leftovers: list[str] = []
    foreign: list[str] = []
    for name in names:
        base = parse_segment_name(name)
        index_base = parse_index_name(name)
        number = index_base if base is None else base
        is_temporary = name.endswith(TEMP_SUFFIX) and is_ours(name.removesuffix(TEMP_SUFFIX))
        if is_temporary or (number is not None and number < first):
            leftovers.append(name)
        elif base is not None:
            bases.append(base)
        elif not is_ours(name):
            foreign.append(name)
    return bases, leftovers, foreign


class _Examiner:
    """Reads the segments in order, then decides what the bad places mean."""

    def __init__(
        self, disk: Disk, folder: Path, examination: Examination, *, deep: bool, progress: Progress | None
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._found = examination
        self._deep = deep
        self._progress = progress
        self._read = 0
        self._total = 0

    def run(self, bases: list[int]) -> None:
        """Fill the examination."""
        found = self._found
        manifest = found.manifest
        trusted = {} if manifest is None or self._deep else {s.base_offset: s for s in manifest.sealed}
        self._total = sum(self._size(base) for base in bases if base not in trusted) if self._progress else 0
        for base in bases:
            sealed = trusted.get(base)
            known = None if sealed is None else self._trust(sealed)
            found.segments.append(known or self._scan(base))
        frontier = found.frontier
        if frontier is not None and found.identity not in (None, frontier.identity):
            frontier = None  # another journal's
        if frontier is not None:
            found.proof = max(found.proof, frontier.durable_offset)
        if bases and manifest is None:
            self._find_beginning(bases[0], frontier)
        judge(found)
        if found.segments and found.segments[-1].base_offset in trusted:
            # It lost its successor and will be appended to, so it has to be looked at after all.
            found.segments[-1] = self._scan(found.segments[-1].base_offset)
            judge(found)

    def _trust(self, sealed: Sealed) -> SegmentScan | None:
        """Return a segment as the manifest describes it, by its size and header; None where it must be read."""
        base = sealed.base_offset
        path = str(self._folder / format_segment_name(base))
        with closing(self._open(base)) as file:
            if file.size() != sealed.bytes:
                return None
            try:
                self._check_header(read_segment_header(file, path), base, path)
            except BadBatch:
                return None
        scan = SegmentScan(base, sealed.bytes, sealed.end_offset, sealed.bytes)
        scan.last_append_ns = sealed.last_append_ns
        scan.stretches.append(Stretch(0, sealed.bytes, base, sealed.end_offset))
        return scan

    def _find_beginning(self, base: int, frontier: Frontier | None) -> None:
        """Without a manifest, begin where the frontier says; what is missing before `base` was promised."""
        if frontier is not None and frontier.first_offset < base:
            self._found.first_offset = frontier.first_offset
            self._found.proof = max(self._found.proof, base)

    def _size(self, base: int) -> int:
        with closing(self._open(base)) as file:
            return file.size()

    def _open(self, base: int) -> File:
        return self._disk.open(self._folder / format_segment_name(base), "read")

    def _scan(self, base: int) -> SegmentScan:
        with closing(self._open(base)) as file:
            scan = SegmentScan(base, file.size(), base, SEGMENT_HEADER_BYTES, index=Index(base))
            path = str(self._folder / format_segment_name(base))
            try:
                header = read_segment_header(file, path)
            except BadBatch as bad:
                scan.stretches.append(Stretch(0, scan.size, base, base, bad.problem))
                scan.end_position = 0
                self._take_proof(file, base)
                return scan
            self._check_header(header, base, path)
            scan.created_ns = header.created_ns
            self._walk(file, scan)
            return scan

    def _take_proof(self, file: File, base: int) -> None:
        """Believe the batches behind a bad header in this: if something there was durable, then it is not torn."""
        with suppress(BadBatchAt):
            for _, batch in walk(file, SEGMENT_HEADER_BYTES, base):
                self._found.proof = max(self._found.proof, batch.durable_offset)

    def _check_header(self, header: SegmentHeader, base: int, path: str) -> None:
        if self._found.identity is None:
            self._found.identity = header.identity
        if self._found.identity != header.identity and self._is_manifest_foreign():
            hint = "move it to where it came from; a journal without a manifest is read whole when it is opened"
            raise FormatError(str(self._folder / MANIFEST_NAME), "the manifest belongs to another journal", hint=hint)
        refuse_stranger(header, self._found.identity, base, path)

    def _is_manifest_foreign(self) -> bool:
        """Whether the manifest names a journal of which no segment here is a part."""
        manifest = self._found.manifest
        if manifest is None:
            return False
        for base in _segment_bases(self._disk.names(self._folder)):
            with suppress(BadBatch, FormatError), closing(self._open(base)) as file:
                if read_segment_header(file, format_segment_name(base)).identity == manifest.identity:
                    return False
        return True

    def _walk(self, file: File, scan: SegmentScan) -> None:
        """Read the batches from the first, or from the checkpoint, over every bad stretch."""
        position, expected = SEGMENT_HEADER_BYTES, scan.base_offset
        manifest = self._found.manifest
        if manifest is not None and not self._deep and _is_checkpointed(manifest, scan):
            position, expected = manifest.active_bytes, manifest.durable_offset
            scan.end_position, scan.end_offset = position, expected
            if expected > scan.base_offset:
                scan.index = self._load_index(scan.base_offset, expected, position)
            scan.last_append_ns = manifest.active_last_append_ns
            scan.stretches.append(Stretch(0, position, scan.base_offset, expected))
        while True:
            begin = position
            problem = self._walk_good(file, scan, position, expected)
            if scan.end_position > begin or not scan.stretches:
                scan.stretches.append(Stretch(begin, scan.end_position, expected, scan.end_offset))
            bad_at = max(scan.end_position, begin)
            if problem is None:
                problem = _after_end(file, bad_at, scan.size)
            if problem is None:
                return
            found = find_batch(file, bad_at + 8, scan.end_offset + 1, self._tag())
            end = scan.size if found is None else found[0]
            scan.stretches.append(Stretch(bad_at, end, problem=problem))
            if found is None:
                return
            position, expected = found[0], found[1].base_offset
            scan.end_position, scan.end_offset = position, expected

    def _tag(self) -> int:
        """Return what our batches carry; the identity is known, as a segment's header is read before its batches."""
        return journal_tag(self._found.identity or bytes(16))

    def _load_index(self, base: int, end_offset: int, end_position: int) -> Index | None:
        """Return the index file up to the checkpoint; None where it is missing or cannot be this segment's."""
        data = read_file(self._disk, self._folder / format_index_name(base))
        index = None if data is None else parse_index(data, base)
        if index is not None:
            index.cut(end_offset)
            if index.positions and index.positions[-1] >= end_position:
                return None
        return index

    def _walk_good(self, file: File, scan: SegmentScan, position: int, expected: int) -> str | None:
        """Take valid batches one after another; return what was wrong with the bytes after them, if anything."""
        try:
            for at, batch in walk(file, position, expected, tag=self._tag()):
                if self._deep:
                    batch.check_columns()
                self._take(scan, at, batch)
        except (BadBatch, BadBatchAt) as bad:
            return bad.problem
        return None

    def _take(self, scan: SegmentScan, position: int, batch: Batch) -> None:
        if scan.index is not None:
            scan.index.note(batch.base_offset, position)
        scan.end_offset = batch.next_offset
        scan.end_position = position + batch.stored_bytes
        scan.batches += 1
        scan.last_append_ns = max(scan.last_append_ns, batch.append_ns)
        if batch.is_lost:
            scan.lost += len(batch)
        self._found.proof = max(self._found.proof, batch.durable_offset)
        self._read += batch.stored_bytes
        if self._progress is not None:
            self._progress(self._read, self._total)


def _segment_bases(names: list[str]) -> list[int]:
    return [base for name in names if (base := parse_segment_name(name)) is not None]


def _is_checkpointed(manifest: Manifest, scan: SegmentScan) -> bool:
    """Whether the checkpoint lies in this segment, which is still at least as long."""
    return manifest.active_base == scan.base_offset and scan.size >= manifest.active_bytes


def _after_end(file: File, position: int, size: int) -> str | None:
    """What follows the last batch must be nothing, or reserved space; say so if it is anything else."""
    while position < size:
        chunk = file.pread(1 << 20, position)
        if not chunk:
            break
        if any(chunk.strip(b"\0")):
            return "bytes follow the last batch"
        position += len(chunk)
    return None
