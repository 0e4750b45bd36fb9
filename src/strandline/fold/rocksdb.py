"""A fold in RocksDB: for folds far larger than memory, and for the fastest small batches on disk.

Invariants: a batch and its cursor are one `WriteBatch` in one column family with the write-ahead log on, so that they
are recovered together or not at all; it is synced if the store is `SYNCED`. Keys of the fold begin with `d`, the
store's own with `meta/`.

Tuned for many keys: filters that skip the last level because most questions are for keys that exist, a partitioned
index so that it need not fit into memory, LZ4 above and Zstandard at the bottom.
"""

import contextlib
import os
import re
import shutil
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

from strandline.errors import Closed, CommitFailed, Damaged, FormatError, Poisoned, StorageRefused, StrandlineError
from strandline.extras import needs
from strandline.files import Lock, OsDisk, storage_errors
from strandline.fold.batches import FoldBatch, Pages, PutColumns, check_cursor, paged, records_of
from strandline.fold.digests import digest_columns
from strandline.fold.paths import COPY_NAME, LOCK_SUFFIX, existing
from strandline.fold.records import FoldEntry, make_entry
from strandline.fold.store import PAGE_ROWS, Held, StoreFiles, Verified
from strandline.journal import SYNCED, Durability
from strandline.kv import NO_CURSOR, WatchCursor

with needs("rocksdb"):
    from rocksdict import (
        AccessType,
        BlockBasedIndexType,
        BlockBasedOptions,
        Cache,
        Checkpoint,
        DbClosedError,
        DBCompressionType,
        DBRecoveryMode,
        IngestExternalFileOptions,
        Options,
        Rdict,
        ReadOptions,
        SstFileWriter,
        WriteBatch,
        WriteOptions,
    )

CACHE_BYTES = 256 * 1024 * 1024
_MIB = 1024 * 1024
_TRIES = 3
_TABLE_BYTES = 64 * _MIB
_TABLES_SUFFIX = ".tables"
_LOG_OF_RUN = re.compile(r"LOG(\.old.*)?|LOCK")
"""What RocksDB writes for people, and its lock: no part of a copy."""
_DATA = b"d"
_CURSOR = b"meta/cursor"
_FORMAT = b"meta/format"
FORMAT_VERSION = 2
_VERSION = b"strandline-fold %d" % FORMAT_VERSION
_OLD_VERSIONS = (b"strandline-fold 1",)
"""Without deadlines; opening such a fold for writing makes it one of this version."""


class RocksDbReader:
    """A `FoldReader` of a folder of RocksDB's, which another process may keep current; opened with `open_read_only`.

    It sees the moment at which it was opened.
    """

    def __init__(self, path: Path, options: Options, access: AccessType) -> None:
        self._path = str(path)
        with self._errors():
            self._db: Rdict | None = Rdict(self._path, options, access_type=access)

    @staticmethod
    def open_read_only(path: Path | str, *, cache_bytes: int = CACHE_BYTES) -> "RocksDbReader":
        """Open the fold at `path` without its lock; `StorageRefused` if there is none."""
        reader = RocksDbReader(existing(path), _options(cache_bytes), AccessType.read_only())
        try:
            with reader._errors():
                reader._check_ours(reader._open(), may_be_new=False)
        except BaseException:
            reader.close()
            raise
        return reader

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        with self._errors():
            cursor, rows = self._at_once(lambda db: (db.get(_CURSOR), _rows(db, b"")))
            held = Held(_cursor(cursor), has_data=next(rows, None) is not None)
        return held if held.has_data or held.cursor else None

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        with self._errors():
            record: bytes | None = self._open().get(_DATA + key)
        return None if record is None else self._entry(key, record)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        with self._errors():
            asked: list[str | int | float | bytes | bool] = [_DATA + key for key in keys]
            found: list[bytes | None] = self._at_once(lambda db: db.get(asked)) or []
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

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns, and the cursor of the same moment."""
        with self._errors():
            cursor, rows = self._at_once(lambda db: (db.get(_CURSOR), _rows(db, prefix)))
        return Pages(_cursor(cursor), self._pages(rows, rows_max))

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        with self._errors():
            return _cursor(self._open().get(_CURSOR))

    def verify(self) -> Verified:
        """Read everything of one moment with its checksums."""
        checked = ReadOptions()
        checked.set_verify_checksums(True)
        with self._errors():
            cursor, rows = self._at_once(lambda db: (db.get(_CURSOR), _rows(db, b"", checked)))
            return Verified(_cursor(cursor), *digest_columns(self._pages(rows, PAGE_ROWS)))

    def close(self) -> None:
        """Close the database; twice is harmless."""
        if self._db is not None:
            db, self._db = self._db, None
            with self._errors():
                db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pages(self, rows: Iterator[tuple[bytes, bytes]], rows_max: int) -> Generator[PutColumns]:
        try:
            yield from paged(self._errors_of(rows), rows_max)
        except ValueError as error:
            raise Damaged(self._path, str(error), safe=_SAFE) from error

    def _at_once(self, ask: Callable[[Rdict], Any]) -> Any:  # noqa: ANN401 - whatever is asked
        """Ask several things as of one moment; a database that is open read-only does not change meanwhile."""
        return ask(self._open())

    def _check_ours(self, db: Rdict, *, may_be_new: bool) -> bool:
        """Refuse another program's database and a later version; return whether ours is to be written."""
        version: bytes | None = db.get(_FORMAT)
        if version not in (None, _VERSION, *_OLD_VERSIONS):
            raise FormatError(self._path, f"is a fold of another version: {version!r}; this is {_VERSION!r}")
        if version is None and next(iter(db.keys()), None) is not None:
            raise FormatError(self._path, "is a database of another program", hint="give a path of its own")
        if version is None and not may_be_new:
            raise FormatError(self._path, "is an empty database", hint="give the path of a fold")
        return version != _VERSION

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _errors_at(self._path)

    def _errors_of(self, rows: Iterator[tuple[bytes, bytes]]) -> Generator[tuple[bytes, bytes]]:
        """Pass rows on, with errors of the store and not of their taker."""
        with self._errors():
            yield from rows

    def _entry(self, key: bytes, record: bytes) -> FoldEntry:
        try:
            return make_entry(key, record)
        except ValueError as error:
            raise Damaged(self._path, str(error), safe=_SAFE) from error

    def _open(self) -> Rdict:
        if self._db is None:
            raise Closed(self._path)
        return self._db


class RocksDbStore(RocksDbReader):
    """A `SnapshotStore` in a folder of RocksDB's, opened with `open`."""

    def __init__(self, path: Path, lock: Lock, sync: Durability, cache_bytes: int) -> None:
        super().__init__(path, _options(cache_bytes), AccessType.read_write())
        self._held_lock = lock
        self._applying = threading.Lock()
        self._failure: str | None = None
        self._write_options = WriteOptions()
        self._write_options.sync = sync is SYNCED
        with self._errors():
            db = self._open()
            try:
                if self._check_ours(db, may_be_new=True):
                    db.put(_FORMAT, _VERSION, write_opt=self._write_options)
            except BaseException:
                db.close()
                raise

    @classmethod
    def open(cls, path: Path | str, *, sync: Durability = SYNCED, cache_bytes: int = CACHE_BYTES) -> Self:
        """Open the folder at `path`, or begin one; `FormatError` for a foreign one, `Damaged` for a broken one."""
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

    def files(self) -> StoreFiles:
        """Return what keeps the fold, and where."""
        return StoreFiles("rocksdb", FORMAT_VERSION, (Path(self._path),))

    def snapshot(self, beside: Path) -> "RocksDbSnapshot":
        """Return this moment: a checkpoint, whose large files are links to the store's own."""
        with self._applying, self._errors():
            Checkpoint(self._writable()).create_checkpoint(str(beside))
        return RocksDbSnapshot(beside)

    def prepare_snapshot(self) -> None:
        """Write what is in memory to files, beside batches that follow, so that the next snapshot has little to do."""
        with self._errors():
            self._writable().flush()

    def settle(self) -> None:
        """Flush what is in memory and compact everything, which is when questions are cheapest."""
        with self._applying, self._errors():
            db = self._writable()
            db.flush()
            db.compact_range(None, None)

    def close(self) -> None:
        """Close the database and release the lock; twice is harmless."""
        with self._applying:
            super().close()
            self._held_lock.release()

    def _at_once(self, ask: Callable[[Rdict], Any]) -> Any:  # noqa: ANN401 - whatever is asked
        """Ask several things as of one moment, which nothing of RocksDB's own that we can reach here offers."""
        db = self._open()
        for _ in range(_TRIES):
            before = db.latest_sequence_number()
            found = ask(db)
            if db.latest_sequence_number() == before:
                return found
        with self._applying:
            return ask(db)

    def _writable(self) -> Rdict:
        db = self._open()
        if self._failure is not None:
            raise Poisoned(self._path, self._failure)
        return db


class RocksDbSnapshot:
    """A `StoreSnapshot`: a folder of links, which is removed when it is closed."""

    backend = "rocksdb"
    version = FORMAT_VERSION

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with RocksDbReader.open_read_only(folder) as reader:
            self._cursor = reader.cursor()

    def cursor(self) -> WatchCursor:
        """Return the cursor of this moment."""
        return self._cursor

    def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        """Yield all rows by key."""
        with RocksDbReader.open_read_only(self._folder) as reader:
            yield from reader.pages(b"", rows_max).columns

    def copy_to(self, folder: Path) -> None:
        """Link or copy the files of the checkpoint."""
        (folder / COPY_NAME).mkdir(parents=True)
        for file in sorted(self._folder.iterdir()):
            if not _LOG_OF_RUN.fullmatch(file.name):
                _link_or_copy(file, folder / COPY_NAME / file.name)

    def close(self) -> None:
        """Remove the links."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    """Link a table, which never changes; copy other files, and those on another file system."""
    if source.suffix == ".sst":
        with contextlib.suppress(OSError):
            target.hardlink_to(source)
            return
    shutil.copyfile(source, target)


def write_tables(path: Path, pages: Iterable[PutColumns], cursor: WatchCursor) -> None:
    """Make a new database of rows in the order of their keys: tables are written as they are, and taken in."""
    made = path.with_name(f"{path.name}{_TABLES_SUFFIX}")
    made.mkdir()
    options, tables = _options(CACHE_BYTES), _TableWriter(made)
    try:
        with _errors_at(str(path)):
            for rows in pages:
                tables.add(*records_of(rows, _DATA))
            tables.finish()
            db = Rdict(str(path), options, access_type=AccessType.read_write())
            try:
                if tables.paths:
                    moved = IngestExternalFileOptions()
                    moved.set_move_files(True)
                    db.ingest_external_file(tables.paths, moved)
                written = WriteBatch(raw_mode=True)
                written.put(_FORMAT, _VERSION)
                if cursor != NO_CURSOR:
                    written.put(_CURSOR, cursor)
                db.write(written)
                db.flush()
            finally:
                db.close()
    finally:
        shutil.rmtree(made)


class _TableWriter:
    """Writes rows into tables of the size that the store has them in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SstFileWriter | None = None
        self.paths: list[str] = []

    def add(self, keys: Sequence[bytes], records: Sequence[bytes]) -> None:
        if self._writer is None:
            self.paths.append(str(self._folder / f"{len(self.paths)}.sst"))
            self._writer = SstFileWriter(_options(0))
            self._writer.open(self.paths[-1])
        deque(map(self._writer.__setitem__, keys, records), maxlen=0)
        if self._writer.file_size() >= _TABLE_BYTES:
            self.finish()

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._writer = None


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
    options.set_target_file_size_base(_TABLE_BYTES)
    options.set_max_bytes_for_level_base(256 * _MIB)
    options.set_max_background_jobs(max(2, os.cpu_count() or 2))
    options.set_bytes_per_sync(_MIB)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_keep_log_file_num(2)
    options.set_paranoid_checks(True)
    return options


@contextlib.contextmanager
def _errors_at(path: str) -> Iterator[None]:
    try:
        yield
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:  # RocksDB's are all of this one class
        raise _typed(path, error) from error


def _write_batch(batch: FoldBatch, cursor: WatchCursor) -> WriteBatch:
    written = WriteBatch(raw_mode=True)
    deque(map(written.put, *batch.records(_DATA)), maxlen=0)
    for key in batch.deletes.keys:
        written.delete(_DATA + key)
    if cursor != NO_CURSOR:
        written.put(_CURSOR, cursor)
    return written


def _cursor(value: bytes | None) -> WatchCursor:
    return WatchCursor(value or NO_CURSOR)


def _rows(db: Rdict, prefix: bytes, options: ReadOptions | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Return keys and records of a range as of now, that is of this call; an iterator of RocksDB's sees one moment."""
    first = _DATA + prefix
    found: Iterator[tuple[bytes, bytes]] = iter(db.items(from_key=first, read_opt=options))  # type: ignore[arg-type]
    return ((key[1:], record) for key, record in takewhile(lambda row: row[0].startswith(first), found))


def _typed(path: str, error: Exception) -> StrandlineError:
    """RocksDB's errors come as one class; the word that they begin with is its status code."""
    status, _, told = str(error).partition(":")
    if isinstance(error, DbClosedError):
        return Closed(path)
    if status == "Corruption":
        return Damaged(path, f"RocksDB says: {told.strip()}", safe=_SAFE)
    return StorageRefused(path, str(error), status, hint="check the device, its space and its permissions")
