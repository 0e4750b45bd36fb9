"""A disk in memory that loses data like a real one: lost, torn and reordered writes, lost renames, injected errors.

Programs always see the newest state. A random generator decides the state after a crash, over the operations since
the last sync: each write survives whole, in some of its sectors, or not at all, independently of the others; each
change of a name survives or not, in order. A sync makes the file's content, or the folder's names, certain.

Invariants: synced content and synced names survive every crash; after a crash the visible state is the stable one; file
handles and locks from before a crash are dead.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from strandline.errors import Locked
from strandline.files import Buffer, File, Lock, OpenMode

SECTOR_BYTES = 512
SURVIVES = 0.5
WHOLE, TORN = 0.4, 0.8
"""A write below the first is whole, below the second torn, else lost."""


@dataclass(slots=True)
class _Write:
    position: int
    data: bytes
    certain: bool = False


@dataclass(slots=True)
class _Resize:
    size: int


@dataclass(slots=True)
class _Inode:
    """A file's content, visible and stable, and the writes between the two."""

    seen: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    unsynced: list[_Write | _Resize] = field(default_factory=list)


@dataclass(slots=True)
class _NameChange:
    """In one folder: `name` now stands for `inode` (None: it is gone); a rename also takes `source` away."""

    name: str
    inode: _Inode | None
    source: str | None = None


@dataclass(slots=True)
class _Folder:
    seen: dict[str, _Inode] = field(default_factory=dict)
    stable: dict[str, _Inode] = field(default_factory=dict)
    unsynced: list[_NameChange] = field(default_factory=list)


@dataclass(slots=True)
class Fault:
    """Makes the `countdown`-th matching operation fail with `code`; `operations` are names such as "sync"."""

    operations: frozenset[str]
    countdown: int
    code: int = errno.EIO
    sticky: bool = False


class SimDisk:
    """A `Disk` in memory."""

    def __init__(self) -> None:
        self._folders: dict[Path, _Folder] = {}
        self._locks: set[Path] = set()
        self._life = 0
        self.fault: Fault | None = None
        self.operations = 0

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading, for writing (must exist), or create (must not exist)."""
        names = self._folder(path.parent).seen
        if mode == "create":
            self.step("create")
            if path.name in names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            self._change(path.parent, _NameChange(path.name, _Inode()))
        elif path.name not in names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return _SimFile(self, names[path.name], self._life, writable=mode != "read")

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(self._folder(folder).seen)

    def make_folder(self, folder: Path) -> None:
        """Create a folder; folders are durable at once here."""
        self._folders.setdefault(folder, _Folder())

    def remove_folder(self, folder: Path) -> None:
        """Refuse to remove a folder that is not empty; an empty one stays, as if a crash had brought it back."""
        if self.names(folder):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically within one folder; durable after `sync_folder`."""
        self.step("rename")
        folder = self._folder(source.parent)
        if source.name not in folder.seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        if source.parent != target.parent:
            self._move_across(source, target)
            return
        self._change(source.parent, _NameChange(target.name, folder.seen[source.name], source.name))

    def remove(self, path: Path) -> None:
        """Remove a file; durable after `sync_folder`."""
        self.step("remove")
        if path.name not in self._folder(path.parent).seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._change(path.parent, _NameChange(path.name, None))

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder certain."""
        self.step("sync_folder")
        known = self._folder(folder)
        known.stable = dict(known.seen)
        known.unsynced.clear()

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock of the file at `path`, or raise `Locked` at once."""
        if path in self._locks:
            raise Locked(str(path.parent))
        self._locks.add(path)
        return _SimLock(self, path, self._life)

    def crash(self, random: Random) -> None:
        """Lose power: decide which writes survive, and make that the visible state."""
        self._life += 1
        self._locks.clear()
        self.fault = None
        inodes = {id(inode): inode for folder in self._folders.values() for inode in _all_inodes(folder)}
        for inode in inodes.values():
            _crash_content(inode, random)
        for folder in self._folders.values():
            _crash_names(folder, random)

    def kill(self) -> None:
        """End the process, not the machine: handles and locks are dead, and all writes stay visible."""
        self._life += 1
        self._locks.clear()
        self.fault = None

    def step(self, operation: str) -> None:
        """Count an operation that changes the disk, and fail it if a fault says so."""
        self.operations += 1
        fault = self.fault
        if fault is None or operation not in fault.operations:
            return
        fault.countdown -= 1
        if fault.countdown == 0 or (fault.sticky and fault.countdown < 0):
            raise OSError(fault.code, os.strerror(fault.code))

    def alive(self, life: int) -> bool:
        """Whether a handle from `life` is still valid."""
        return life == self._life

    def unlock(self, path: Path) -> None:
        """Release a lock."""
        self._locks.discard(path)

    def _folder(self, folder: Path) -> _Folder:
        try:
            return self._folders[folder]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder)) from None

    def _change(self, folder: Path, change: _NameChange) -> None:
        known = self._folder(folder)
        _apply(known.seen, change)
        known.unsynced.append(change)

    def _move_across(self, source: Path, target: Path) -> None:
        inode = self._folder(source.parent).seen[source.name]
        self._change(target.parent, _NameChange(target.name, inode))
        self._change(source.parent, _NameChange(source.name, None))


