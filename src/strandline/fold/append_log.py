"""A fold in memory and in one file that is only appended to: the default store.

Invariants: a batch is one write, its cursor last, so that whatever part of it a crash leaves, the cursor is not ahead.
The file is replaced (compaction) only by one that says the same and is on stable storage. A tail that a crash tore is
never written on: the file is replaced first. After a failed write or compaction nothing more is taken.

What can be read need not be on the disk: after a failed fsync the system counts pages as clean that never got there,
and a process that was killed may have left them so. Only a proper close says otherwise, with a file beside the log;
without it, a `SYNCED` store writes back what it read before anything is put behind it.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import islice
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
from strandline.fold.batches import Deletes, FoldBatch, Puts, check_cursor
from strandline.fold.log_format import HEADER, PUT_OVERHEAD_BYTES, LogScan, format_batch, scan_log
from strandline.fold.records import FoldEntry, parse_record
from strandline.fold.resident import ResidentFold
from strandline.fold.store import Held, Verified
from strandline.journal import SYNCED, Durability
from strandline.kv import NO_CURSOR, WatchCursor

COMPACT_BYTES = 10 * 1024 * 1024
_ROWS_PER_WRITE = 10_000
LOCK_SUFFIX = ".lock"
CLEAN_SUFFIX = ".clean"


class AppendLogStore:
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
        try:
            self._fold, self._size = self._read()
        except BaseException:
            self._let_go()
            raise
        self._appended = self._size

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

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return self._open().held()

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Append a batch and the cursor after it with one write."""
        check_cursor(cursor)
        content = format_batch(batch.puts, batch.deletes, cursor)
        with self._applying:
            fold, file = self._writable()
            try:
                file.pwritev([content], self._size, sync=self._sync is SYNCED)
            except OSError as error:
                raise self._poisoned(error) from error
            self._size += len(content)
            self._appended += len(content)
            fold.apply(batch, cursor)
            if self._is_compaction_due(fold):
                self._try_to_compact(fold)

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        return self._open().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        return self._open().multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        return self._open().entries(prefix)

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        return self._open().visit(prefix, visit)

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        return self._open().cursor

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
            found = scan_log(str(self._path), read_file(self._disk, self._path) or b"")
            _raise_damage(self._path, found)
            if self._failure is None and (found.records, found.cursor) != (fold.records, fold.cursor):
                safe = "close it and open it again: that goes by the file"
                raise Damaged(str(self._path), "the file does not say what was written to it", safe=safe)
            return ResidentFold(found.records, found.cursor).verified()

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> tuple[ResidentFold, int]:
        """Read the file, and leave one that can be appended to."""
        remove_if_there(self._disk, self._temporary())
        data = read_file(self._disk, self._path) or b""
        found = scan_log(str(self._path), data)
        _raise_damage(self._path, found)
        fold = ResidentFold(found.records, found.cursor)
        was_clean = self._was_clean(len(data))
        if found.end < len(data) or not data:
            return fold, self._rewrite(fold)
        self._file = self._disk.open(self._path, "write")
        self._in_doubt = not was_clean
        if self._in_doubt and self._sync is SYNCED:
            self._file.pwritev([data], 0)
            self._file.sync()
            self._disk.sync_folder(self._path.parent)
            self._in_doubt = False
        return fold, found.end

    def _was_clean(self, size: int) -> bool:
        """Whether the log was closed properly at this size; that is forgotten, durably, before anything is written."""
        mark = read_file(self._disk, self._mark())
        if mark is not None:
            self._disk.remove(self._mark())
            self._disk.sync_folder(self._path.parent)
        return mark == _format_mark(size)

    def _mark_clean(self, file: File) -> None:
        if self._failure is None and not self._in_doubt:
            file.sync()
            replace_file(self._disk, self._mark(), _format_mark(self._size))

    def _is_compaction_due(self, fold: ResidentFold) -> bool:
        counts = fold.bytes + PUT_OVERHEAD_BYTES * len(fold)
        return self._appended >= self._compact_bytes and self._size >= 2 * counts

    def _try_to_compact(self, fold: ResidentFold) -> None:
        """Compact; what was applied stands in any case, so a failure is told to the next call."""
        try:
            self._size = self._rewrite(fold)
            self._appended = 0
        except OSError as error:
            self._failure = str(error)

    def _rewrite(self, fold: ResidentFold) -> int:
        """Put a file in place that says what is in memory and no more; return its size."""
        remove_if_there(self._disk, self._temporary())
        fresh = self._disk.open(self._temporary(), "create")
        try:
            size = _write_all(fresh, fold)
            fresh.sync()
            self._disk.rename(self._temporary(), self._path)
            self._disk.sync_folder(self._path.parent)
        except BaseException:
            fresh.close()
            raise
        self._let_go()
        self._file = fresh
        self._in_doubt = False
        return size

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()

    def _mark(self) -> Path:
        return self._path.with_name(self._path.name + CLEAN_SUFFIX)

    def _temporary(self) -> Path:
        return self._path.with_name(self._path.name + TEMP_SUFFIX)

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


def _format_mark(size: int) -> bytes:
    return b"closed at %d bytes\n" % size


def _write_all(file: File, fold: ResidentFold) -> int:
    """Write a header, every key in order, and the cursor; return how many bytes that is."""
    cursor, rows = fold.moment()
    size = file.pwritev([HEADER], 0)
    left = iter(rows)
    while page := list(islice(left, _ROWS_PER_WRITE)):
        pairs = [parse_record(record) for _, record in page]
        puts = Puts([key for key, _ in page], [value for _, value in pairs], [version for version, _ in pairs])
        size += file.pwritev([format_batch(puts, Deletes((), ()), NO_CURSOR)], size)
    return size + file.pwritev([format_batch(Puts((), (), ()), Deletes((), ()), cursor)], size)


def _raise_damage(path: Path, found: LogScan) -> None:
    if found.damage is not None:
        safe = (
            f"`repair_append_log` keeps the {len(found.records):,} keys before it and their cursor, from which the "
            f"source tells the rest again; or remove the file, and all of it is told again"
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
            held = ResidentFold(found.records, found.cursor).held()
            return Cut(held, found.end, len(data) - found.end, aside)
        finally:
            lock.release()


def _free_name(disk: Disk, path: Path) -> Path:
    taken = set(disk.names(path.parent))
    number = 1
    while f"{path.name}.damaged-{number}" in taken:
        number += 1
    return path.with_name(f"{path.name}.damaged-{number}")
