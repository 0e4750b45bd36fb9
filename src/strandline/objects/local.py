"""A folder as an object store: one file for each object, true compare-and-swap, and fsync before a write returns.

    <folder>/<key>                                  the object's bytes, nothing else
    <folder>/.strandline/locks/<00 to 0f>           one of them is held while objects whose keys hash to it change
    <folder>/.strandline/temporary/<nonce>          an object that is being written
    <folder>/.strandline/metadata/<key>/<ETag>      the writer's own names and values, as JSON, where there are any

Invariants: a body is written and synced, with its time, before the lock is taken; under the lock the condition is
checked, the file renamed and its folder synced. So an object is there whole or not at all, and of many processes that
expect the same object one succeeds. The ETag is the file's inode, modification time and size; the time is set by the
writer, in nanoseconds and above that of the file it replaces, so that no two writes of a key share one. A lock goes
with its process; a process that is stopped while it holds one makes others say `StoreUnavailable` after a while.

A reader takes no lock. It may see a write that is about to be acknowledged. Symbolic links, special files and files
whose names are no keys are no objects.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from io import BufferedReader, FileIO
from pathlib import Path
from zlib import crc32

from strandline.errors import Closed
from strandline.files import OsDisk, release_flock, storage_error
from strandline.objects.contracts import (
    Buffer,
    Folder,
    Object,
    ObjectInfo,
    check_range,
    check_write,
    in_one_folder,
)
from strandline.objects.errors import InvalidObjectKey, ObjectConflict, StoreUnavailable, WriteUnknown
from strandline.objects.keys import RESERVED_NAME, is_key, validate_key, validate_prefix

RENAME_ATTEMPTS = 8
LOCKS = 16
LOCK_WAIT_S = 30.0
TEMPORARY_AGE_S = 86_400.0
_POLL_S = 0.002
_DISK = OsDisk()
_NS_PER_S = 1_000_000_000


class LocalObjects:
    """Objects as files below a folder, shared by any number of threads and processes of one machine."""

    def __init__(self, folder: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.address = folder.absolute().as_uri()
        self._folder = folder.absolute()
        self._own = self._folder / RESERVED_NAME
        self._lock_wait_s = lock_wait_s
        self._closed = False
        try:
            for name in ("locks", "temporary", "metadata"):
                _DISK.make_folder(self._own / name)
            self._remove_old_temporaries()
        except OSError as error:
            raise storage_error(self._folder, error) from error

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        check_range(start, stop)
        with self._reading(key) as found:
            if found is None:
                return None
            file, info = found
            file.seek(start)
            return Object(info, file.read() if stop is None else file.read(stop - start))

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        with self._reading(key) as found:
            return found[1] if found else None

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only where there is none, or only over the one with this ETag."""
        check_write(if_absent, if_match, metadata)
        return self._write(key, (body,), metadata, if_absent=if_absent, if_match=if_match)

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come; it appears when the last one is there."""
        check_write(if_absent=False, if_match=None, metadata=metadata)
        return self._write(key, parts, metadata)

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        path = self._path(key)
        with self._changing(key), self._storage_errors(key):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return
            _DISK.sync_folder(path.parent)
            self._remove_metadata(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys greater than `start_after`, in the order of their keys."""
        validate_prefix(prefix)
        self._check_open()
        return in_one_folder(self._listed(prefix, start_after), prefix, start_after)

    @property
    def sorts_bytes(self) -> bool:
        """Return that a folder sorts with its "/"; yet each listing behind a key would walk the tree anew."""
        return False

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys behind one, in the order of bytes."""
        self._check_open()
        return self._listed(prefix, start_after)

    def list_folder(self, prefix: str) -> Folder:
        """Return what is directly below a prefix."""
        self._check_open()
        keys = [prefix + name for name in _names(self._folder, prefix)]
        found = ((key, _status(self._folder / key)) for key in keys if not key.endswith("/"))
        objects = [_listed_info(key, status) for key, status in found if status is not None]
        return Folder(objects, [key for key in keys if key.endswith("/")])

    def close(self) -> None:
        """Refuse later calls."""
        self._closed = True

    # Reading

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[tuple[BufferedReader, ObjectInfo] | None]:
        path = self._path(key)
        with self._storage_errors(key):
            while _status(path) is not None:
                try:
                    file = path.open("rb")
                except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    break
                with file:
                    info = self._info(key, os.fstat(file.fileno()))
                    if info is not None:
                        yield file, info
                        return
            yield None

    def _info(self, key: str, status: os.stat_result) -> ObjectInfo | None:
        """Return what is known of a file; None where it was replaced, and its metadata removed, meanwhile."""
        info = _listed_info(key, status)
        try:
            metadata = json.loads(self._metadata_path(key, info.etag).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            now = _status(self._folder / key)
            return info if now is not None and _listed_info(key, now).etag == info.etag else None
        return replace(info, metadata=metadata)

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Walk the folders; in each, names and the folders below it are sorted together."""
        left = [prefix]
        while left:
            key = left.pop()
            if not key or key.endswith("/"):
                left.extend(key + name for name in reversed(_names(self._folder, key)))
            elif key > start_after and (status := _status(self._folder / key)) is not None:
                yield _listed_info(key, status)

    # Writing

    def _write(
        self,
        key: str,
        parts: Iterable[Buffer],
        metadata: Mapping[str, str] | None,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> str:
        path = self._path(key)
        temporary = self._own / "temporary" / uuid.uuid4().hex
        with contextlib.ExitStack() as stack:
            with self._storage_errors(key):
                file = stack.enter_context(temporary.open("xb", buffering=0))
                stack.callback(temporary.unlink, missing_ok=True)
            for part in parts:  # which may raise what it likes
                with self._storage_errors(key):
                    _write_all(file, part)
            with self._storage_errors(key):
                modified_ns = _sync_as_after(file, _status(path))
            with self._changing(key), self._storage_errors(key):
                current = _status(path)
                _check(key, current, if_absent=if_absent, if_match=if_match)
                if current is not None and current.st_mtime_ns >= modified_ns:  # written meanwhile
                    _sync_as_after(file, current)
                info = replace(_listed_info(key, os.fstat(file.fileno())), metadata=dict(metadata or {}))
                self._write_metadata(info)
                self._rename(key, temporary, path)
                self._remove_metadata(key, but=info.etag)
            return info.etag

    def _rename(self, key: str, temporary: Path, path: Path) -> None:
        for _ in range(RENAME_ATTEMPTS):
            try:
                _DISK.make_folder(path.parent)
                temporary.rename(path)
                break
            except FileNotFoundError:
                continue  # another writer removed the folder, which was empty
            except (IsADirectoryError, NotADirectoryError, FileExistsError):
                if not _remove_empty_folders(path):
                    problem = "an object has the name of one of its folders, or it has the name of a folder"
                    raise InvalidObjectKey(key, problem) from None
        else:
            raise StoreUnavailable(self.address, f"the folder of {key!r} was removed again and again")
        try:
            _DISK.sync_folder(path.parent)
        except OSError as error:
            raise WriteUnknown(key, f"its folder could not be synced: {error.strerror}") from error

    @contextlib.contextmanager
    def _changing(self, key: str) -> Iterator[None]:
        """Hold the lock of a key. It is asked for again and again, so that a stopped holder does not stop others."""
        self._check_open()
        with self._storage_errors(key):
            name = f"{crc32(key.encode()) % LOCKS:02x}"
            descriptor = os.open(self._own / "locks" / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        give_up = time.monotonic() + self._lock_wait_s
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                        raise storage_error(self._folder, error) from error
                if time.monotonic() > give_up:
                    raise StoreUnavailable(self.address, f"another process has held the lock for {self._lock_wait_s} s")
                time.sleep(_POLL_S)
            yield
        finally:
            release_flock(descriptor)

    # Metadata, and the store's own files

    def _metadata_path(self, key: str, etag: str) -> Path:
        return self._own / "metadata" / key / etag

    def _write_metadata(self, info: ObjectInfo) -> None:
        """Store the metadata under the ETag that its object is about to have."""
        if not info.metadata:
            return
        path = self._metadata_path(info.key, info.etag)
        _DISK.make_folder(path.parent)
        with path.open("xb", buffering=0) as file:
            _write_all(file, json.dumps(dict(info.metadata)).encode())
            os.fsync(file.fileno())
        _DISK.sync_folder(path.parent)

    def _remove_metadata(self, key: str, *, but: str = "") -> None:
        """Remove what older versions of an object left; a folder stays, for others may be writing into it."""
        folder = self._metadata_path(key, "")
        with contextlib.suppress(OSError):  # the object was written or removed; what stays here belongs to none
            for path in folder.iterdir():
                if path.is_file() and path.name != but:
                    path.unlink()

    def _remove_old_temporaries(self) -> None:
        """Remove what killed processes left; what is younger may belong to a writer at work."""
        oldest = time.time() - TEMPORARY_AGE_S
        for path in (self._own / "temporary").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _path(self, key: str) -> Path:
        validate_key(key)
        self._check_open()
        return self._folder / key

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self.address)

    @contextlib.contextmanager
    def _storage_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(self._folder / key, error) from error


def _sync_as_after(file: FileIO, current: os.stat_result | None) -> int:
    """Make a file durable with a modification time above that of the one that it replaces, and return the time."""
    modified_ns = max(time.time_ns(), current.st_mtime_ns + 1 if current else 0)
    os.utime(file.fileno(), ns=(modified_ns, modified_ns))
    os.fsync(file.fileno())
    return modified_ns


def _listed_info(key: str, status: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(status.st_mtime_ns / _NS_PER_S, UTC)
    return ObjectInfo(key, status.st_size, f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}", modified)


def _names(root: Path, prefix: str) -> list[str]:
    """Return the names of objects, and of folders with "/" behind them, sorted."""
    try:
        with os.scandir(root / prefix) as entries:
            names = [
                entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
                if is_key(prefix + entry.name)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise storage_error(root / prefix, error) from error
    return sorted(names)


def _remove_empty_folders(path: Path) -> bool:
    """Remove a folder that holds nothing but empty folders; return whether it is gone."""
    if path.is_symlink() or not path.is_dir():
        return False
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(path, topdown=False):
            Path(folder).rmdir()
    return not path.exists()


def _status(path: Path) -> os.stat_result | None:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _check(key: str, current: os.stat_result | None, *, if_absent: bool, if_match: str | None) -> None:
    if if_absent and current is not None:
        raise ObjectConflict(key, "it exists already")
    if if_match is None:
        return
    if current is None:
        raise ObjectConflict(key, "it is missing")
    if _listed_info(key, current).etag != if_match:
        raise ObjectConflict(key, "it was written by another")


def _write_all(file: FileIO, data: Buffer) -> None:
    left = memoryview(data).cast("B")
    while left:
        left = left[file.write(left) :]
