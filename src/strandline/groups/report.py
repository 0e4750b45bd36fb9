"""A report of a group's files, read without a lock and without changing anything."""

from dataclasses import dataclass
from pathlib import Path

from strandline.errors import Damaged, FormatError
from strandline.files import Disk, read_file, storage_errors
from strandline.groups.delta import SAFE
from strandline.groups.recovery import Recovery, recover
from strandline.groups.snapshot import is_removed, parse_snapshot
from strandline.groups.store import GroupFiles, group_files, is_unused

_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class GroupContent:
    """The state of a group at the last write of its files."""

    acked_until: int
    acked_above: int
    acked_ranges: int
    inflight: int
    waiting: int
    next_expiry_ns: int | None
    next_sequence: int
    frames: int
    """The number of frames after the snapshot."""
    torn_bytes: int
    """The bytes that a crash, or a write in progress, left at the end of the delta."""
    clean: bool
    """Whether the group was closed properly."""
    snapshot_ns: int


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The files of a group: their content, or their problem and a hint."""

    name: str
    snapshot_bytes: int | None
    delta_bytes: int | None
    content: GroupContent | None
    problem: str | None = None
    safe: str | None = None


def inspect_group(disk: Disk, folder: Path, name: str) -> GroupReport | None:
    """Read a group's files, check every checksum, and report their content; None if there is no such group.

    A writer may be at work: the two files are read again if the snapshot was replaced meanwhile.
    """
    files = group_files(folder, name)
    with storage_errors(folder):
        snapshot, delta = _read_pair(disk, files)
    if snapshot is None and delta is None:
        return None
    snapshot_bytes = None if snapshot is None else len(snapshot)
    delta_bytes = None if delta is None else len(delta)
    try:
        content = _content(name, files, snapshot, delta)
    except (Damaged, FormatError) as error:
        return GroupReport(name, snapshot_bytes, delta_bytes, None, str(error), error.hint)
    return GroupReport(name, snapshot_bytes, delta_bytes, content) if content else None


def _read_pair(disk: Disk, files: GroupFiles) -> tuple[bytes | None, bytes | None]:
    snapshot = read_file(disk, files.snapshot)
    for _ in range(_ATTEMPTS):
        delta = read_file(disk, files.delta)
        again = read_file(disk, files.snapshot)
        if again == snapshot:
            break
        snapshot = again
    return snapshot, delta


def _content(name: str, files: GroupFiles, snapshot: bytes | None, delta: bytes | None) -> GroupContent | None:
    """Return the content of the files, or None if the group is being created or removed."""
    if snapshot is None:
        if delta is not None and is_unused(delta, str(files.delta)):
            return None
        raise Damaged(str(files.snapshot), "the snapshot is missing", safe=SAFE)
    if is_removed(snapshot) and parse_snapshot(snapshot, str(files.snapshot)).removed:
        return None
    if delta is None:
        raise Damaged(str(files.delta), "the delta is missing", safe=SAFE)
    return _summary(recover(name, snapshot, delta, (str(files.snapshot), str(files.delta))))


def _summary(recovery: Recovery) -> GroupContent:
    state = recovery.state
    acks = state.capture().acks
    return GroupContent(
        acked_until=state.acked_until,
        acked_above=acks.count_above(),
        acked_ranges=len(acks.range_array()),
        inflight=state.inflight_count,
        waiting=state.waiting_count,
        next_expiry_ns=state.next_expiry(),
        next_sequence=recovery.next_sequence,
        frames=recovery.frames,
        torn_bytes=recovery.torn_bytes,
        clean=recovery.clean,
        snapshot_ns=recovery.snapshot.created_ns,
    )
