"""A disk that keeps few files open: handles beyond a limit are put away, and opened again when they are used again.

Invariants: at most `open_files_max` files are open, plus those in use at this moment; what was written through a handle
is synced before it is put away, because an error of a later write-back would otherwise go unnoticed; if that sync
fails, every later use of the file fails, and so its owner is poisoned. A file is where its name was moved to, and no
other that came in its place; a file whose last reference goes lets its handle go, too.
"""

import errno
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary, ref

from strandline.files import Buffer, Disk, File, Lock, OpenMode

ROOM = 8
"""How many handles go at once when the operating system has no more, though there are fewer than there may be."""
ROUNDS = 8
"""How many attempts are made before the error is raised."""
T = TypeVar("T")


class HandleDisk:
    """A `Disk` over another, whose files share a bounded number of handles.

    With an executor, which syncs beside it what many have written, opening a file seldom waits for a sync.
    """

    def __init__(self, disk: Disk, open_files_max: int, executor: Executor | None = None) -> None:
        self._disk = disk
        self._open_files_max = open_files_max
        self._executor = executor
        self._names: WeakValueDictionary[Path, _Name] = WeakValueDictionary()
        # Files with a handle, those that were used longest ago first, and apart those that are to be synced.
        self._clean: OrderedDict[ref[_SharedFile], None] = OrderedDict()
        self._dirty: OrderedDict[ref[_SharedFile], None] = OrderedDict()
        self._died: deque[ref[_SharedFile]] = deque()  # filled by the garbage collector, which must wait for no lock
        self._lock = threading.Lock()
        self._syncing = threading.Lock()

    @property
    def open_files(self) -> int:
        """How many files are open."""
        with self._lock:
            return self._count()

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading, for writing (must exist), or create (must not exist)."""
        if mode == "create":
            file = self._with_room(lambda: self._disk.open(path, mode))
            name = self._new_name(path)
        else:
            name = self._name(path)  # before it is opened: if another comes in its place meanwhile, it is gone
            file = self._with_room(lambda: self._disk.open(path, mode))
        shared = _SharedFile(self, name, "read" if mode == "read" else "write", file, self._died.append)
        self.opened(shared)
        return shared

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return self._with_room(lambda: self._disk.names(folder))

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably; existing ones are fine."""
        self._with_room(lambda: self._disk.make_folder(folder))

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder; durable after `sync_folder` of the one that it is in."""
        self._disk.remove_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically; durable after `sync_folder`. It must not be in use."""
        replaced = self._forget_name(target)
        try:
            self._disk.rename(source, target)
        except BaseException:
            self._set_name(replaced, target)
            raise
        self._set_name(self._forget_name(source), target)

    def remove(self, path: Path) -> None:
        """Remove a file; durable after `sync_folder`."""
        self._disk.remove(path)
        self._forget_name(path)

    def sync_folder(self, folder: Path) -> None:
        """Return when created, renamed and removed names in it are on stable storage."""
        self._with_room(lambda: self._disk.sync_folder(folder))

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock that the file at `path` stands for, or raise `Locked` at once."""
        return self._with_room(lambda: self._disk.lock(path))

    def close_idle(self, count: int | None = None) -> int:
        """Close handles that are not in use, all or only so many; return how many were closed."""
        return self._put_away(count)

    # Names.

    def _name(self, path: Path) -> "_Name":
        with self._lock:
            return self._names.setdefault(path, _Name(path))

    def _new_name(self, path: Path) -> "_Name":
        self._forget_name(path)
        return self._name(path)

    def _forget_name(self, path: Path) -> "_Name | None":
        with self._lock:
            name = self._names.pop(path, None)
            if name is not None:
                name.path = None
            return name

    def _set_name(self, name: "_Name | None", path: Path) -> None:
        if name is not None:
            with self._lock:
                name.path = path
                self._names[path] = name

    # Handles.

    def _with_room(self, call: Callable[[], T]) -> T:
        """Call a function that takes a handle; where the process has none left, close some of ours first.

        More than once, for other threads may take the handles that were freed.
        """
        for _ in range(ROUNDS):
            try:
                return call()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self.close_idle(ROOM):
                    raise
        return call()

    def reopen(self, name: "_Name", mode: OpenMode) -> File:
        """Open a real handle again."""
        path = name.path
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._with_room(lambda: self._disk.open(path, mode))

    def opened(self, shared: "_SharedFile") -> None:
        """Count a handle that was just opened; if there are too many, close those used longest ago."""
        with self._lock:
            self._place(shared)
            surplus = self._count() - self._open_files_max
            sync = surplus > 0 and len(self._dirty) > self._open_files_max // 2
        if sync:
            self._sync_soon()
        if surplus > 0:
            self._put_away(surplus, but=shared)

    def used(self, shared: "_SharedFile") -> None:
        """Remember that a handle was just used; it is still in use."""
        with self._lock:
            self._place(shared)

    def closed(self, shared: "_SharedFile") -> None:
        """Forget a handle."""
        with self._lock:
            self._clean.pop(shared.ref, None)
            self._dirty.pop(shared.ref, None)

    def _place(self, shared: "_SharedFile") -> None:
        here, there = (self._dirty, self._clean) if shared.is_dirty else (self._clean, self._dirty)
        if shared.ref in here:
            here.move_to_end(shared.ref)
        else:
            there.pop(shared.ref, None)
            here[shared.ref] = None

    def _count(self) -> int:
        while self._died:
            gone = self._died.popleft()
            self._clean.pop(gone, None)
            self._dirty.pop(gone, None)
        return len(self._clean) + len(self._dirty)

    def _put_away(self, count: int | None, but: "_SharedFile | None" = None) -> int:
        """Close handles that are not in use, first those that need no sync; return how many were closed."""
        with self._lock:
            found = [file for each in chain(self._clean, self._dirty) if (file := each()) is not None]
        went = (1 for file in found if file is not but and file.put_away())
        return sum(islice(went, count))

    # Syncing for others.

    def _sync_soon(self) -> None:
        if self._executor is None or not self._syncing.acquire(blocking=False):
            return
        try:
            self._executor.submit(self._sync_oldest)
        except RuntimeError:  # it was shut down: all of this is about to end
            self._syncing.release()

    def _sync_oldest(self) -> None:
        """Sync the files written longest ago, so that some handles can be closed at once."""
        try:
            with self._lock:
                found = [file for each in self._dirty if (file := each()) is not None]
            for file in found:
                if len(self._dirty) > self._open_files_max // 4:
                    file.sync_for_others()
        finally:
            self._syncing.release()


class _Name:
    """The path of a file, shared by all that have it open; None once it is removed."""

    __slots__ = ("__weakref__", "path")

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path


class _SharedFile:
    """A file whose real handle comes and goes. Safe to use from several threads, none of which waits for another."""

    def __init__(
        self,
        disk: HandleDisk,
        name: _Name,
        mode: OpenMode,
        file: File,
        died: "Callable[[ref[_SharedFile]], None]",
    ) -> None:
        self._disk = disk
        self._name = name
        self._mode = mode
        self._file: File | None = file
        self._users = 0
        self._writes = 0
        """How many writes are over that did not sync themselves."""
        self._synced = 0
        """How many of them are on stable storage."""
        self._failure: OSError | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._syncing = threading.RLock()
        """Of syncs beside each other only one is told of an error, and it must not be the one for others."""
        self.ref = ref(self, died)

    @property
    def is_dirty(self) -> bool:
        """Whether something was written and not synced, as far as known."""
        return self._writes > self._synced and self._failure is None

    @contextmanager
    def _real(self) -> Iterator[File]:
        with self._lock:
            self._refuse_if_unusable()
            is_open = self._file is not None
            self._users += 1  # before others may have to go: who is in use waits for those that are not, never back
            try:
                file = self._file = self._file or self._disk.reopen(self._name, self._mode)
            except BaseException:
                self._users -= 1
                raise
        try:
            if not is_open:
                self._disk.opened(self)
            yield file
        finally:
            self._leave()

    def _leave(self) -> None:
        self._disk.used(self)
        with self._lock:
            self._users -= 1
            if self._closed and not self._users:
                self._let_go()

    def _refuse_if_unusable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._name.path))

    @contextmanager
    def _writing(self) -> Iterator[File]:
        with self._real() as file:
            try:
                yield file
            finally:  # also if it failed: some of it may have been written
                with self._lock:
                    self._writes += 1

    def _let_go(self) -> None:
        file, self._file = self._file, None
        self._disk.closed(self)
        if file is not None:
            file.close()

    def put_away(self) -> bool:
        """Close the real handle unless it is in use; return whether it was closed."""
        if self.is_dirty and not self._users:
            self.sync_for_others()
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._users or self.is_dirty or self._file is None:
                return False
            self._let_go()
            return True
        finally:
            self._lock.release()

    def sync_for_others(self) -> None:
        """Sync what was written; its owner is told of a failure at every later use."""
        with self._syncing:
            try:
                self.sync()
            except OSError as error:
                with self._lock:
                    self._failure = error
                    if self._file is not None:
                        self._disk.used(self)

    def pread(self, count: int, position: int) -> bytes:
        with self._real() as file:
            return file.pread(count, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        if sync:
            with self._syncing, self._real() as file:
                return file.pwritev(buffers, position, sync=True)
        with self._writing() as file:
            return file.pwritev(buffers, position)

    def sync(self) -> None:
        with self._syncing:
            with self._lock:
                self._refuse_if_unusable()
                file, writes = self._file, self._writes
                if file is None:  # it was put away, and synced before that
                    return
                self._users += 1
            try:
                file.sync()
                self._synced = writes
            finally:
                self._leave()

    def truncate(self, size: int) -> None:
        with self._writing() as file:
            file.truncate(size)

    def allocate(self, size: int) -> None:
        with self._writing() as file:
            file.allocate(size)

    def size(self) -> int:
        with self._real() as file:
            return file.size()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._users:
                self._let_go()
