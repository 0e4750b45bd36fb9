"""Capture: the commits of one SQLite database, read from its write-ahead log beside the application that writes it.

Invariants:

- From the beginning to `close` one of two connections holds a read transaction. While it is on a frame of the log (a
  positive read mark), SQLite cannot begin the log anew. The next one is begun before it is given up, and after a
  heartbeat row was written, so that it is on a frame again.
- The log is given up only in `checkpoint`: under the write lock, all of it is read first; then the checkpoint runs; a
  read transaction is begun before the write lock is let go. It is on a frame, or on the database alone: then the log
  may begin anew once, and nothing is written back from it, so it cannot begin anew twice. Either way no commit escapes.
- A commit is handed out once, whole and in order. Where that cannot be proved (the salts of the log are not the
  expected ones, or its frames do not continue), `HistoryLost` is raised and a snapshot goes on.
- The database file is read through SQLite's own file layer: closing a file descriptor of the database would drop the
  locks of every connection in the process.

SQLite before 3.51.3 can lose commits when a checkpoint meets the beginning of a log, so an older library is refused.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from strandline.extras import needs
from strandline.replica.errors import DatabaseRefused, HistoryLost
from strandline.replica.ltx import lock_page
from strandline.replica.wal import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    WalFrames,
    WalHeader,
    WalPosition,
    parse_header,
    scan_frames,
)

with needs("replica"):
    import apsw

TABLE = "_strandline_replica"
SQLITE_MIN = (3, 51, 3)
CHUNK_BYTES = 64 << 20
_BUSY_MS = 5_000
_LOCK_MS = 250
_WAL_KEPT_BYTES = 16 << 20
_DATABASE_HEADER_BYTES = 100
_READ_BYTES = 1 << 20


class LogState(NamedTuple):
    """How far a log was read: what a later process needs to go on from there."""

    salts: tuple[int, int]
    position: WalPosition
    pages: int
    page_size: int


class Change(NamedTuple):
    """All that was committed between two readings of a log; `pages` is read once."""

    page_size: int
    commit: int
    pages: Iterator[tuple[int, bytes]]
    start: int
    state: LogState
    is_whole: bool = False


class Capture:
    """The commits of one database. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._log: int | None = None
        self._file: apsw.VFSFile | None = None
        self._identity = (0, 0)
        self._header: WalHeader | None = None
        self._state: LogState | None = None
        self._pending: Change | None = None
        self._beats = 0
        check_library()
        self._writer = _connect(path)
        try:
            self._readers = [_connect(path), _connect(path)]
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        (mode,) = next(iter(self._writer.execute("PRAGMA journal_mode")))
        if mode != "wal":
            hint = f"run `PRAGMA journal_mode = wal` once; it stays, and {self.path.name} is replicated from then on"
            raise DatabaseRefused(str(self.path), f"the journal mode is {mode}, not wal", hint=hint)
        try:
            self._writer.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} (id INTEGER PRIMARY KEY CHECK (id = 1), beat INTEGER NOT NULL)"
            )
            self._beat()
        except apsw.ReadOnlyError as error:
            hint = "a replicator writes a row now and then: give it the right to write, as the application has"
            raise DatabaseRefused(str(self.path), "it cannot be written", hint=hint) from error
        self._begin(0)
        self._renew()
        self._log = os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
        self._file = apsw.VFSFile("", str(self.path), [flags, 0])
        self._identity = _identity(self.path)

    @property
    def log_path(self) -> Path:
        """Where the log is: what changes when something is committed."""
        return self._log_path

    @property
    def state(self) -> LogState | None:
        """How far the log was read; None before `resume` or `snapshot`."""
        return self._state

    def resume(self, state: LogState) -> bool:
        """Go on from where an earlier process was; return False where the log does not continue from there."""
        header = self._read_header()
        offset = state.position.offset
        if header is None or header.salts != state.salts or header.page_size != state.page_size:
            return False
        if offset > HEADER_BYTES:
            stored = self._pread(8, offset - header.frame_size + 16)
            if stored != b"".join(part.to_bytes(4, "big") for part in state.position.checksum):
                return False
        elif state.position != header.start:
            return False
        self._header, self._state, self._pending = header, state, None
        return True

    def snapshot(self) -> Change:
        """Return the whole database as it is now; later changes continue from there."""
        self._pending = None
        self._renew()
        self._header = header = self._read_header()
        if header is None:
            raise HistoryLost(str(self.path), "the log has no header")
        frames, latest = self._scan_all(header)
        self._state = LogState(header.salts, frames.end, frames.pages, header.page_size)
        pages = self._whole(header, frames.pages, latest)
        return Change(header.page_size, frames.pages, pages, HEADER_BYTES, self._state, is_whole=True)

    def changes(self) -> Change | None:
        """Return what was committed since the last call; None where nothing was."""
        if self._pending is not None:
            change, self._pending = self._pending, None
            return change
        if self._state is None or self._header is None:
            raise HistoryLost(str(self.path), "the log was not read yet")
        if _identity(self.path) != self._identity:
            raise HistoryLost(str(self.path), "the database file was replaced")
        found = self._read_header()
        if found is None or found.salts != self._header.salts:
            raise HistoryLost(str(self.path), "the log began anew although it was held")
        return self._read_changes()

    def log_bytes(self) -> int:
        """Return how much of the log is in use."""
        return self._state.position.offset if self._state else 0

    def checkpoint(self) -> bool:
        """Write the log back into the database and let it begin anew; return whether it did, or was busy.

        What is read meanwhile is the next change.
        """
        if self._state is None or self._pending is not None:
            return False
        self._writer.set_busy_timeout(_LOCK_MS)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        finally:
            self._writer.set_busy_timeout(_BUSY_MS)
        try:
            self._pending = self._sealed()
            self._end(0)
            self._readers[0].execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._begin(0)
        finally:
            self._writer.execute("ROLLBACK")
        self._renew()
        return self._follow_log()

    def close(self) -> None:
        """Let go of the database; the log stays for the next process to go on with."""
        for connection in (*getattr(self, "_readers", ()), self._writer):
            connection.close()
        if self._file is not None:
            self._file.xClose()
            self._file = None
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _sealed(self) -> Change | None:
        """Return what is left in the log, all in memory: the log may be gone before it is used."""
        change = self._read_changes()
        return None if change is None else change._replace(pages=iter(list(change.pages)))

    def _follow_log(self) -> bool:
        """Go to the beginning of a log that began anew after it was read to its end."""
        header = self._read_header()
        if header is None or self._header is None or self._state is None:
            raise HistoryLost(str(self.path), "the log has no header")
        if header.salts == self._header.salts:
            return False
        if header.salts[0] != (self._header.salts[0] + 1) & 0xFFFFFFFF:
            raise HistoryLost(str(self.path), "the log began anew more than once")
        self._header = header
        self._state = self._state._replace(salts=header.salts, position=header.start)
        return True

    def _read_changes(self) -> Change | None:
        assert self._header is not None  # noqa: S101 - the callers looked
        assert self._state is not None  # noqa: S101
        header, before = self._header, self._state
        size = CHUNK_BYTES // header.frame_size * header.frame_size
        chunk = self._pread(size, before.position.offset)
        frames = scan_frames(header, before.position, chunk)
        while not frames.pages and len(chunk) == size:  # one transaction larger than the chunk
            size *= 2
            chunk = self._pread(size, before.position.offset)
            frames = scan_frames(header, before.position, chunk)
        if not frames.pages:
            return None
        self._state = before._replace(position=frames.end, pages=frames.pages)
        pages = self._changed(header, before.pages, frames, chunk)
        return Change(header.page_size, frames.pages, pages, before.position.offset, self._state)

    def _changed(self, header: WalHeader, before: int, frames: WalFrames, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the latest version of each page, and pages that were allocated and never written."""
        latest = frames.latest()
        new = range(before + 1, frames.pages + 1)
        for number in sorted(latest.keys() | set(new)):
            if number > frames.pages or number == lock_page(header.page_size):
                continue
            at = latest.get(number)
            if at is None:
                yield number, self._database_page(number, header.page_size)
            else:
                start = at * header.frame_size + FRAME_HEADER_BYTES
                yield number, chunk[start : start + header.page_size]

    def _scan_all(self, header: WalHeader) -> tuple[WalFrames, dict[int, int]]:
        """Return the last frames of the log, and where in it the latest version of each page is."""
        latest: dict[int, int] = {}
        position, frames, size = header.start, None, CHUNK_BYTES // header.frame_size * header.frame_size
        while True:
            chunk = self._pread(size, position.offset)
            part = scan_frames(header, position, chunk)
            if part.pages:
                latest.update(
                    (number, position.offset + at * header.frame_size) for number, at in part.latest().items()
                )
                position, frames = part.end, part
            elif len(chunk) < size:
                break
            else:
                size *= 2
        if frames is None:
            raise HistoryLost(str(self.path), "the log has no commit")
        return frames, latest

    def _whole(self, header: WalHeader, pages: int, latest: dict[int, int]) -> Iterator[tuple[int, bytes]]:
        """Yield every page: from the log where it has one, otherwise from the file, which stays as it is meanwhile."""
        size, lock = header.page_size, lock_page(header.page_size)
        step = max(1, _READ_BYTES // size)
        for first in range(1, pages + 1, step):
            numbers = range(first, min(first + step, pages + 1))
            block = self._database_bytes((first - 1) * size, len(numbers) * size)
            for number in numbers:
                at = latest.get(number)
                if number == lock:
                    continue
                if at is None:
                    yield number, block[(number - first) * size : (number - first + 1) * size]
                else:
                    yield number, self._pread(size, at + FRAME_HEADER_BYTES)

    def _database_page(self, number: int, size: int) -> bytes:
        return self._database_bytes((number - 1) * size, size)

    def _database_bytes(self, offset: int, length: int) -> bytes:
        """Return bytes of the database file; zeros behind its end."""
        assert self._file is not None  # noqa: S101 - opened with the capture
        left = max(0, min(length, self._file.xFileSize() - offset))
        found = self._file.xRead(left, offset) if left else b""
        return found + bytes(length - len(found))

    def _renew(self) -> None:
        """Have a read transaction on a frame: begin another after a heartbeat, then give up the one that is held."""
        self._beat()
        self._begin(1)
        self._end(0)
        self._readers.reverse()

    def _beat(self) -> None:
        self._beats += 1
        self._writer.execute(
            f"INSERT INTO {TABLE} VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET beat = beat + 1"  # noqa: S608 - ours
        )

    def _begin(self, number: int) -> None:
        self._readers[number].execute("BEGIN")
        list(self._readers[number].execute(f"SELECT beat FROM {TABLE}"))  # noqa: S608 - ours

    def _end(self, number: int) -> None:
        self._readers[number].execute("ROLLBACK")

    def _read_header(self) -> WalHeader | None:
        return parse_header(self._pread(HEADER_BYTES, 0))

    def _pread(self, length: int, offset: int) -> bytes:
        assert self._log is not None  # noqa: S101 - opened with the capture
        return os.pread(self._log, length, offset)


def check_library() -> None:
    """Refuse a SQLite that can lose commits while it is checkpointed from outside."""
    version = apsw.sqlite_lib_version() if hasattr(apsw, "sqlite_lib_version") else apsw.sqlitelibversion()
    if tuple(int(part) for part in version.split(".")) < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        hint = f"install apsw {needed} or later, which brings its own SQLite"
        raise DatabaseRefused("SQLite", f"{version} can lose commits when a log begins anew", hint=hint)


def check_database(path: Path) -> None:
    """Refuse what is no SQLite database; reading its first bytes drops no lock, because no connection is open yet."""
    hint = "give the path of a database that the application has created"
    try:
        with path.open("rb") as file:
            head = file.read(_DATABASE_HEADER_BYTES)
    except FileNotFoundError:
        raise DatabaseRefused(str(path), "there is no such file", hint=hint) from None
    except OSError as error:
        raise DatabaseRefused(str(path), f"it cannot be read ({error.strerror})", hint=hint) from error
    if head and not head.startswith(b"SQLite format 3\0"):
        raise DatabaseRefused(str(path), "it is not a SQLite database", hint=hint)


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_MS)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    # A log that begins anew is cut to this size by whichever connection does it; for ours it is bounded.
    for pragma in ("wal_autocheckpoint = 0", f"journal_size_limit = {_WAL_KEPT_BYTES}", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    with contextlib.suppress(apsw.Error):
        _persist_log(connection)
    return connection


def _persist_log(connection: apsw.Connection) -> None:
    """Have the log stay when the last connection is closed: the next process goes on with it."""
    import ctypes  # noqa: PLC0415 - only here

    value = ctypes.c_int(1)
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(value))


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - one call for both
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino
