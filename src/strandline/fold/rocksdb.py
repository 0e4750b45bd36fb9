"""A fold in RocksDB: for folds far larger than memory, and for the fastest small batches on disk.

Invariants: a batch and its cursor are one `WriteBatch` in one column family with the write-ahead log on, so that they
are recovered together or not at all; it is synced if the store is `SYNCED`. Keys of the fold begin with `d`, the
store's own with `meta/`.

Tuned for many keys: filters that skip the last level because most questions are for keys that exist, a partitioned
index so that it need not fit into memory, LZ4 above and Zstandard at the bottom.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Self

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from strandline.errors import Closed, CommitFailed, Damaged, FormatError, Poisoned, StorageRefused, StrandlineError
from strandline.files import Lock, OsDisk, storage_errors
from strandline.fold.append_log import LOCK_SUFFIX
from strandline.fold.batches import FoldBatch, check_cursor
from strandline.fold.records import FoldEntry, digest_rows, format_records, make_entry
from strandline.fold.store import Held, Verified
from strandline.journal import SYNCED, Durability
from strandline.kv import NO_CURSOR, WatchCursor

CACHE_BYTES = 256 * 1024 * 1024
_MIB = 1024 * 1024
_DATA = b"d"
_CURSOR = b"meta/cursor"
_FORMAT = b"meta/format"
_VERSION = b"strandline-fold 1"


class RocksDbStore:
    """A `SnapshotStore` in a folder of RocksDB's, opened with `open`."""

    def __init__(self, path: Path, lock: Lock, sync: Durability, cache_bytes: int) -> None:
        self._path = str(path)
        self._held_lock = lock
        self._applying = threading.Lock()
        self._failure: str | None = None
        self._write_options = WriteOptions()
        self._write_options.sync = sync is SYNCED
        with self._errors():
            self._db: Rdict | None = Rdict(self._path, _options(cache_bytes))
            try:
                self._prepare(self._db)
            except BaseException:
                self._db.close()
                raise

    @classmethod
    def open(cls, path: Path | str, *, sync: Durability = SYNCED, cache_bytes: int = CACHE_BYTES) -> Self:
        """Open the folder at `path`, or begin one; `FormatError` for somebody else's, `Damaged` for a broken one."""
        path, disk = Path(path), OsDisk()
        with storage_errors(path):
            disk.make_folder(path.parent)
            lock = disk.lock(path.with_name(path.name + LOCK_SUFFIX))
            try:
                disk.make_folder(path)
                return cls(path, lock, sync, cache_bytes)
            except BaseException:
                lock.release()
                raise

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        with self._errors():
            db = self._open()
            held = Held(_cursor(db.get(_CURSOR)), has_data=next(_rows(db, b""), None) is not None)
        return held if held.has_data or held.cursor else None

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Write a batch and the cursor after it as one `WriteBatch`."""
        check_cursor(cursor)
        written = _write_batch(batch, cursor)
        with self._applying:
            db = self._writable()
            try:
                db.write(written, write_opt=self._write_options)
            except Exception as error:
                self._failure = str(error)
                raise CommitFailed(self._path, str(error)) from error

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        with self._errors():
            record: bytes | None = self._open().get(_DATA + key)
        return None if record is None else self._entry(key, record)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        with self._errors():
            asked: list[str | int | float | bytes | bool] = [_DATA + key for key in keys]
            found: list[bytes | None] = self._open().get(asked) or []
        return [None if record is None else self._entry(key, record) for key, record in zip(keys, found, strict=True)]

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        with self._errors():
            return [self._entry(key, record) for key, record in _rows(self._open(), prefix)]

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        count = 0
        rows = self._errors_of(_rows(self._open(), prefix))
        with contextlib.closing(rows):
            for key, record in rows:
                visit(self._entry(key, record))
                count += 1
        return count

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        with self._errors():
            return _cursor(self._open().get(_CURSOR))

    def settle(self) -> None:
        """Flush what is in memory and compact everything, which is when questions are cheapest."""
        with self._applying, self._errors():
            db = self._writable()
            db.flush()
            db.compact_range(None, None)

    def verify(self) -> Verified:
        """Read everything of one moment with its checksums."""
        checked = ReadOptions()
        checked.set_verify_checksums(True)
        with self._applying, self._errors():  # so that the cursor and the rows are of one moment
            db = self._open()
            rows = ((key, self._checked(key, record)) for key, record in _rows(db, b"", checked))
            return Verified(_cursor(db.get(_CURSOR)), *digest_rows(rows))

    def close(self) -> None:
        """Close the database and release the lock; twice is harmless."""
        with self._applying:
            if self._db is not None:
                db, self._db = self._db, None
                with self._errors():
                    db.close()
                self._held_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, db: Rdict) -> None:
        """Mark a new database as ours, and refuse another's."""
        version: bytes | None = db.get(_FORMAT)
        if version == _VERSION:
            return
        if version is not None:
            raise FormatError(self._path, f"is a fold of another version: {version!r}; this is {_VERSION!r}")
        if next(iter(db.keys()), None) is not None:
            raise FormatError(self._path, "is a database of another program", hint="give a path of its own")
        db.put(_FORMAT, _VERSION, write_opt=self._write_options)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (StrandlineError, MemoryError):
            raise
        except Exception as error:  # RocksDB's are all of this one class
            raise _typed(self._path, error) from error

    def _errors_of(self, rows: Iterator[tuple[bytes, bytes]]) -> Generator[tuple[bytes, bytes]]:
        """Pass rows on, with errors of their own and not of whoever takes them."""
        while True:
            with self._errors():
                row = next(rows, None)
            if row is None:
                return
            yield row

    def _entry(self, key: bytes, record: bytes) -> FoldEntry:
        try:
            return make_entry(key, record)
        except ValueError as error:
            raise Damaged(self._path, str(error), safe=_SAFE) from error

    def _checked(self, key: bytes, record: bytes) -> bytes:
        self._entry(key, record)
        return record

    def _open(self) -> Rdict:
        if self._db is None:
            raise Closed(self._path)
        return self._db

    def _writable(self) -> Rdict:
        db = self._open()
        if self._failure is not None:
            raise Poisoned(self._path, self._failure)
        return db


