"""SQLite's write lock of one database in WAL mode, held for as long as it takes, and the log written under it.

Invariants:

- While it is held no connection of any process commits: each is told that the database is locked. Readers go on.
- It is never let go between two transactions that are written here. A transaction of SQLite's would end with its lock,
  and another writer could come in between; so the lock is taken by the function of SQLite's own file layer that its
  connections take it with, and frames are written to the log as SQLite writes them.
- A transaction is in the log, with its checksums and synced, before the index names it. Readers see it whole or not at
  all, and a process that is killed leaves a log that any SQLite recovers.
- The log begins anew only where all of it is in the database file, no reader is on one of its frames, and no other
  connection checkpoints: SQLite up to 3.51.2 would count frames of the new log as written. The new header is synced
  before a frame of the old log is overwritten: an old frame behind an old header would count after a power cut.
- The lock goes with the process: the kernel lets it go.
- Memory is bounded: pages are read and written in pieces of `_CHUNK_BYTES`.

The memory of the index and its locks are reached through `SQLITE_FCNTL_FILE_POINTER`: they are those of a connection of
this library, so that connections of the same process count as well.
"""

import ctypes
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import Unavailable
from strandline.files import storage_errors
from strandline.lazy_imports import deferred
from strandline.replica.capture import LogState
from strandline.replica.connections import LOG_KEPT_BYTES, check_library, connect, sqlite_errors
from strandline.replica.errors import DatabaseRefused
from strandline.replica.wal import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    WalHeader,
    WalPosition,
    format_frames,
    format_header,
    parse_header,
)
from strandline.replica.wal_index import (
    BLOCK_BYTES,
    READ_MARKS,
    Block,
    IndexHeader,
    append_frames,
    backfilled,
    forget_backfilled,
    parse_index_header,
    reset_checkpoint_state,
    write_index_header,
)

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

CHECKPOINT_FRAMES = 1000
_PAUSE_S = 0.002
_CHUNK_BYTES = 4 << 20
_WRITE_LOCK, _CHECKPOINT_LOCK, _READ_LOCKS = 0, 1, 3
_UNLOCK, _LOCK, _EXCLUSIVE = 1, 2, 8
_METHODS = 19
_SHM_MAP, _SHM_LOCK, _SHM_BARRIER = 13, 14, 15
_OK, _BUSY = 0, 5
_FIRST_PAGE = (1).to_bytes(4, "big")
_POINTER = ctypes.c_void_p
_ShmMap = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(_POINTER))
_ShmLock = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int, ctypes.c_int, ctypes.c_int)
_ShmBarrier = ctypes.CFUNCTYPE(None, _POINTER)


class Transaction(NamedTuple):
    """Frames that are in the log but for the last ones, with the commit; `state` is the end of the log with these."""

    rest: bytes
    offset: int
    numbers: list[int]
    header: IndexHeader
    state: LogState


