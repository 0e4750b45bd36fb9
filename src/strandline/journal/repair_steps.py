"""The steps of a repair: small, each safe to run twice, each keeping what it changes.

Invariants: bytes go to the quarantine, durably, before a step changes them; when `run` returns, what it did is on
stable storage; a step that was interrupted leaves a folder for which a new plan has the same end; offsets that were
durable are marked as lost and never given out again.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from strandline.errors import Damaged
from strandline.files import TEMP_SUFFIX, Disk, File, remove_if_there, replace_file
from strandline.journal.batch import BODY_BYTES_MAX, HEADER_BYTES, format_lost
from strandline.journal.examination import Examination, Progress, SegmentScan
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier
from strandline.journal.index import format_index, format_index_name
from strandline.journal.lost_offsets import note_lost
from strandline.journal.manifest import MANIFEST_NAME, Manifest, Sealed, load_manifest, store_manifest
from strandline.journal.quarantine import chunks, format_stretch_name, keep_file, keep_stretch
from strandline.journal.reader import rebuild_index
from strandline.journal.recovery import examine
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    format_segment_header,
    format_segment_name,
    parse_segment_name,
)
from strandline.journal.view import Segment

LOST_COUNT_MAX = 2**32 - 1
LOST_BYTES_MAX = 16 * 1024 * 1024
"""A longer stretch becomes several batches where it has the offsets for it, so that readers need little memory."""
_OFFSET_MAX = 2**63


class Step(Protocol):
    """One change to a journal's folder."""

    def describe(self) -> str:
        """Return what it does, for people."""
        ...

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Do it, unless it is done; return what was put into the quarantine."""
        ...


@dataclass(frozen=True, slots=True)
class Lost:
    """One batch that stands for lost offsets, and how many bytes it takes."""

    first_offset: int
    end_offset: int
    size: int

    def format(self) -> bytes:
        """Return the batch."""
        return format_lost(self.first_offset, self.end_offset - self.first_offset, self.size - HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of a segment that hold nothing good, and the offsets that should be there; either may be none."""

    position: int
    length: int
    first_offset: int
    end_offset: int
    at_end: bool
    """Whether the segment ends with it, so that there is room."""

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.length

    @property
    def loses(self) -> bool:
        """Whether offsets are lost."""
        return self.first_offset < self.end_offset

    def exactly(self) -> list[Lost] | None:
        """Return lost batches that fill it to the byte, or None where there are none."""
        return fill(self.first_offset, self.end_offset, self.length) if self.loses else None

    def at_least(self) -> list[Lost]:
        """Return lost batches that fill it, or more where it is too short; for where there is room."""
        if not self.loses:
            return []
        wanted = fill(self.first_offset, self.end_offset, self.length + -self.length % 8)
        return wanted or smallest(self.first_offset, self.end_offset)


