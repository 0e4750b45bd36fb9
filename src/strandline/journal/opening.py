"""Opening a folder for writing: take the lock, examine, cut the torn tail, and hand over contiguous segments.

Invariants: nothing is changed before the lock is held and the examination found no damage; when `recover` returns, all
that it names is on stable storage.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import FormatError
from strandline.events import Event, Events
from strandline.files import Disk, Lock, remove_if_there
from strandline.journal.index import format_index_name
from strandline.journal.reader import rebuild_index
from strandline.journal.recovery import LOCK_NAME, Examination, SegmentScan, examine
from strandline.journal.segment import format_segment_name, parse_segment_name
from strandline.journal.state import Segment

SET_MARKER = "journals"
"""A file of this name marks the root of a `JournalSet`, whose one lock covers every journal below it."""


@dataclass(frozen=True, slots=True)
class TornTailCut(Event):
    """Recovery cut off bytes that no append had been acknowledged for."""

    folder: Path
    bytes: int
    next_offset: int
    problem: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the writer begins with."""

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
    return disk.lock(_lock_home(disk, folder) / LOCK_NAME)


def examine_names(names: list[str]) -> list[str]:
    """Return the names that are not a journal's, unless segments among them show that it is one."""
    if any(parse_segment_name(name) is not None for name in names):
        return []
    ours = {LOCK_NAME, "manifest", "frontier", "quarantine"}
    return [name for name in names if name not in ours and not name.endswith((".tmp", ".index"))]


def _lock_home(disk: Disk, folder: Path) -> Path:
    """Return the folder whose lock covers `folder`: the root of the set that it is in, or itself."""
    for parent in folder.absolute().parents:
        try:
            if SET_MARKER in disk.names(parent):
                return parent
        except (FileNotFoundError, PermissionError):
            break
    return folder


def recover(disk: Disk, folder: Path, events: Events) -> Recovered:
    """Bring a locked folder to a state that can be appended to; raise `Damaged` and change nothing if it cannot be."""
    found = examine(disk, folder)
    found.refuse_damage(folder)
    _cut(disk, folder, found)
    if found.torn is not None:
        events.emit(TornTailCut(folder, found.torn.bytes, found.next_offset, found.torn.problem))
    for scan in found.segments:
        if not _is_certain(found, scan):
            with closing(disk.open(folder / format_segment_name(scan.base_offset), "write")) as file:
                file.sync()  # what was only written survived the process, and must now survive the machine
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


def _is_certain(found: Examination, scan: SegmentScan) -> bool:
    """Whether the manifest already vouches for all of the segment."""
    manifest = found.manifest
    return manifest is not None and scan.end_offset <= manifest.durable_offset


def _segment(scan: SegmentScan) -> Segment:
    created_ns = scan.created_ns or scan.last_append_ns
    return Segment(scan.base_offset, scan.end_offset, scan.end_position, created_ns, scan.last_append_ns, scan.index)