class WriteLock:
    """The write lock of one database, and a connection that reads it. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_held = False
        check_library()
        with sqlite_errors(path):
            self.connection = connect(path)
            try:
                self._open()
            except BaseException:
                self.connection.close()
                raise

    def _open(self) -> None:
        (mode,) = next(iter(self.connection.execute("PRAGMA journal_mode")))
        if mode != "wal":
            hint = "run `PRAGMA journal_mode = wal` once, while nothing else has it open; it stays"
            raise DatabaseRefused(str(self.path), f"the journal mode is {mode}, not wal", hint=hint)
        self._read()
        (self.page_size,) = next(iter(self.connection.execute("PRAGMA page_size")))
        pointer = _POINTER()
        self.connection.file_control("main", apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(pointer))
        self._file = _POINTER(pointer.value)
        methods = (_POINTER * _METHODS).from_address(_POINTER.from_address(pointer.value or 0).value or 0)
        self._shm_map = _ShmMap(methods[_SHM_MAP] or 0)
        self._shm_lock = _ShmLock(methods[_SHM_LOCK] or 0)
        self._shm_barrier = _ShmBarrier(methods[_SHM_BARRIER] or 0)
        self._blocks: dict[int, Block] = {}
        self._inode = self.path.stat().st_ino
        self._log = os.open(self.path.with_name(f"{self.path.name}-wal"), os.O_RDWR | os.O_CLOEXEC)

    def acquire(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the writer of this moment has ended its transaction, and let no other begin one.

        Return False where `give_up` says so first.
        """
        while not self.is_held:
            with sqlite_errors(self.path):
                self._read()  # recovers an index that an interrupted writer has left
            if self._locked(_WRITE_LOCK, 1):
                if parse_index_header(self._block(0)) is not None:
                    self.is_held = True
                    break
                self._unlock(_WRITE_LOCK, 1)
            if give_up():
                return False
            time.sleep(_PAUSE_S)
        return True

    def is_current(self) -> bool:
        """Return whether the file at the path is still the one that is held, and not removed or replaced."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others write."""
        if self.is_held:
            self.is_held = False
            self._unlock(_WRITE_LOCK, 1)

    def close(self) -> None:
        """Let others write, and let go of the database; the log stays."""
        self.release()
        os.close(self._log)
        self._blocks.clear()
        self.connection.close()

    def state(self) -> LogState:
        """Return the end of the log."""
        return _state_of(self._index())

    def prepare(self, pages: Mapping[int, bytes], commit: int, page_size: int) -> Transaction:
        """Write pages behind the end of the log, all but the last ones; the database then has `commit` pages.

        They count for nothing until `write`, which has to come before the next `prepare`.
        """
        if page_size != self.page_size:
            hint = "end its connections and this node, and remove the database: it is restored with its new page size"
            raise DatabaseRefused(str(self.path), f"its pages have {self.page_size} bytes, not {page_size}", hint=hint)
        with storage_errors(self.path):
            header, index, checksum = self._log_header(self._index())
            offset = HEADER_BYTES + index.last * header.frame_size
            numbers, rest = sorted(pages), b""
            at_once = max(1, _CHUNK_BYTES // header.frame_size)
            for at in range(0, len(numbers), at_once):
                _write_all(self._log, rest, offset)
                offset += len(rest)
                part = [(number, _page_of(pages, number)) for number in numbers[at : at + at_once]]
                is_last = at + at_once >= len(numbers)
                rest, checksum = format_frames(header, checksum, part, commit if is_last else 0)
        after = index._replace(
            change=index.change + 1, last=index.last + len(numbers), pages=commit, checksum=checksum, salts=header.salts
        )
        return Transaction(rest, offset, numbers, after, _state_of(after))

    def write(self, transaction: Transaction) -> None:
        """Commit a transaction that was prepared since the last one."""
        with storage_errors(self.path):
            _write_all(self._log, transaction.rest, transaction.offset)
            os.fdatasync(self._log)
        header = transaction.header
        append_frames(self._block, header.last - len(transaction.numbers), transaction.numbers)
        self._shm_barrier(self._file)
        write_index_header(self._block(0), header, lambda: self._shm_barrier(self._file))
        if header.last - backfilled(self._block(0)) >= CHECKPOINT_FRAMES:
            with sqlite_errors(self.path):
                self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def first_page(self) -> bytes:
        """Return page 1 as it is now."""
        index = self._index()
        frame_size = FRAME_HEADER_BYTES + self.page_size
        for frame in range(index.last, 0, -1):
            offset = HEADER_BYTES + (frame - 1) * frame_size
            if os.pread(self._log, 4, offset) == _FIRST_PAGE:
                return os.pread(self._log, self.page_size, offset + FRAME_HEADER_BYTES)
        with sqlite_errors(self.path):
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
            file = apsw.VFSFile("", str(self.path.absolute()), [flags, 0])
            try:
                return file.xRead(self.page_size, 0)
            finally:
                file.xClose()

    def page_count(self) -> int:
        """Return the size of the database in pages."""
        with sqlite_errors(self.path):
            (count,) = next(iter(self.connection.execute("PRAGMA page_count")))
        return int(count)

    def pin(self) -> None:
        """Hold a read transaction, so that the log does not begin anew before `unpin`."""
        with sqlite_errors(self.path):
            self.connection.execute("BEGIN")
            self._read()

    def unpin(self) -> None:
        """End the read transaction."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _log_header(self, index: IndexHeader) -> tuple[WalHeader, IndexHeader, tuple[int, int]]:
        """Return the header of the log that goes on, or begins now, and the checksum that its next frame follows."""
        found = parse_header(os.pread(self._log, HEADER_BYTES, 0))
        if index.last:
            is_over = backfilled(self._block(0)) == index.last
            begun = self._begin_anew(index) if is_over else None
            if begun is None:
                if found is None or found.salts != index.salts:
                    raise Unavailable(f"{self.path}: the log and its index differ", hint="it is tried again")
                return found, index, index.checksum
            index = begun
        else:
            self._check_nothing_backfilled()
            index = index._replace(salts=_next_salts(index.salts))
        data = format_header(self.page_size, (found.checkpoint + 1) if found else 0, index.salts)
        if os.fstat(self._log).st_size > LOG_KEPT_BYTES:  # it grew under a long reader, or by a large transaction
            os.ftruncate(self._log, 0)
        _write_all(self._log, data, 0)
        os.fdatasync(self._log)
        header = parse_header(data)
        assert header is not None  # noqa: S101 - it was just formatted
        return header, index._replace(is_big_endian=False, page_size=self.page_size), header.checksum

    def _check_nothing_backfilled(self) -> None:
        """Of a log without frames none is in the database, whatever a writer that was killed has left to say so."""
        if backfilled(self._block(0)):
            if not self._locked(_CHECKPOINT_LOCK, 1):
                raise Unavailable(f"{self.path}: a checkpoint is on its log", hint="it is tried again")
            forget_backfilled(self._block(0))
            self._shm_barrier(self._file)
            self._unlock(_CHECKPOINT_LOCK, 1)

    def _begin_anew(self, index: IndexHeader) -> IndexHeader | None:
        """Have a log that is in the database file begin anew; None where a reader or a checkpoint is on its frames."""
        if not self._locked(_CHECKPOINT_LOCK, 1):
            return None
        try:
            if not self._locked(_READ_LOCKS + 1, READ_MARKS - 1):
                return None
            try:
                block = self._block(0)
                anew = index._replace(last=0, salts=_next_salts(index.salts))
                # In this order: a log without frames of which some are said to be in the database hides the next.
                reset_checkpoint_state(block)
                self._shm_barrier(self._file)
                write_index_header(block, anew, lambda: self._shm_barrier(self._file))
            finally:
                self._unlock(_READ_LOCKS + 1, READ_MARKS - 1)
        finally:
            self._unlock(_CHECKPOINT_LOCK, 1)
        return anew

    def _index(self) -> IndexHeader:
        found = parse_index_header(self._block(0))
        if not self.is_held or found is None:
            raise Unavailable(f"{self.path}: the index of the log is being written", hint="it is tried again")
        return found

    def _read(self) -> None:
        list(self.connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))

    def _block(self, number: int) -> Block:
        if number not in self._blocks:
            pointer = _POINTER()
            result = self._shm_map(self._file, number, BLOCK_BYTES, 1, ctypes.byref(pointer))
            if result != _OK or not pointer.value:
                raise Unavailable(f"{self.path}: SQLite cannot map its index: {result}", hint="it is tried again")
            memory = (ctypes.c_char * BLOCK_BYTES).from_address(pointer.value)
            self._blocks[number] = memoryview(memory).cast("B")
        return self._blocks[number]

    def _locked(self, first: int, count: int) -> bool:
        result = self._shm_lock(self._file, first, count, _LOCK | _EXCLUSIVE)
        if result not in (_OK, _BUSY):
            raise Unavailable(f"{self.path}: SQLite cannot lock it: {result}", hint="it is tried again")
        return bool(result == _OK)

    def _unlock(self, first: int, count: int) -> None:
        self._shm_lock(self._file, first, count, _UNLOCK | _EXCLUSIVE)


def _state_of(index: IndexHeader) -> LogState:
    """Return the end of a log as a capture knows it; one without a frame has no checksum."""
    if index.last == 0:
        return LogState(index.salts, WalPosition(HEADER_BYTES, (0, 0)), index.pages, index.page_size)
    offset = HEADER_BYTES + index.last * (FRAME_HEADER_BYTES + index.page_size)
    return LogState(index.salts, WalPosition(offset, index.checksum), index.pages, index.page_size)


def _next_salts(salts: tuple[int, int]) -> tuple[int, int]:
    """Return the salts of the log that follows, as SQLite chooses them."""
    return (salts[0] + 1) & 0xFFFFFFFF, secrets.randbits(32)


def _page_of(pages: Mapping[int, bytes], number: int) -> bytes:
    """Return a page; the first one is that of a database with a write-ahead log."""
    page = pages[number]
    return page[:18] + b"\2\2" + page[20:] if number == 1 else page


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
