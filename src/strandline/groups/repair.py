"""Repair: replaces a damaged group by its readable part; the damaged files are kept beside it.

Every operation states a fact by itself, so a frame is useful without the frames before it. Lost answers lead to
redeliveries.

Invariants: the damaged bytes are on stable storage under another name before anything is replaced; a repair that was
interrupted is begun anew by the next.
"""

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from strandline.errors import Damaged
from strandline.files import Disk, read_file, replace_file, storage_errors
from strandline.groups.delta import DeltaHeader, Frame, format_delta_header, frames_after, parse_delta_header
from strandline.groups.recovery import apply_frames, recover
from strandline.groups.snapshot import Snapshot, format_snapshot, parse_snapshot
from strandline.groups.state import GroupState
from strandline.groups.store import GroupFiles, group_files


@dataclass(frozen=True, slots=True)
class GroupRepaired:
    """The result of a repair: the recovered state, and the paths of the replaced files."""

    name: str
    problem: str
    snapshot_kept: bool
    frames_kept: int
    set_aside: tuple[str, ...]


def repair_group(disk: Disk, folder: Path, name: str, now_ns: int) -> GroupRepaired | None:
    """Replace a damaged group, which must not be open, by its readable part; None if nothing is damaged.

    A file that is foreign or of a later version is `FormatError`, and left alone.
    """
    with storage_errors(folder):
        return _repair(disk, group_files(folder, name), name, now_ns)


def _repair(disk: Disk, files: GroupFiles, name: str, now_ns: int) -> GroupRepaired | None:
    snapshot_data = read_file(disk, files.snapshot)
    delta_data = read_file(disk, files.delta)
    problem = _problem(name, files, snapshot_data, delta_data)
    if problem is None:
        return None
    snapshot = _readable_snapshot(snapshot_data, files)
    if snapshot is not None and snapshot.removed:
        return None
    header = _readable_header(delta_data, files)
    identity = snapshot.identity if snapshot else header.identity if header else os.urandom(16)
    frames = list(frames_after(delta_data or b"", -1, DeltaHeader(identity, 0, 0)))
    sequence = snapshot.sequence if snapshot else 0
    state = GroupState(*snapshot.captured) if snapshot else GroupState()
    apply_frames(state, frames, sequence, str(files.delta))
    aside = tuple(_set_aside(disk, path) for path in (files.snapshot, files.delta))
    # Above every sequence that was ever used, so that the rest of the old delta is skipped.
    following = max([sequence, *(frame.sequence + 1 for frame in frames)])
    content = format_snapshot(Snapshot(name, identity, following, now_ns, state.capture()))
    replace_file(disk, files.snapshot, content)
    replace_file(disk, files.delta, format_delta_header(DeltaHeader(identity, following, now_ns)))
    kept = _count_since(frames, sequence)
    return GroupRepaired(name, problem, snapshot is not None, kept, tuple(filter(None, aside)))


def _problem(name: str, files: GroupFiles, snapshot: bytes | None, delta: bytes | None) -> str | None:
    """Return the problem, or None if the group is whole or missing."""
    if snapshot is None and delta is None:
        return None
    if snapshot is None or delta is None:
        return f"{files.delta if delta is None else files.snapshot}: the file is missing"
    try:
        recover(name, snapshot, delta, (str(files.snapshot), str(files.delta)))
    except Damaged as damaged:
        return str(damaged)
    return None


def _readable_snapshot(data: bytes | None, files: GroupFiles) -> Snapshot | None:
    try:
        return None if data is None else parse_snapshot(data, str(files.snapshot))
    except Damaged:
        return None


def _readable_header(data: bytes | None, files: GroupFiles) -> DeltaHeader | None:
    try:
        return None if data is None else parse_delta_header(data, str(files.delta))
    except Damaged:
        return None


def _count_since(frames: list[Frame], sequence: int) -> int:
    return sum(frame.sequence >= sequence and len(frame.operations) > 0 for frame in frames)


def _set_aside(disk: Disk, path: Path) -> str | None:
    """Keep a copy of a file under a new name; return that name, or None if the file is missing."""
    data = read_file(disk, path)
    if data is None:
        return None
    for number in count(1):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        known = read_file(disk, aside)
        if known is None:
            replace_file(disk, aside, data)
        if known in (None, data):
            break
    return str(aside)
