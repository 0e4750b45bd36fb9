"""A fold in memory and in one file that is only appended to: the default store.

Invariants: a batch is one write, its cursor last, so that whatever part of it a crash leaves, the cursor is not ahead.
The file is replaced (compaction) only by one that says the same and is on stable storage. A tail that a crash tore is
never written on: the file is replaced first. After a failed write or compaction nothing more is taken.

What can be read need not be on the disk: after a failed fsync the system counts pages as clean that never got there,
and a process that was killed may have left them so. Only a proper close says otherwise, with a file beside the log, and
an index for what it covers; without them, a `SYNCED` store writes back what it read before anything is put behind it.
"""

import contextlib
import threading
from pathlib import Path
from typing import NamedTuple, Self

from strandline.errors import Closed, CommitFailed, Damaged, Poisoned
from strandline.files import (
    TEMP_SUFFIX,
    Disk,
    File,
    Lock,
    OsDisk,
    read_file,
    remove_if_there,
    replace_file,
    storage_errors,
    storage_hint,
)
from strandline.fold.batches import FoldBatch, check_cursor, cursor_or
from strandline.fold.log_format import HEADER, VERSION, format_batch
from strandline.fold.log_index import format_index, parse_index
from strandline.fold.log_scan import NOTHING, Known, LogScan, scan_log
from strandline.fold.log_snapshot import LogSnapshot
from strandline.fold.paths import LOCK_SUFFIX, existing
from strandline.fold.resident import ResidentFold, ResidentReader
from strandline.fold.store import Held, StoreFiles, Verified
from strandline.journal import SYNCED, Durability
from strandline.kv import WatchCursor

COMPACT_BYTES = 10 * 1024 * 1024
INDEX_BYTES_MIN = 1024 * 1024
"""A smaller log is read as fast without an index."""
CLEAN_SUFFIX = ".clean"
INDEX_SUFFIX = ".index"


class AppendLogReader(ResidentReader):
    """A `FoldReader` of a log that another process may be writing to; opened with `open_read_only`.

    It sees the last moment between two batches that the log told when it was opened: that of its last cursor, or of its
    last proper close or compaction.
    """

    def __init__(self, path: Path, fold: ResidentFold) -> None:
        self._path = path
        self._fold: ResidentFold | None = fold

    @staticmethod
    def open_read_only(path: Path | str, *, disk: Disk | None = None) -> "AppendLogReader":
        """Open the fold at `path` without its lock, and change nothing; `StorageRefused` if there is none."""
        path = existing(path) if disk is None else Path(path)
        disk = disk or OsDisk()
        with storage_errors(path):
            data, known = _read_with_index(disk, path)
        found = scan_log(str(path), data, known)
        _raise_damage(path, found)
        return AppendLogReader(path, ResidentFold.of(data, found.between_batches()))

    def close(self) -> None:
        """Forget what was read; twice is harmless."""
        self._fold = None

    def _open(self) -> ResidentFold:
        if self._fold is None:
            raise Closed(str(self._path))
        return self._fold