def fill(first_offset: int, end_offset: int, size: int) -> list[Lost] | None:
    """Return lost batches for [first_offset, end_offset) that take exactly `size` bytes, or None if there are none."""
    count = end_offset - first_offset
    parts = min(count, max(_parts(count, LOST_COUNT_MAX), _parts(size, LOST_BYTES_MAX)))
    if size % 8 or parts * HEADER_BYTES > size or _parts(size, parts) > BODY_BYTES_MAX:
        return None
    offsets = [first_offset + count * i // parts for i in range(parts + 1)]
    places = [size * i // parts // 8 * 8 for i in range(parts + 1)]
    return [Lost(offsets[i], offsets[i + 1], places[i + 1] - places[i]) for i in range(parts)]


def smallest(first_offset: int, end_offset: int) -> list[Lost]:
    """Return lost batches for [first_offset, end_offset) that take as few bytes as can be."""
    starts = range(first_offset, end_offset, LOST_COUNT_MAX)
    return [Lost(start, min(start + LOST_COUNT_MAX, end_offset), HEADER_BYTES) for start in starts]


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)


@dataclass(frozen=True, slots=True)
class BeginRepair:
    """Notes durably what was promised, and takes back what the manifest and the indexes say of what will change.

    Without it, a repair that is interrupted could forget that something was lost, or be undone by an opening that
    believes an old manifest.
    """

    frontier: Frontier
    changed: tuple[int, ...]
    lost: tuple[tuple[int, int], ...]
    """The offset ranges that the steps after it mark as lost."""

    def describe(self) -> str:
        """Return what it does, for people."""
        return f"note that everything below offset {self.frontier.durable_offset} was durable; disown the old manifest"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Name what is lost, replace the frontier, then the manifest by one that vouches for nothing, drop indexes."""
        kept = _keep_bad_manifest(disk, folder)
        identity, first = self.frontier.identity, self.frontier.first_offset
        if self.lost:
            note_lost(disk, folder, identity, self.lost)
        replace_file(disk, folder / FRONTIER_NAME, format_frontier(self.frontier))
        store_manifest(disk, folder, Manifest(identity, first, first, (), first, SEGMENT_HEADER_BYTES, 0))
        for base in self.changed:
            remove_if_there(disk, folder / format_index_name(base))
        disk.sync_folder(folder)
        return kept


@dataclass(frozen=True, slots=True)
class RewriteHeader:
    """Writes the first bytes of a segment anew."""

    header: SegmentHeader

    def describe(self) -> str:
        """Return what it does, for people."""
        return f"{format_segment_name(self.header.base_offset)}: write the damaged header anew"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Keep the old header and overwrite it."""
        path = folder / format_segment_name(self.header.base_offset)
        return _overwrite(disk, path, (0, SEGMENT_HEADER_BYTES), lambda: iter([format_segment_header(self.header)]))


@dataclass(frozen=True, slots=True)
class MarkLost:
    """Overwrites a gap with batches that say that its offsets are lost, or adds them where a segment ends."""

    segment: int
    gap: Gap
    batches: tuple[Lost, ...]

    def describe(self) -> str:
        """Return what it does, for people."""
        gap = self.gap
        where = f"{format_segment_name(self.segment)} at byte {gap.position:,}"
        kept = f"; the {gap.length:,} damaged bytes there go to the quarantine" if gap.length else ""
        return f"{where}: mark offsets [{gap.first_offset}, {gap.end_offset}) as lost{kept}"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Keep the damaged bytes and overwrite them."""
        path = folder / format_segment_name(self.segment)
        stretch = (self.gap.position, self.gap.end)
        return _overwrite(disk, path, stretch, lambda: (lost.format() for lost in self.batches))


@dataclass(frozen=True, slots=True)
class RewriteSegment:
    """Writes a segment anew where a gap has no room for the batch that marks it."""

    segment: int
    size: int
    gaps: tuple[Gap, ...]

    def describe(self) -> str:
        """Return what it does, for people."""
        lost = ", ".join(f"[{gap.first_offset}, {gap.end_offset})" for gap in self.gaps if gap.loses)
        damaged = sum(gap.length for gap in self.gaps)
        marks = f"mark offsets {lost} as lost; " if lost else ""
        return (
            f"{format_segment_name(self.segment)}: write it anew without {damaged:,} damaged bytes, which go to the "
            f"quarantine; {marks}all other records stay"
        )

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Keep the damaged bytes, write the segment beside the old one, and put it in its place."""
        path = folder / format_segment_name(self.segment)
        with closing(disk.open(path, "read")) as file:
            if file.size() != self.size:  # the new one never has this size
                return []
            kept = [
                keep_stretch(disk, path, gap.position, gap.end, format_stretch_name(self.segment, gap.position))
                for gap in self.gaps
            ]
            temporary = path.with_name(path.name + TEMP_SUFFIX)
            remove_if_there(disk, temporary)
            with closing(disk.open(temporary, "create")) as new:
                _write_pieces(new, 0, self._pieces(file))
                new.sync()
        disk.rename(temporary, path)
        disk.sync_folder(folder)
        return [target for target in kept if target is not None]

    def _pieces(self, file: File) -> Iterator[bytes]:
        batches = [gap.exactly() or gap.at_least() for gap in self.gaps]
        grown = sum(lost.size for some in batches for lost in some) - sum(gap.length for gap in self.gaps)
        if not grown:
            last = next(i for i in range(len(batches) - 1, -1, -1) if batches[i])
            end = batches[last][-1]
            batches[last][-1] = Lost(end.first_offset, end.end_offset, end.size + 8)
        position = 0
        for gap, some in zip(self.gaps, batches, strict=True):
            yield from (data for _, data in chunks(file, position, gap.position))
            yield from (lost.format() for lost in some)
            position = gap.end
        yield from (data for _, data in chunks(file, position, self.size))


@dataclass(frozen=True, slots=True)
class AddSegment:
    """Adds a segment that holds nothing but lost offsets, in the place of one that is gone."""

    identity: bytes
    first_offset: int
    end_offset: int

    def describe(self) -> str:
        """Return what it does, for people."""
        name = format_segment_name(self.first_offset)
        return f"{name}: add it, to mark offsets [{self.first_offset}, {self.end_offset}) as lost"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Write the segment whole, under a temporary name first."""
        header = format_segment_header(SegmentHeader(self.identity, self.first_offset, 0))
        batches = [lost.format() for lost in smallest(self.first_offset, self.end_offset)]
        replace_file(disk, folder / format_segment_name(self.first_offset), header + b"".join(batches))
        return []


@dataclass(frozen=True, slots=True)
class CutTail:
    """Cuts a segment where its good batches end."""

    segment: int
    position: int
    length: int
    reason: str

    def describe(self) -> str:
        """Return what it does, for people."""
        where = f"{format_segment_name(self.segment)} at byte {self.position:,}"
        return f"{where}: cut {self.length:,} bytes ({self.reason}), which go to the quarantine"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Keep the bytes and cut them off."""
        path = folder / format_segment_name(self.segment)
        name = format_stretch_name(self.segment, self.position)
        kept = keep_stretch(disk, path, self.position, self.position + self.length, name)
        if kept is None:
            return []
        with closing(disk.open(path, "write")) as file:
            file.truncate(self.position)
            file.sync()
        return [kept]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Moves a whole segment into the quarantine."""

    segment: int
    reason: str

    def describe(self) -> str:
        """Return what it does, for people."""
        return f"{format_segment_name(self.segment)}: move it to the quarantine ({self.reason})"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Copy it, then remove it: a rename from folder to folder may lose both names in a crash."""
        name = format_segment_name(self.segment)
        kept = keep_file(disk, folder / name, name)
        remove_if_there(disk, folder / name)
        remove_if_there(disk, folder / format_index_name(self.segment))
        disk.sync_folder(folder)
        return [] if kept is None else [kept]


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Makes the index of a segment anew; it holds nothing that the segment does not."""

    segment: int

    def describe(self) -> str:
        """Return what it does, for people."""
        return f"{format_index_name(self.segment)}: rebuild it from the segment"

    def run(self, disk: Disk, folder: Path) -> list[Path]:
        """Hop over the batches and write down where they begin."""
        with closing(disk.open(folder / format_segment_name(self.segment), "read")) as file:
            index = rebuild_index(file, Segment(self.segment, _OFFSET_MAX, 0, 0, 0, None))
        replace_file(disk, folder / format_index_name(self.segment), format_index(index))
        return []


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Reads the whole journal once more and, if it is whole, writes a manifest and a frontier that say so."""

    reason: str

    def describe(self) -> str:
        """Return what it does, for people."""
        return f"check everything once more, then write a new manifest and frontier ({self.reason})"

    def run(self, disk: Disk, folder: Path, progress: Progress | None = None) -> list[Path]:
        """Check, sync, and record; raise `Damaged` where something is still wrong."""
        found = examine(disk, folder, deep=True, progress=progress)
        found.refuse_damage(folder)
        if found.torn is not None:
            raise Damaged(str(folder), found.torn.problem, safe="run the repair again: the folder changed meanwhile")
        for scan in found.segments:
            _settle(disk, folder, scan)
        kept = _keep_bad_manifest(disk, folder)
        manifest, frontier = _checkpoint(found)
        store_manifest(disk, folder, manifest)
        replace_file(disk, folder / FRONTIER_NAME, format_frontier(frontier))
        return kept


def _keep_bad_manifest(disk: Disk, folder: Path) -> list[Path]:
    if load_manifest(disk, folder) is not None:
        return []
    kept = keep_file(disk, folder / MANIFEST_NAME, f"{MANIFEST_NAME}.bytes")
    return [] if kept is None else [kept]


def _settle(disk: Disk, folder: Path, scan: SegmentScan) -> None:
    """Make a segment end where its batches end, durably; only reserved space can follow them here."""
    with closing(disk.open(folder / format_segment_name(scan.base_offset), "write")) as file:
        if file.size() > scan.end_position:
            file.truncate(scan.end_position)
        file.sync()


def _checkpoint(found: Examination) -> tuple[Manifest, Frontier]:
    *sealed, active = found.segments
    first, end = found.segments[0].base_offset, active.end_offset
    identity = found.identity or b""
    rows = tuple(Sealed(s.base_offset, s.end_offset, s.end_position, s.last_append_ns) for s in sealed)
    manifest = Manifest(
        identity, first, end, rows, active.base_offset, active.end_position, active.last_append_ns or active.created_ns
    )
    return manifest, Frontier(identity, first, end, end, active.base_offset, active.end_position)


def _overwrite(disk: Disk, path: Path, stretch: tuple[int, int], pieces: Callable[[], Iterator[bytes]]) -> list[Path]:
    """Keep the bytes of `stretch`, then write `pieces` from its beginning, durably; do nothing where they stand."""
    begin, end = stretch
    with closing(disk.open(path, "write")) as file:
        if _stands(file, begin, pieces()):
            file.sync()
            return []
        segment = parse_segment_name(path.name) or 0
        kept = keep_stretch(disk, path, begin, end, format_stretch_name(segment, begin))
        _write_pieces(file, begin, pieces())
        file.sync()
    return [] if kept is None else [kept]


def _stands(file: File, position: int, pieces: Iterator[bytes]) -> bool:
    for data in pieces:
        if file.pread(len(data), position) != data:
            return False
        position += len(data)
    return True


def _write_pieces(file: File, position: int, pieces: Iterator[bytes]) -> None:
    for data in pieces:
        position += file.pwritev([data], position)
