"""Durable file operations, in one place: the disk as a seam, atomic replacement, and the writer's lock.

Invariants: `replace_file` leaves either the old or the new content, whole, whatever happens; `File.pwritev` writes
everything or raises; nothing here retries a failed write or fsync (on Linux the dirty pages may be gone), so after
an `OSError` from one the caller must not trust the file until it was read again.

`Disk` is what the stores are written against. `OsDisk` is the real one; `strandline.sim.SimDisk` is its twin with
lost, torn and reordered writes.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

from strandline.errors import Locked, StorageRefused, StrandlineError

Buffer = bytes | bytearray | memoryview
OpenMode = Literal["read", "write", "create"]

IOV_MAX = 1024
TEMP_SUFFIX = ".tmp"


class File(Protocol):
    """An open file, addressed by position. Every method raises `OSError` as the operating system does."""

    def pread(self, count: int, position: int) -> bytes:
        """Return up to `count` bytes; fewer only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        """Write all buffers one after another from `position`; return how many bytes that was.

        With `sync`, these bytes (not others written before) are on stable storage when it returns.
        """
        ...

    def sync(self) -> None:
        """Return when what was written, and the size, are on stable storage."""
        ...

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros, to `size`."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve space so that the file can grow to `size`; the size itself becomes `size`, read as zeros."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def close(self) -> None:
        """Close; later calls fail."""
        ...


class Lock(Protocol):
    """A lock held on a folder until it is released, or its process ends."""

    def release(self) -> None:
        """Let it go; releasing twice is harmless."""
        ...


class Disk(Protocol):
    """Folders and files. A missing file or folder is `FileNotFoundError`."""

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading, for writing (must exist), or create (must not exist)."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably; existing ones are fine."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder; durable after `sync_folder` of the one that it is in."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically; durable after `sync_folder`."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; durable after `sync_folder`."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Return when created, renamed and removed names in it are on stable storage."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock that the file at `path` stands for, or raise `Locked` at once."""
        ...


def pwritev_all(fd: int, buffers: Sequence[Buffer], position: int, flags: int = 0) -> int:
    """Write all buffers one after another from `position`; return how many bytes that was."""
    total = sum(map(len, buffers))
    if len(buffers) <= IOV_MAX:
        written = os.pwritev(fd, buffers, position, flags)
        if written == total:
            return total
    else:
        written = 0
    rest = memoryview(b"".join(buffers))
    while written < total:
        written += os.pwritev(fd, [rest[written:]], position + written, flags)
    return total


class OsFile:
    """A file of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def pread(self, count: int, position: int) -> bytes:
        """Return up to `count` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]
        missing = count - len(data)
        while missing and (data := os.pread(self._fd, missing, position + count - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        """Write all buffers one after another from `position`; return how many bytes that was.

        With `sync`, these bytes (not others written before) are on stable storage when it returns.
        """
        # One system call, so the interpreter's lock is given up once, not twice.
        return pwritev_all(self._fd, buffers, position, os.RWF_DSYNC if sync else 0)

    def sync(self) -> None:
        """Return when what was written, and the size, are on stable storage."""
        if self._fd < 0:  # which `os.fdatasync` calls a ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros, to `size`."""
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        """Reserve space so that the file can grow to `size`; the size itself becomes `size`, read as zeros."""
        os.posix_fallocate(self._fd, 0, size)

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close; later calls fail."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Close with the last reference: a cache may drop a handle while another thread still reads from it."""
        self.close()


class OsLock:
    """An advisory `flock`, which the operating system drops with the process.

    A forked child has the descriptor too, if only until it becomes another program; it keeps no lock that its parent
    released, and releases none that its parent holds.
    """

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._owner = os.getpid()

    def release(self) -> None:
        """Let it go; releasing twice is harmless."""
        if self._fd >= 0:
            if os.getpid() == self._owner:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1


def release_flock(descriptor: int) -> None:
    """Release the lock of an open file and close it: a close alone leaves it to children that are being started."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


_FLAGS: dict[OpenMode, int] = {
    "read": os.O_RDONLY,
    "write": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


def open_descriptor(path: Path, mode: OpenMode) -> int:
    """Open a file of the operating system; return its descriptor."""
    return os.open(path, _FLAGS[mode] | os.O_CLOEXEC, 0o644)


class OsDisk:
    """The real disk."""

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading, for writing (must exist), or create (must not exist)."""
        return OsFile(open_descriptor(path, mode))

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(folder))

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably; existing ones are fine."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        self.sync_folder(folder.parent)

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder; durable after `sync_folder` of the one that it is in."""
        os.rmdir(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target`, atomically; durable after `sync_folder`."""
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; durable after `sync_folder`."""
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        """Return when created, renamed and removed names in it are on stable storage."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock that the file at `path` stands for, or raise `Locked` at once."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Locked(str(path.parent)) from error
            raise
        return OsLock(descriptor)


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Make `content` the content of `path`: temp, fsync, rename, fsync the folder. Old or new, never between."""
    temporary = path.with_name(path.name + TEMP_SUFFIX)
    remove_if_there(disk, temporary)
    file = disk.open(temporary, "create")
    try:
        file.pwritev([content], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)


def read_file(disk: Disk, path: Path) -> bytes | None:
    """Return the whole content, or None where there is no such file."""
    try:
        file = disk.open(path, "read")
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def remove_if_there(disk: Disk, path: Path) -> None:
    """Remove a file; a missing one is fine."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(path)


_HINTS = {
    errno.ENOSPC: "free some space, then try again; nothing acknowledged is lost",
    errno.EDQUOT: "raise the quota, then try again; nothing acknowledged is lost",
    errno.EROFS: "the file system is read-only: mount it writable, or open a reader",
    errno.EACCES: "check who owns the folder and its permissions, or open a reader",
    errno.EPERM: "check who owns the folder and its permissions, or open a reader",
    errno.ENOTDIR: "the path, or a part of it, is a file; give a folder",
    errno.EMFILE: "too many open files: raise `ulimit -n`, or lower `open_files_max`",
    errno.EIO: "the device reported an error: check it before trusting it again",
}


def storage_error(path: Path, error: OSError) -> StorageRefused:
    """Return the typed form of what the operating system said."""
    code = errno.errorcode.get(error.errno or 0, "unknown")
    return StorageRefused(str(path), error.strerror or str(error), code, hint=_HINTS.get(error.errno or 0))


def storage_hint(error: BaseException) -> str | None:
    """Return what to do about an error of storage, where there is something to say."""
    if isinstance(error, StrandlineError):
        return error.hint
    return _HINTS.get(error.errno or 0) if isinstance(error, OSError) else None


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into `StorageRefused`."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error
