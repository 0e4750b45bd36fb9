"""What the tests of durable groups share: a simulated disk, no threads, and a look into a group."""

from pathlib import Path

from strandline.clock import ManualClock
from strandline.files import Disk, read_file
from strandline.gather import InlineExecutor
from strandline.groups import Group, GroupConfig, GroupState, format_group_file
from strandline.groups.delta import DELTA_HEADER_BYTES, parse_delta_header, walk
from strandline.groups.recovery import recover
from strandline.sim import SimDisk

FOLDER = Path("/groups")
NAME = "workers"
SNAPSHOT = FOLDER / format_group_file(NAME, "snapshot")
DELTA = FOLDER / format_group_file(NAME, "delta")
QUIET = GroupConfig(compact_age_s=None)
"""Never compacts by itself, as far as tests go."""


def open_group(disk: Disk, *, config: GroupConfig = QUIET, clock: ManualClock | None = None, name: str = NAME) -> Group:
    """Open a group that works in the caller's thread."""
    return Group.open(disk, FOLDER, name, config=config, clock=clock or ManualClock(1_000), executor=InlineExecutor())


def state_of(group: Group) -> GroupState:
    """Return a state of its own with what a group knows."""
    return GroupState(*group.capture())


def facts(state: GroupState) -> tuple[object, ...]:
    """Return everything a state knows, to be compared."""
    return state.acked_until, state.acked_ranges(), state.inflight(), state.waiting()


def on_disk(disk: Disk) -> tuple[object, ...]:
    """Return everything that would be recovered now."""
    return facts(recover(NAME, content(disk, SNAPSHOT), content(disk, DELTA), ("snapshot", "delta")).state)


def content(disk: Disk, path: Path) -> bytes:
    """Return the bytes of a file that must be there."""
    data = read_file(disk, path)
    assert data is not None
    return data


def delta_frames(disk: Disk) -> bytes:
    """Return the bytes of the delta up to the end of its last frame, without the zeros that may follow."""
    data = content(disk, DELTA)
    ends = [frame.end for frame in walk(data, parse_delta_header(data, "delta"))]
    return data[: max(ends, default=DELTA_HEADER_BYTES)]


def put(disk: Disk, path: Path, data: bytes) -> None:
    """Make a file have these bytes, durably."""
    if path.name in disk.names(path.parent):
        disk.remove(path)
    file = disk.open(path, "create")
    if data:
        file.pwritev([data], 0)
    file.sync()
    file.close()
    disk.sync_folder(path.parent)


def copy_of(disk: SimDisk) -> SimDisk:
    """Return another disk with the files that this one shows."""
    twin = SimDisk()
    twin.make_folder(FOLDER)
    for name in disk.names(FOLDER):
        put(twin, FOLDER / name, content(disk, FOLDER / name))
    return twin
