"""The two files of a group: appending frames, and replacing snapshot and delta while frames go on being appended.

A compaction is four steps, each of which leaves files from which the same state is recovered:

    cut              note the next sequence, and capture the state              (no append meanwhile)
    write_snapshot   replace the snapshot; the old delta still follows it, its older frames are passed over
    copy_delta       write a new delta beside the old one, with the frames since the cut
    switch_delta     add the last few frames, replace the old delta             (no append meanwhile)

Invariants: a delta has its name only after its content was on stable storage; whenever the snapshot exists, a delta
with a base no higher than the snapshot's sequence does; `synced_sequence` (exclusive) never exceeds what is on stable
storage. After an `OSError` from here the caller must stop using the store and open it again.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import Damaged
from strandline.files import TEMP_SUFFIX, Disk, File, read_file, remove_if_there, replace_file, storage_errors
from strandline.groups.delta import (
    DELTA_HEADER_BYTES,
    SAFE,
    DeltaHeader,
    format_delta_header,
    format_frame,
    parse_delta_header,
)
from strandline.groups.names import format_group_file, parse_group_file
from strandline.groups.recovery import Recovery, recover
from strandline.groups.snapshot import (
    SNAPSHOT_HEADER_BYTES,
    Snapshot,
    format_snapshot,
    is_removed,
    parse_snapshot,
)
from strandline.groups.state import GroupState
from strandline.journal.config import KiB

COPY_BYTES = 256 * KiB
"""The bytes of frames that may be left to copy while appends wait."""
RESERVE_BYTES = 256 * KiB
"""The maximum number of bytes reserved at once."""
_BLOCK_BYTES = 4 * KiB


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The paths of a group's files."""

    snapshot: Path
    delta: Path


def group_files(folder: Path, name: str) -> GroupFiles:
    """Return the paths of a group's files; `InvalidInput` for an invalid name."""
    return GroupFiles(folder / format_group_file(name, "snapshot"), folder / format_group_file(name, "delta"))


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment between two frames."""

    sequence: int
    position: int


@dataclass(slots=True)
class DeltaCopy:
    """An unfinished delta: it has the old one's bytes up to `copied`."""

    file: File
    created_ns: int
    position: int
    copied: int