class AppendLogStore(ResidentReader):
    """A `SnapshotStore` in one file, opened with `open`; answers come from memory."""

    def __init__(self, path: Path, disk: Disk, lock: Lock, sync: Durability, compact_bytes: int) -> None:
        self._path = path
        self._disk = disk
        self._held_lock = lock
        self._sync = sync
        self._compact_bytes = compact_bytes
        self._applying = threading.Lock()
        self._failure: str | None = None
        self._file: File | None = None
        self._in_doubt = False
        self._indexed = 0
        """How much of the log the index beside it covers; 0 where there is none."""
        try:
            self._fold = self._read()
        except BaseException:
            self._let_go()
            raise
        self._compact_at = compact_bytes

    open_read_only = staticmethod(AppendLogReader.open_read_only)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        sync: Durability = SYNCED,
        compact_bytes: int = COMPACT_BYTES,
        disk: Disk | None = None,
    ) -> Self:
        """Open the log at `path`, or begin one; `Damaged` if it is not whole, which `repair_append_log` mends.

        It is compacted when `compact_bytes` were appended and no more than half of it still counts.
        """
        path, disk = Path(path), disk or OsDisk()
        with storage_errors(path):
            disk.make_folder(path.parent)
            lock = disk.lock(path.with_name(path.name + LOCK_SUFFIX))
            try:
                return cls(path, disk, lock, sync, compact_bytes)
            except BaseException:
                lock.release()
                raise

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Append a batch and the cursor after it with one write."""
        check_cursor(cursor)
        written = format_batch(batch, cursor_or(cursor, self._open().cursor))  # it tells readers where the batch ends
        with self._applying:
            fold, file = self._writable()
            try:
                file.pwritev(written.parts, fold.size, sync=self._sync is SYNCED)
            except OSError as error:
                raise self._poisoned(error) from error
            fold.apply(batch, cursor, written)
            if fold.size >= self._compact_at and fold.is_half_dead():
                self._try_to_compact(fold)

    def files(self) -> StoreFiles:
        """Return what keeps the fold, and where."""
        return StoreFiles("append-log", VERSION, (self._path,))

    def snapshot(self, beside: Path) -> LogSnapshot:  # noqa: ARG002 - memory keeps the moment
        """Return this moment; its copy is a compacted log."""
        return self._open().snapshot()

    def settle(self) -> None:
        """Compact, unless the file is as small as it can be."""
        with self._applying:
            fold, _ = self._writable()
            self._try_to_compact(fold)
            if self._failure is not None:
                raise Poisoned(str(self._path), self._failure)

    def verify(self) -> Verified:
        """Read the file again: it must say exactly what is in memory."""
        with self._applying, storage_errors(self._path):
            fold = self._open()
            data = read_file(self._disk, self._path) or b""
            if self._failure is None and fold.is_same(data):
                return fold.verified()
            found = scan_log(str(self._path), data)
            _raise_damage(self._path, found)
            if self._failure is None:
                safe = "close it and open it again: that goes by the file"
                raise Damaged(str(self._path), "the file does not say what was written to it", safe=safe)
            return ResidentFold.of(data, found).verified()

    def close(self) -> None:
        """Close the file and release the lock; twice is harmless."""
        with self._applying:
            if self._file is not None:
                file, self._file = self._file, None
                try:
                    with storage_errors(self._path):
                        self._mark_clean(file)
                finally:
                    file.close()
                    self._held_lock.release()

    def _read(self) -> ResidentFold:
        """Read the file, and leave one that can be appended to."""
        remove_if_there(self._disk, _beside(self._path, TEMP_SUFFIX))
        data, known = _read_with_index(self._disk, self._path)
        found = scan_log(str(self._path), data, known)
        _raise_damage(self._path, found)
        fold = ResidentFold.of(data, found)
        was_clean = self._was_clean(len(data))
        if found.end < len(data) or not data.startswith(HEADER):  # torn, new, or of an older version
            return self._rewrite(fold)
        self._file = self._disk.open(self._path, "write")
        self._indexed = 0 if known is NOTHING else known.end
        self._in_doubt = not was_clean
        if self._in_doubt and self._sync is SYNCED:
            self._file.pwritev([memoryview(data)[known.end :]], known.end)
            self._file.sync()
            self._disk.sync_folder(self._path.parent)
            self._in_doubt = False
        return fold

    def _was_clean(self, size: int) -> bool:
        """Whether the log was closed properly at this size; that is forgotten, durably, before anything is written."""
        mark = read_file(self._disk, _beside(self._path, CLEAN_SUFFIX))
        if mark is not None:
            self._disk.remove(_beside(self._path, CLEAN_SUFFIX))
            self._disk.sync_folder(self._path.parent)
        return mark == format_mark(size)

    def _mark_clean(self, file: File) -> None:
        if self._failure is None and not self._in_doubt:
            file.sync()
            if not self._indexed or self._fold.size - self._indexed >= INDEX_BYTES_MIN:
                self._write_index(self._fold)  # what follows an older one is read as fast without
            replace_file(self._disk, _beside(self._path, CLEAN_SUFFIX), format_mark(self._fold.size))

    def _write_index(self, fold: ResidentFold) -> None:
        """Leave an index of a log that is on stable storage; a log without one is only slower to open."""
        self._indexed = 0
        if fold.size < INDEX_BYTES_MIN:
            return
        temporary = _beside(self._path, INDEX_SUFFIX + TEMP_SUFFIX)
        with contextlib.suppress(OSError):
            remove_if_there(self._disk, temporary)
            file = self._disk.open(temporary, "create")
            try:
                file.pwritev([format_index(fold.parts(), fold.rows(), fold.cursor)], 0)
            finally:
                file.close()
            self._disk.rename(temporary, _beside(self._path, INDEX_SUFFIX))
            self._indexed = fold.size

    def _try_to_compact(self, fold: ResidentFold) -> None:
        """Compact; what was applied stands in any case, so a failure is told to the next call."""
        try:
            self._rewrite(fold)
        except OSError as error:
            self._failure = str(error)

    def _rewrite(self, fold: ResidentFold) -> ResidentFold:
        """Put a file in place that says what is in memory and no more."""
        temporary = _beside(self._path, TEMP_SUFFIX)
        remove_if_there(self._disk, temporary)
        compacted = fold.compacted()
        fresh = self._disk.open(temporary, "create")
        try:
            fresh.pwritev(compacted.parts, 0)
            fresh.sync()
            self._disk.rename(temporary, self._path)
            self._disk.sync_folder(self._path.parent)
        except BaseException:
            fresh.close()
            raise
        self._let_go()
        self._file = fresh
        self._in_doubt = False
        fold.adopt(compacted)
        self._compact_at = fold.size + self._compact_bytes
        self._write_index(fold)
        return fold

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> ResidentFold:
        if self._file is None:
            raise Closed(str(self._path))
        return self._fold

    def _writable(self) -> tuple[ResidentFold, File]:
        if self._file is None:
            raise Closed(str(self._path))
        if self._failure is not None:
            raise Poisoned(str(self._path), self._failure)
        return self._fold, self._file

    def _poisoned(self, error: OSError) -> CommitFailed:
        self._failure = str(error)
        return CommitFailed(str(self._path), str(error), hint=storage_hint(error))


def format_mark(size: int) -> bytes:
    """Return the content of the file that says that a log was closed properly."""
    return b"closed at %d bytes\n" % size


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read_with_index(disk: Disk, path: Path) -> tuple[bytes, Known]:
    """Return a log, and what its index knows of it, which was on stable storage when that was written."""
    data = read_file(disk, path) or b""
    content = None
    with contextlib.suppress(OSError):
        content = read_file(disk, _beside(path, INDEX_SUFFIX))
    return data, (content is not None and parse_index(content, data)) or NOTHING


def _raise_damage(path: Path, found: LogScan) -> None:
    if found.damage is not None:
        safe = (
            "`repair_append_log` keeps the records before the damage and their cursor, from which the fold "
            "resumes; or remove the file, and the fold is copied again"
        )
        raise Damaged(str(path), found.damage, safe=safe)


class Cut(NamedTuple):
    """What a repair kept, what it cut off, and where the damaged file is now."""

    held: Held | None
    kept_bytes: int
    cut_bytes: int
    aside: Path


def repair_append_log(path: Path | str, *, disk: Disk | None = None) -> Cut | None:
    """Cut a log before its first bad byte, keeping a copy beside it; None, and nothing is done, if it is whole."""
    path, disk = Path(path), disk or OsDisk()
    with storage_errors(path):
        lock = disk.lock(path.with_name(path.name + LOCK_SUFFIX))
        try:
            data = read_file(disk, path) or b""
            found = scan_log(str(path), data)
            if found.damage is None:
                return None
            aside = _free_name(disk, path)
            replace_file(disk, aside, data)
            replace_file(disk, path, data[: found.end])
            held = ResidentFold.of(data, found).held()
            return Cut(held, found.end, len(data) - found.end, aside)
        finally:
            lock.release()


def _free_name(disk: Disk, path: Path) -> Path:
    taken = set(disk.names(path.parent))
    number = 1
    while f"{path.name}.damaged-{number}" in taken:
        number += 1
    return path.with_name(f"{path.name}.damaged-{number}")
