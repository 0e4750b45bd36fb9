"""Opening a folder for writing: take the lock, examine, cut the torn tail, and hand over contiguous segments.

Invariants: nothing is changed before the lock is held and the examination found no damage; when `recover` returns, all
that it names is on stable storage.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import FormatError
from strandline.events import Events
from strandline.files import TEMP_SUFFIX, Disk, Lock, read_file, remove_if_there
from strandline.journal.events import TornTailCut
from strandline.journal.examination import Examination, SegmentScan
from strandline.journal.index import format_index_name
from strandline.journal.reader import rebuild_index
from strandline.journal.recovery import LOCK_NAME, examine, is_ours
from strandline.journal.segment import READ_BYTES, format_segment_name, parse_segment_name
from strandline.journal.view import Segment

SET_MARKER = "strandline-journals"
SET_MARKER_CONTENT = b"strandline-journals 1\n"
"""A file of this name marks the root of a `JournalSet`, whose one lock covers every journal below it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state that a writer starts from."""

    identity: bytes | None
    segments: tuple[Segment, ...]
    next_offset: int


def lock_folder(disk: Disk, folder: Path) -> Lock:
    """Create the folder where needed and take its writer's lock; refuse a folder that holds something else."""
    disk.make_folder(folder)
    names = disk.names(folder)
    found = examine_names(names)
    if found:
        raise FormatError(
            str(folder),
            f"this folder is not a journal; it holds {', '.join(found[:3])}",
            hint="give an empty or new folder, or one that a journal made",
        )
    return disk.lock(lock_home(disk, folder) / LOCK_NAME)


def examine_names(names: list[str]) -> list[str]:
    """Return the names that are not a journal's, unless segments among them show that it is one."""
    if any(parse_segment_name(name) is not None for name in names):
        return []
    return [name for name in names if not is_ours(name.removesuffix(TEMP_SUFFIX))]


def lock_home(disk: Disk, folder: Path) -> Path:
    """Return the folder whose lock covers `folder`: the root of the outermost set that it is in, or itself."""
    home = folder
    for parent in folder.resolve().parents:
        try:
            if read_file(disk, parent / SET_MARKER) == SET_MARKER_CONTENT:
                home = parent
        except OSError:
            continue  # an unreadable folder is no root that this process could hold
    return home


def recover(disk: Disk, folder: Path, events: Events) -> Recovered:
    """Recover a locked folder for appending; raise `Damaged` and change nothing if it is damaged."""
    found = examine(disk, folder)
    found.refuse_damage(folder)
    unproved = [scan for scan in found.segments if scan.end_offset > found.proof or scan.base_offset >= found.proof]
    if unproved or found.leftovers:
        disk.sync_folder(folder)  # the next manifest names them, or this recovery removes them: both must be durable
    _cut(disk, folder, found)
    if found.torn is not None:
        events.emit(TornTailCut(folder, found.torn.bytes, found.next_offset, found.torn.problem))
    for scan in unproved:
        _make_certain(disk, folder, scan, found.proof)
    segments = tuple(_segment(scan) for scan in found.segments)
    if segments and segments[-1].index is None:
        active = segments[-1]
        with closing(disk.open(folder / format_segment_name(active.base_offset), "read")) as file:
            active.index = rebuild_index(file, active)
    return Recovered(found.identity, segments, found.next_offset)


def _cut(disk: Disk, folder: Path, found: Examination) -> None:
    """Remove the torn suffix and what interrupted steps left; durable before anything is appended."""
    gone = list(found.leftovers)
    if found.torn is not None:
        for base in found.torn.dropped:
            gone += [format_segment_name(base), format_index_name(base)]
        if found.torn.position:
            with closing(disk.open(folder / format_segment_name(found.torn.segment), "write")) as file:
                file.truncate(found.torn.position)
                file.sync()
    for name in gone:
        remove_if_there(disk, folder / name)
    if gone:
        disk.sync_folder(folder)


def _make_certain(disk: Disk, folder: Path, scan: SegmentScan, proof: int) -> None:
    """Make batches durable that are proved only by the page cache.

    It is written once more, not only synced: after a failed fsync the pages count as clean, and another fsync would
    confirm bytes that the disk never got.
    """
    with closing(disk.open(folder / format_segment_name(scan.base_offset), "write")) as file:
        position = _proved_bytes(scan, proof)
        while data := file.pread(min(READ_BYTES, scan.end_position - position), position):
            file.pwritev([data], position)
            position += len(data)
        file.sync()


def _proved_bytes(scan: SegmentScan, proof: int) -> int:
    """Return a position in a segment below which everything was on stable storage once."""
    if scan.base_offset >= proof:
        return 0
    position = max((s.end for s in scan.stretches if s.problem is None and s.end_offset <= proof), default=0)
    return position if scan.index is None else max(position, scan.index.find(proof)[1])


def _segment(scan: SegmentScan) -> Segment:
    created_ns = scan.created_ns or scan.last_append_ns
    return Segment(scan.base_offset, scan.end_offset, scan.end_position, created_ns, scan.last_append_ns, scan.index)