class Store:
    """The open files of one group. Calls must not overlap, but for the two middle steps of a compaction."""

    def __init__(self, disk: Disk, files: GroupFiles, name: str, identity: bytes, snapshot_bytes: int) -> None:
        self._disk = disk
        self._files = files
        self.name = name
        self.identity = identity
        self.snapshot_bytes = snapshot_bytes
        self.next_sequence = 0
        self.synced_sequence = 0
        self.since_ns: int | None = None
        self.is_begun = False
        """Whether the files exist; a new group may create them with its first frame."""
        self._file: File
        self._position = DELTA_HEADER_BYTES
        self._reserved = 0
        self._closing_needed = False

    @property
    def path(self) -> str:
        """The file of commits, for errors."""
        return str(self._files.delta)

    @property
    def delta_bytes(self) -> int:
        """The size of the delta, without reserved bytes."""
        return self._position

    def begin(self, now_ns: int) -> None:
        """Create the files of a new group, durably, unless they exist."""
        if self.is_begun:
            return
        self._disk.make_folder(self._files.delta.parent)
        # The delta first: a snapshot without a delta is then always a sign of loss.
        self.start_delta(0, now_ns)
        self.write_snapshot(Snapshot(self.name, self.identity, 0, now_ns, GroupState().capture()))

    def append(self, operations: Sequence[bytes], now_ns: int, *, sync: bool) -> None:
        """Write one frame; with `sync`, it and all before it are on stable storage when it returns."""
        self.begin(now_ns)
        frame = format_frame(self.identity, self.next_sequence, self.synced_sequence, now_ns, operations)
        if sync and operations and self._position + len(frame) > self._reserved:
            self._reserve(self._position + len(frame))
        # A write that syncs itself is one system call, but speaks only for its own bytes.
        alone = sync and self.synced_sequence == self.next_sequence
        self._file.pwritev([frame], self._position, sync=alone)
        self._position += len(frame)
        self.next_sequence += 1
        self._closing_needed = True
        if self.since_ns is None and operations:
            self.since_ns = now_ns
        if alone:
            self.synced_sequence = self.next_sequence
        elif sync:
            self.sync()

    def _reserve(self, end: int) -> None:
        """Write zeros ahead of the frames, durably, about as many bytes as the frames have.

        A frame that overwrites them is synced in half the time, as the file does not grow with it; and a group that is
        hardly used stays small.
        """
        begin = max(self._position, self._reserved)
        self._reserved = min(2 * end, end + RESERVE_BYTES)
        self._reserved += -self._reserved % _BLOCK_BYTES
        self._file.pwritev([bytes(self._reserved - begin)], begin)
        self._file.sync()
        self.synced_sequence = self.next_sequence

    def sync(self) -> None:
        """Return when every frame is on stable storage; costs nothing if that is known."""
        if self.synced_sequence < self.next_sequence:
            self._file.sync()
            self.synced_sequence = self.next_sequence

    def sync_until(self, sequence: int) -> None:
        """Return when every frame below a sequence is on stable storage; frames may be appended meanwhile."""
        if self.synced_sequence < sequence:
            self._file.sync()
            self.synced_sequence = max(self.synced_sequence, sequence)

    def close(self, now_ns: int) -> None:
        """Make everything durable and leave a frame that proves it: later damage to the frames before is noticed."""
        try:
            self.sync()
            if self._closing_needed:
                self.append([], now_ns, sync=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without a sync."""
        if self.is_begun:
            self._file.close()

    # Compaction

    def cut(self) -> Cut:
        """Return the current end of the delta."""
        return Cut(self.next_sequence, self._position)

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, durably."""
        content = format_snapshot(snapshot)
        replace_file(self._disk, self._files.snapshot, content)
        self.snapshot_bytes = len(content)

    def copy_delta(self, cut: Cut, now_ns: int) -> DeltaCopy:
        """Begin a delta that follows the cut, and copy frames until only a few are left."""
        temporary = _temporary(self._files.delta)
        remove_if_there(self._disk, temporary)
        copy = DeltaCopy(self._disk.open(temporary, "create"), now_ns, 0, cut.position)
        try:
            header = format_delta_header(DeltaHeader(self.identity, cut.sequence, now_ns))
            copy.position = copy.file.pwritev([header], 0)
            while self._position - copy.copied > COPY_BYTES:
                self._copy_some(copy)
            copy.file.sync()
        except BaseException:
            copy.file.close()
            raise
        return copy

    def switch_delta(self, copy: DeltaCopy) -> None:
        """Complete the copy and replace the delta with it, durably."""
        try:
            while copy.copied < self._position:
                self._copy_some(copy)
            copy.file.sync()
            self._disk.rename(_temporary(self._files.delta), self._files.delta)
            self._disk.sync_folder(self._files.delta.parent)
        except BaseException:
            copy.file.close()
            raise
        self.abandon()
        self._adopt(copy.file, copy.position)
        if copy.position > DELTA_HEADER_BYTES:
            self.since_ns = copy.created_ns

    def start_delta(self, sequence: int, now_ns: int) -> None:
        """Begin an empty delta at a sequence, replacing any other, durably."""
        self.next_sequence = sequence
        replace_file(self._disk, self._files.delta, format_delta_header(DeltaHeader(self.identity, sequence, now_ns)))
        self._adopt(self._disk.open(self._files.delta, "write"), DELTA_HEADER_BYTES)

    def resume_delta(self, recovery: Recovery) -> None:
        """Continue with the delta of a proper close."""
        # The next frame takes the place of the closing one, whose own sync may have failed: it may be in the operating
        # system's cache and nowhere else, and must not come between frames that are durable.
        closing = recovery.closing
        self.next_sequence = closing.sequence if closing else recovery.next_sequence
        position = closing.position if closing else recovery.good_bytes
        self._adopt(self._disk.open(self._files.delta, "write"), position)
        self.since_ns = recovery.since_ns
        self._closing_needed = False

    def _adopt(self, file: File, position: int) -> None:
        self._file = file
        self.is_begun = True
        self._position = position
        self._reserved = file.size()
        self.synced_sequence = self.next_sequence
        self._closing_needed = position > DELTA_HEADER_BYTES
        self.since_ns = None

    def _copy_some(self, copy: DeltaCopy) -> None:
        # The old frames stay where they are until the switch, so they may be read while others are appended.
        data = self._file.pread(min(COPY_BYTES, self._position - copy.copied), copy.copied)
        copy.position += copy.file.pwritev([data], copy.position)
        copy.copied += len(data)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMP_SUFFIX)