def _apply(names: dict[str, _Inode], change: _NameChange) -> None:
    if change.source is not None:
        names.pop(change.source, None)
    if change.inode is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.inode


def _all_inodes(folder: _Folder) -> list[_Inode]:
    changed = [change.inode for change in folder.unsynced if change.inode is not None]
    return [*folder.seen.values(), *folder.stable.values(), *changed]


def _crash_names(folder: _Folder, random: Random) -> None:
    for change in folder.unsynced:
        if random.random() < SURVIVES:
            _apply(folder.stable, change)
    folder.unsynced.clear()
    folder.seen = dict(folder.stable)


def _crash_content(inode: _Inode, random: Random) -> None:
    for change in inode.unsynced:
        fate = random.random()
        if isinstance(change, _Resize):
            if fate < SURVIVES:
                _resize(inode.stable, change.size)
        elif change.certain or fate < WHOLE:
            _write(inode.stable, change.position, change.data)
        elif fate < TORN:
            _write_torn(inode.stable, change, random)
    inode.unsynced.clear()
    inode.seen = bytearray(inode.stable)


def _write_torn(content: bytearray, change: _Write, random: Random) -> None:
    """Let some sectors through; or a prefix, cut anywhere."""
    if random.random() < SURVIVES:
        _write(content, change.position, change.data[: random.randrange(len(change.data) + 1)])
        return
    begin = change.position
    end = change.position + len(change.data)
    while begin < end:
        stop = min(end, begin - begin % SECTOR_BYTES + SECTOR_BYTES)
        if random.random() < SURVIVES:
            _write(content, begin, change.data[begin - change.position : stop - change.position])
        begin = stop


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _write(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


class _SimFile:
    """A handle; dead after a crash."""

    def __init__(self, disk: SimDisk, inode: _Inode, life: int, *, writable: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._life = life
        self._writable = writable
        self._open = True

    def _use(self, *, write: bool) -> _Inode:
        if not self._open or not self._disk.alive(self._life) or (write and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._inode

    def pread(self, count: int, position: int) -> bytes:
        self._disk.step("pread")
        return bytes(self._use(write=False).seen[position : position + count])

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        inode = self._use(write=True)
        data = b"".join(buffers)
        try:
            self._disk.step("pwritev")
        except OSError:
            # A failed write may have written a part.
            self._record(inode, _Write(position, data[: len(data) // 2]))
            raise
        write = _Write(position, data)
        self._record(inode, write)
        if sync and data:
            try:
                self._disk.step("sync")
            except OSError:
                inode.unsynced.pop()  # visible, and never on the disk
                raise
            write.certain = True
        return len(data)

    def _record(self, inode: _Inode, change: _Write) -> None:
        if change.data:
            _write(inode.seen, change.position, change.data)
            inode.unsynced.append(change)

    def sync(self) -> None:
        inode = self._use(write=False)
        try:
            self._disk.step("sync")
        except OSError:
            # As on Linux: the pages count as clean now, so no later sync brings them to the disk.
            inode.unsynced = [change for change in inode.unsynced if isinstance(change, _Write) and change.certain]
            raise
        for change in inode.unsynced:
            if isinstance(change, _Write):
                _write(inode.stable, change.position, change.data)
            else:
                _resize(inode.stable, change.size)
        inode.unsynced.clear()

    def truncate(self, size: int) -> None:
        inode = self._use(write=True)
        self._disk.step("truncate")
        _resize(inode.seen, size)
        inode.unsynced.append(_Resize(size))

    def allocate(self, size: int) -> None:
        if size > self.size():
            self.truncate(size)

    def size(self) -> int:
        return len(self._use(write=False).seen)

    def close(self) -> None:
        self._open = False


class _SimLock:
    def __init__(self, disk: SimDisk, path: Path, life: int) -> None:
        self._disk = disk
        self._path = path
        self._life = life
        self._held = True

    def release(self) -> None:
        if self._held and self._disk.alive(self._life):
            self._disk.unlock(self._path)
        self._held = False
