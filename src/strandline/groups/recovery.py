"""Recovery: the state of a snapshot and its delta, computed without touching a file.

Invariants: a frame is applied only if all frames between it and the snapshot are; a torn suffix of the delta is left
out, and may hold only frames that were never acknowledged; damage anywhere else is an error that changes nothing.
"""

from dataclasses import dataclass

from strandline.errors import Damaged, FormatError
from strandline.groups.delta import (
    DELTA_HEADER_BYTES,
    SAFE,
    BadFrame,
    DeltaHeader,
    Frame,
    frames_after,
    parse_delta_header,
    walk,
)
from strandline.groups.operations import BadOperation, apply_operations, parse_operations
from strandline.groups.snapshot import Snapshot, parse_snapshot
from strandline.groups.state import GroupState


@dataclass(frozen=True, slots=True)
class Recovery:
    """The content of a group's two files."""

    snapshot: Snapshot
    header: DeltaHeader
    state: GroupState
    next_sequence: int
    """The sequence of the frame that would be written next."""
    frames: int
    """The number of frames after the snapshot."""
    good_bytes: int
    """The end of the last valid frame."""
    torn_bytes: int
    """The number of unusable bytes after it."""
    clean: bool
    """Whether the delta is empty or ends with the frame of a proper close, so that it may be written on."""
    closing: Frame | None
    """The frame of a proper close, if the delta ends with one."""
    since_ns: int | None
    """The time of the delta's first operation."""


def recover(name: str, snapshot_data: bytes, delta_data: bytes, paths: tuple[str, str]) -> Recovery:
    """Return the content of a group's files; `paths` name the snapshot and the delta in errors."""
    snapshot_path, delta_path = paths
    snapshot = parse_snapshot(snapshot_data, snapshot_path)
    if snapshot.name != name:
        raise FormatError(
            snapshot_path, f"it holds the group {snapshot.name!r}", hint="give the file its old name back"
        )
    header = parse_delta_header(delta_data, delta_path)
    if header.identity != snapshot.identity:
        raise Damaged(delta_path, "it belongs to another group than the snapshot", safe=SAFE)
    if header.base_sequence > snapshot.sequence:
        missing = f"frames [{snapshot.sequence}, {header.base_sequence}) are missing between it and the snapshot"
        raise Damaged(delta_path, missing, safe=SAFE)
    frames, torn = readable_frames(delta_data, header, delta_path)
    state = GroupState(*snapshot.captured)
    apply_frames(state, frames, snapshot.sequence, delta_path)
    good_bytes = frames[-1].end if frames else DELTA_HEADER_BYTES
    end = header.base_sequence + len(frames)
    clean = not torn and end >= snapshot.sequence and (not frames or not frames[-1].operations)
    return Recovery(
        snapshot,
        header,
        state,
        next_sequence=max(end, snapshot.sequence),
        frames=max(0, end - snapshot.sequence),
        good_bytes=good_bytes,
        torn_bytes=len(delta_data) - good_bytes if torn else 0,
        clean=clean,
        closing=frames[-1] if clean and frames else None,
        since_ns=next((frame.written_ns for frame in frames if frame.operations), None),
    )


def readable_frames(data: bytes, header: DeltaHeader, path: str) -> tuple[list[Frame], bool]:
    """Return the frames of a delta up to a torn tail, and whether there is one; `Damaged` if the tail was durable."""
    frames: list[Frame] = []
    try:
        for frame in walk(data, header):
            frames.append(frame)  # noqa: PERF402  what came before a bad frame must be kept
    except BadFrame as bad:
        if any(frame.durable_sequence > bad.sequence for frame in frames_after(data, bad.position, header)):
            problem = f"frame {bad.sequence} at byte {bad.position} was durable, and now {bad.problem}"
            raise Damaged(path, problem, safe=SAFE) from bad
        return frames, True
    return frames, False


def apply_frames(state: GroupState, frames: list[Frame], sequence_min: int, path: str) -> None:
    """Apply the frames from a sequence on."""
    for frame in frames:
        if frame.sequence >= sequence_min:
            try:
                apply_operations(state, parse_operations(frame.operations))
            except BadOperation as bad:
                problem = f"the checksum of frame {frame.sequence} is right, yet {bad}"
                raise Damaged(path, problem, safe=SAFE) from bad