def open_store(
    disk: Disk, folder: Path, name: str, now_ns: int, *, lazily: bool = False
) -> tuple[Store, GroupState, Recovery | None]:
    """Open the files of a group, or create them; the recovery is None where they are new, or come with the first frame.

    After anything but a proper close, snapshot and delta are written anew: what was read may be in the operating
    system's cache only, and after a failed fsync would never leave it.
    """
    files = group_files(folder, name)
    recovery = _recover(disk, files, name)
    if recovery is None:
        store = Store(disk, files, name, os.urandom(16), 0)
        if not lazily:
            store.begin(now_ns)
        return store, GroupState(), None
    identity = recovery.snapshot.identity
    store = Store(disk, files, name, identity, _size(disk, files.snapshot))
    if recovery.clean:
        if recovery.closing is None:
            disk.sync_folder(folder)  # the process that named the files may have died before its sync
        store.resume_delta(recovery)
    else:
        sequence = recovery.next_sequence
        store.write_snapshot(Snapshot(name, identity, sequence, now_ns, recovery.state.capture()))
        store.start_delta(sequence, now_ns)
    return store, recovery.state, recovery


def _recover(disk: Disk, files: GroupFiles, name: str) -> Recovery | None:
    snapshot = read_file(disk, files.snapshot)
    delta = read_file(disk, files.delta)
    paths = (str(files.snapshot), str(files.delta))
    if snapshot is None:
        if delta is None or is_unused(delta, paths[1]):
            return None
        raise Damaged(paths[0], "the snapshot is missing, though there is a delta", safe=SAFE)
    if is_removed(snapshot) and parse_snapshot(snapshot, paths[0]).removed:
        _finish_removal(disk, files)
        return None
    if delta is None:
        raise Damaged(paths[1], "the delta is missing, though there is a snapshot", safe=SAFE)
    return recover(name, snapshot, delta, paths)


def is_unused(delta: bytes, path: str) -> bool:
    """Whether a delta without a snapshot comes from a crash during the creation of a group."""
    return len(delta) == DELTA_HEADER_BYTES and parse_delta_header(delta, path).base_sequence == 0


def group_names(disk: Disk, folder: Path) -> list[str]:
    """Return the names of the groups in a folder, sorted; empty if the folder is missing."""
    with storage_errors(folder):
        try:
            found = map(parse_group_file, disk.names(folder))
        except FileNotFoundError:
            return []
        names = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == "snapshot")
        return [name for name in names if not _is_being_removed(disk, group_files(folder, name).snapshot)]


def _is_being_removed(disk: Disk, path: Path) -> bool:
    file = disk.open(path, "read")
    try:
        return is_removed(file.pread(SNAPSHOT_HEADER_BYTES, 0))
    finally:
        file.close()


def _size(disk: Disk, path: Path) -> int:
    file = disk.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()


def remove_group(disk: Disk, folder: Path, name: str, now_ns: int = 0) -> bool:
    """Delete a group, which must not be open; return whether there was one. A crash leaves all of it, or nothing."""
    files = group_files(folder, name)
    marker = Snapshot(name, bytes(16), 0, now_ns, GroupState().capture(), removed=True)
    with storage_errors(folder):
        if read_file(disk, files.snapshot) is None and read_file(disk, files.delta) is None:
            return False
        replace_file(disk, files.snapshot, format_snapshot(marker))
        _finish_removal(disk, files)
        return True


def _finish_removal(disk: Disk, files: GroupFiles) -> None:
    remove_if_there(disk, files.delta)
    disk.sync_folder(files.delta.parent)
    remove_if_there(disk, files.snapshot)
    disk.sync_folder(files.snapshot.parent)
