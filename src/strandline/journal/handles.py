"""A disk that keeps few files open: handles beyond a limit are synced, closed, and reopened when they are used again.

Invariants: at most `open_files_max` files are open, plus those in use at this moment; a handle with unsynced writes
is synced before it is closed, because an error of a later write-back would otherwise be told to nobody; if that sync
fails, every later use of the handle fails, and so its owner is poisoned.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from strandline.files import Buffer, Disk, File, Lock, OpenMode


class HandleDisk:
    """A `Disk` over another, whose files share a bounded number of handles."""

    def __init__(self, disk: Disk, open_files_max: int) -> None:
        self._disk = disk
        self._open_files_max = open_files_max
        self._idle: OrderedDict[int, _SharedFile] = OrderedDict()
        self._lock = threading.Lock()
        self.open_files = 0

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading, for writing (must exist), or create (must not exist)."""
        shared = _SharedFile(self, path, "read" if mode == "read" else "write")
        shared.adopt(self._disk.open(path, mode))
        return shared

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return self._disk.names(folder)

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably; existing ones are fine."""
        self._disk.make_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically; durable after `sync_folder`."""
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; durable after `sync_folder`."""
        self._disk.remove(path)

    def sync_folder(self, folder: Path) -> None:
        """Return when created, renamed and removed names in it are on stable storage."""
        self._disk.sync_folder(folder)

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock that the file at `path` stands for, or raise `Locked` at once."""
        return self._disk.lock(path)

    def close_idle(self) -> None:
        """Put every handle away that nobody is using."""
        with self._lock:
            victims = list(self._idle.values())
        for victim in victims:
            victim.put_away()

    def reopen(self, path: Path, mode: OpenMode) -> File:
        """Open a real handle again."""
        return self._disk.open(path, mode)

    def opened(self, shared: "_SharedFile") -> None:
        """Count a handle that was just opened, and let the one that was used longest ago go if there are too many."""
        with self._lock:
            self.open_files += 1
            self._idle[id(shared)] = shared
            surplus = self.open_files - self._open_files_max
            victims = [other for other in self._idle.values() if other is not shared][: max(0, surplus)]
        for victim in victims:
            victim.put_away()

    def used(self, shared: "_SharedFile") -> None:
        """Remember that a handle was just used."""
        with self._lock:
            if id(shared) in self._idle:
                self._idle.move_to_end(id(shared))

    def closed(self, shared: "_SharedFile") -> None:
        """Forget a handle."""
        with self._lock:
            if self._idle.pop(id(shared), None) is not None:
                self.open_files -= 1


class _SharedFile:
    """A file whose real handle comes and goes."""

    def __init__(self, disk: HandleDisk, path: Path, mode: OpenMode) -> None:
        self._disk = disk
        self._path = path
        self._mode = mode
        self._file: File | None = None
        self._failure: OSError | None = None
        self._dirty = False
        self._closed = False
        self._lock = threading.RLock()

    def adopt(self, file: File) -> None:
        self._file = file
        self._disk.opened(self)

    @contextmanager
    def _real(self) -> Iterator[File]:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
            if self._file is None:
                self.adopt(self._disk.reopen(self._path, self._mode))
            else:
                self._disk.used(self)
            if self._file is None:
                raise AssertionError("a handle was put away while in use")
            yield self._file

    def put_away(self) -> None:
        """Close the real handle if nobody is using it now."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._file is None:
                return
            try:
                if self._dirty:
                    self._file.sync()
                    self._dirty = False
            except OSError as error:
                self._failure = error
            self._file.close()
            self._file = None
            self._disk.closed(self)
        finally:
            self._lock.release()

    def pread(self, count: int, position: int) -> bytes:
        with self._real() as file:
            return file.pread(count, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        with self._real() as file:
            self._dirty = self._dirty or not sync
            return file.pwritev(buffers, position, sync=sync)

    def sync(self) -> None:
        with self._real() as file:
            file.sync()
            self._dirty = False

    def truncate(self, size: int) -> None:
        with self._real() as file:
            self._dirty = True
            file.truncate(size)

    def allocate(self, size: int) -> None:
        with self._real() as file:
            self._dirty = True
            file.allocate(size)

    def size(self) -> int:
        with self._real() as file:
            return file.size()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
                self._disk.closed(self)

    def __del__(self) -> None:
        self.close()