_SAFE = "remove the folder and build the fold again, or restore a copy"


def _options(cache_bytes: int) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_bytes))
    table.set_block_size(16 * 1024)
    table.set_bloom_filter(10, block_based=False)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    options.set_optimize_filters_for_hits(True)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_write_buffer_size(64 * _MIB)
    options.set_max_write_buffer_number(4)
    options.set_target_file_size_base(64 * _MIB)
    options.set_max_bytes_for_level_base(256 * _MIB)
    options.set_max_background_jobs(max(2, os.cpu_count() or 2))
    options.set_bytes_per_sync(_MIB)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_keep_log_file_num(2)
    options.set_paranoid_checks(True)
    return options


def _write_batch(batch: FoldBatch, cursor: WatchCursor) -> WriteBatch:
    written = WriteBatch(raw_mode=True)
    keys, values, versions = batch.puts
    for key, record in zip(keys, format_records(versions, values), strict=True):
        written.put(_DATA + key, record)
    for key in batch.deletes.keys:
        written.delete(_DATA + key)
    if cursor != NO_CURSOR:
        written.put(_CURSOR, cursor)
    return written


def _cursor(value: bytes | None) -> WatchCursor:
    return WatchCursor(value or NO_CURSOR)


def _rows(db: Rdict, prefix: bytes, options: ReadOptions | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and records of a range as of now; an iterator of RocksDB's sees one moment."""
    first = _DATA + prefix
    found: tuple[bytes, bytes]
    for found in db.items(from_key=first, read_opt=options):  # type: ignore[assignment]
        key, record = found
        if not key.startswith(first):
            return
        yield key[1:], record


def _typed(path: str, error: Exception) -> StrandlineError:
    """RocksDB's errors come as one class; the word that they begin with is its status code."""
    status, _, told = str(error).partition(":")
    if isinstance(error, DbClosedError):
        return Closed(path)
    if status == "Corruption":
        return Damaged(path, f"RocksDB says: {told.strip()}", safe=_SAFE)
    return StorageRefused(path, str(error), status, hint="check the device, its space and its permissions")
