"""The files of one stream beside its journal.

    <folder>/front      the checkpoint: where the log begins, and the configuration there; a stream exists while it does
    <folder>/index      the state at one place of the log; only a shortcut
    <folder>/lost       losses by damage; only if there are some
    <folder>/journal/   the log

Invariants: each file is replaced as a whole; an index that does not fit is ignored. A folder without a checkpoint is
left from an unfinished creation or removal, and is removed before another stream is created there.
"""

import contextlib
from pathlib import Path

from strandline.broker.streams.checkpoint import CHECKPOINT_NAME, StreamCheckpoint, format_checkpoint, parse_checkpoint
from strandline.broker.streams.index_file import INDEX_NAME, Captured, format_snapshot, parse_snapshot
from strandline.broker.streams.losses import LOST_NAME, Losses, format_losses, parse_losses
from strandline.broker.streams.state import State
from strandline.files import TEMP_SUFFIX, Disk, read_file, remove_if_there, replace_file, storage_errors
from strandline.journal.recovery import LOCK_NAME

JOURNAL_FOLDER = "journal"
CONSUMERS_FOLDER = "consumers"
"""The folder of the consumers."""
PROBE_BYTES = 1 << 20
"""Room that a stream needs to be opened and to work for a while."""


class StreamFiles:
    """Reads and writes them."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.folder = folder

    @property
    def journal(self) -> Path:
        """Where the log is."""
        return self.folder / JOURNAL_FOLDER

    def make_folder(self) -> None:
        """Make the folder, if it is not there."""
        with storage_errors(self.folder):
            self._disk.make_folder(self.folder)

    def read_checkpoint(self) -> StreamCheckpoint | None:
        """Return where the stream begins, None if there is no stream."""
        path = self.folder / CHECKPOINT_NAME
        with storage_errors(path):
            data = read_file(self._disk, path)
        return None if data is None else parse_checkpoint(data, str(path))

    def write_checkpoint(self, checkpoint: StreamCheckpoint) -> None:
        """Say where the stream begins."""
        path = self.folder / CHECKPOINT_NAME
        with storage_errors(path):
            replace_file(self._disk, path, format_checkpoint(checkpoint))

    def read_losses(self, identity: bytes) -> Losses | None:
        """Return the known losses; None if there are none."""
        path = self.folder / LOST_NAME
        with storage_errors(path):
            data = read_file(self._disk, path)
        return None if data is None else parse_losses(data, identity)

    def write_losses(self, losses: Losses, identity: bytes) -> None:
        """Write the losses."""
        path = self.folder / LOST_NAME
        with storage_errors(path):
            replace_file(self._disk, path, format_losses(losses, identity))

    def settle(self) -> None:
        """Sync the folder, so that the checkpoint that was read stays: its writer may have crashed before it did."""
        with storage_errors(self.folder):
            self._disk.sync_folder(self.folder)

    def read_index(self, checkpoint: StreamCheckpoint, stop: int) -> tuple[State, int] | None:
        """Return a state and its place, from the checkpoint up to `stop`; None if no index fits."""
        path = self.folder / INDEX_NAME
        with storage_errors(path):
            data = read_file(self._disk, path)
        found = None if data is None else parse_snapshot(data, checkpoint.identity)
        if found is None or found[0].created_ns != checkpoint.created_ns:
            return None
        return found if checkpoint.place <= found[1] <= stop else None

    def write_index(self, captured: Captured, identity: bytes, place: int) -> int:
        """Write the state; everything up to `place` must be on stable storage. Return the size."""
        path = self.folder / INDEX_NAME
        data = format_snapshot(captured, identity, place)
        with storage_errors(path):
            replace_file(self._disk, path, data)
        return len(data)

    def probe(self) -> None:
        """Raise `StorageRefused` unless a little can be written and synced now; nothing is left of it."""
        path = self.folder / (INDEX_NAME + TEMP_SUFFIX)
        with storage_errors(path):
            remove_if_there(self._disk, path)
            try:
                with contextlib.closing(self._disk.open(path, "create")) as file:
                    file.pwritev([bytes(PROBE_BYTES)], 0)
                    file.sync()
            finally:
                remove_if_there(self._disk, path)


def stream_exists(disk: Disk, folder: Path) -> bool:
    """Tell whether a folder has a stream."""
    return CHECKPOINT_NAME in _names(disk, folder)


def remove_stream(disk: Disk, folder: Path) -> None:
    """Remove a closed stream: the checkpoint first, then the rest."""
    with storage_errors(folder):
        remove_if_there(disk, folder / CHECKPOINT_NAME)
        with contextlib.suppress(FileNotFoundError):
            disk.sync_folder(folder)
        _clear(disk, folder)


def remove_leftovers(disk: Disk, folder: Path) -> None:
    """Remove the rest of an unfinished creation or removal; `Locked` while another process creates the stream."""
    with storage_errors(folder):
        if stream_exists(disk, folder):
            return
        lock = disk.lock(folder / JOURNAL_FOLDER / LOCK_NAME) if _names(disk, folder / JOURNAL_FOLDER) else None
        try:
            with contextlib.suppress(FileNotFoundError):
                disk.sync_folder(folder)  # the process that removed the checkpoint may have crashed before it did
            _clear(disk, folder)
        finally:
            if lock is not None:
                lock.release()


def _clear(disk: Disk, folder: Path) -> None:
    """Remove everything of a stream, and nothing else."""
    for part in (JOURNAL_FOLDER, CONSUMERS_FOLDER):
        _remove_folder(disk, folder / part)
    for name in (INDEX_NAME, LOST_NAME, *(name + TEMP_SUFFIX for name in (CHECKPOINT_NAME, INDEX_NAME, LOST_NAME))):
        remove_if_there(disk, folder / name)
    with contextlib.suppress(OSError):
        disk.remove_folder(folder)


def _remove_folder(disk: Disk, folder: Path) -> None:
    for name in _names(disk, folder):
        try:
            remove_if_there(disk, folder / name)
        except IsADirectoryError:
            _remove_folder(disk, folder / name)
    with contextlib.suppress(OSError):
        disk.remove_folder(folder)


def _names(disk: Disk, folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return disk.names(folder)
    return []
