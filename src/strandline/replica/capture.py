"""Capture: the commits of one SQLite database, read from its write-ahead log beside the application that writes it.

Invariants:

- From the beginning to `close` one of two connections holds a read transaction. While it is on a frame of the log (a
  positive read mark), SQLite cannot begin the log anew. The next one is begun before it is given up, and after a
  heartbeat row was written, so that it is on a frame again.
- Frames count up to the end that SQLite's index of the log names, and no further: what a writer that was killed wrote
  behind it, whole as it may be, was never committed, and the next writer overwrites it.
- The log is given up only in `checkpoint`: under the write lock, all of it is read first; then the checkpoint runs; a
  read transaction is begun before the write lock is let go. It is on a frame, or on the database alone: then the log
  may begin anew once, and nothing is written back from it, so it cannot begin anew twice. Either way no commit escapes.
  Where a busy database lets no heartbeat in, the log is read on in that state.
- A commit is handed out once, whole and in order. Where that cannot be proved (the salts of the log are not the
  expected ones, or its frames do not continue), `HistoryLost` is raised and a snapshot goes on.
- Memory is bounded: a change of more than `CHUNK_BYTES` is read from the log page by page while it is shipped, and the
  log is not given up before that.
- The database file is read through SQLite's own file layer: closing a file descriptor of the database would drop the
  locks of every connection in the process.
- What SQLite says becomes an error of ours: `Unavailable` where it passes (busy, a full disk), and the same call may be
  made again; `Damaged` or `DatabaseRefused` where it stays.
- Nothing is written while another SQLite library of this process has the database open: locks hold between processes,
  and between connections of one library.

SQLite before 3.51.3 can lose commits when a checkpoint meets the beginning of a log, so an older library is refused.
"""

import contextlib
import os
import secrets
import struct
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.files import OsDisk
from strandline.lazy_imports import deferred
from strandline.replica.connections import BUSY_MS, check_library, check_one_library, connect, sqlite_errors
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

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

TABLE = "_strandline_replica"
CHUNK_BYTES = 16 << 20
"""How much of a log is one change, once it has a commit."""
_FIRST_BYTES = 256 << 10
INDEX_WITHIN_S, INDEX_PAUSE_S = 5.0, 0.0002
_SALTS = struct.Struct(">II")
_LOCK_MS = 250
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
    is_all: bool = True
    """Whether everything that was committed before it was asked for is in it."""
    is_part: bool = False
    """Whether more parts of the same snapshot follow."""


class Resumed(Enum):
    """Whether a log goes on from where it was read."""

    CONTINUES = "it does"
    BEGAN_ANEW = "it is another log: only a snapshot goes on"
    BEHIND = "it ends before, or is another from there on: commits were lost"


class Capture:
    """The commits of one database. Used by one thread."""

    def __init__(self, path: Path, lineage: str = "") -> None:
        self.path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._log: int | None = None
        self._file: apsw.VFSFile | None = None
        self._header: WalHeader | None = None
        self._state: LogState | None = None
        self._pending: Change | None = None
        self._is_let_go = False
        self._readers: list[apsw.Connection] = []
        check_library()
        self._identity = _identity(path)  # before it is opened: a file that takes its place later is another one
        self.lineage = lineage
        """The identity of the database, which its copies share: a row of the database itself."""
        with sqlite_errors(path):
            self._writer = connect(path)
            try:
                self._readers += [connect(path), connect(path)]
                self._prepare()
            except BaseException:
                self.close()
                raise

    def _prepare(self) -> None:
        (mode,) = next(iter(self._writer.execute("PRAGMA journal_mode")))
        if mode != "wal":
            hint = f"run `PRAGMA journal_mode = wal` once; it stays, and {self.path.name} is replicated from then on"
            raise DatabaseRefused(str(self.path), f"the journal mode is {mode}, not wal", hint=hint)
        self.lineage = self.lineage or self._known_lineage() or secrets.token_hex(16)
        try:
            self._beat()
        except apsw.ReadOnlyError as error:
            hint = "a replicator writes a row now and then: give it the right to write, as the application has"
            raise DatabaseRefused(str(self.path), "it cannot be written", hint=hint) from error
        self._begin(0)
        self._renew()
        self._log = os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC)
        OsDisk().sync_folder(self.path.absolute().parent)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
        self._file = apsw.VFSFile("", str(self.path), [flags, 0])

    def _known_lineage(self) -> str | None:
        """Return the identity that the database was given when it was first replicated."""
        if not list(self._writer.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (TABLE,))):
            return None
        found = list(self._writer.execute(f"SELECT lineage FROM {TABLE}"))  # noqa: S608 - ours
        return str(found[0][0]) if found else None

    @property
    def log_path(self) -> Path:
        """Where the log is: what changes when something is committed."""
        return self._log_path

    @property
    def inode(self) -> int:
        """Return which file the database is."""
        return self._identity[1]

    @property
    def state(self) -> LogState | None:
        """How far the log was read; None before `resume` or `snapshot`."""
        return self._state

    def resume(self, state: LogState) -> Resumed:
        """Go on from where an earlier process was, if the log continues from there."""
        header = self._read_header()
        if header is None or header.salts != state.salts or header.page_size != state.page_size:
            return Resumed.BEGAN_ANEW
        # All of it: after a power cut a frame may have outlived one before it, and SQLite counts neither.
        end, _, _ = self._committed(header, header.start, stop=state.position.offset)
        if end != state.position:
            return Resumed.BEHIND
        self._header, self._state, self._pending = header, state, None
        return Resumed.CONTINUES

    def sync(self) -> None:
        """Have the log on stable storage, so that no power cut takes from this database what was shipped."""
        assert self._log is not None  # noqa: S101 - opened with the capture
        os.fdatasync(self._log)

    def snapshot(self) -> Change:
        """Return the whole database as it is now; later changes continue from there."""
        self._pending = None
        with sqlite_errors(self.path):
            self._renew()
        self._check_files()
        self._header = header = self._read_header()
        if header is None:
            raise HistoryLost(str(self.path), "the log has no header")
        end, count, latest = self._committed(header, header.start)
        if count == 0:
            raise HistoryLost(str(self.path), "the log has no commit")
        self._state = LogState(header.salts, end, count, header.page_size)
        pages = self._whole(header, count, latest)
        return Change(header.page_size, count, pages, HEADER_BYTES, self._state, is_whole=True)

    def changes(self) -> Change | None:
        """Return what was committed since the last call; None where nothing was."""
        if self._pending is not None:
            change, self._pending = self._pending, None
            return change
        if self._state is None or self._header is None:
            raise HistoryLost(str(self.path), "the log was not read yet")
        self._check_files()
        found = self._read_header()
        if self._is_let_go and found is not None:
            self._follow_log()
        elif found is None or found.salts != self._header.salts:
            raise HistoryLost(str(self.path), "the log began anew although it was held")
        return self._read_changes()

    def _check_files(self) -> None:
        """Raise `HistoryLost` where the database or its log is another file than the one that is held."""
        assert self._log is not None  # noqa: S101 - opened with the capture
        if _identity(self.path) != self._identity:
            raise HistoryLost(str(self.path), "the database file was replaced")
        held = os.fstat(self._log)
        if _identity(self._log_path) != (held.st_dev, held.st_ino):
            raise HistoryLost(str(self.path), "the log was removed or replaced")

    def unfinished(self) -> int | None:
        """Return when the log was last written, if frames stand behind the last commit that was read; None otherwise.

        SQLite writes the frames of a commit first, and lets them count a moment later, which changes no file that can
        be watched. Frames of a transaction that is rolled back, or whose writer was killed, stand there for longer.
        """
        if self._state is None or self._header is None or self._log is None:
            return None
        salts = self._pread(8, self._state.position.offset + 8)
        is_frame = len(salts) == 8 and _SALTS.unpack(salts) == tuple(self._header.salts)  # noqa: PLR2004 - two numbers
        return os.fstat(self._log).st_mtime_ns if is_frame else None

    def log_bytes(self) -> int:
        """Return how much of the log is in use."""
        return self._state.position.offset if self._state else 0

    def checkpoint(self) -> bool:
        """Write the log back into the database and let it begin anew; return whether it did, or was busy.

        What is read meanwhile is the next change.
        """
        if self._state is None or self._pending is not None:
            return False
        with sqlite_errors(self.path):
            return self._held_again() if self._is_let_go else self._checkpoint()

    def _checkpoint(self) -> bool:
        check_one_library(self.path)
        self._writer.set_busy_timeout(_LOCK_MS)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        finally:
            self._writer.set_busy_timeout(BUSY_MS)
        try:
            if not self._seal():
                return False
            self._end(0)
            try:
                self._readers[0].execute("PRAGMA wal_checkpoint(PASSIVE)")
                self._begin(0)
            except BaseException:
                self._header = None  # nothing holds the log: only a snapshot goes on
                raise
            self._is_let_go = True
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        return self._held_again()

    def _held_again(self) -> bool:
        """Hold the log by a frame again; return whether it began anew. A busy database is left for the next time."""
        with contextlib.suppress(apsw.BusyError):
            self._renew()
        return self._follow_log()

    def close(self) -> None:
        """Let go of the database; the log stays for the next process to go on with."""
        for connection in (*self._readers, self._writer):
            connection.close()
        if self._file is not None:
            self._file.xClose()
            self._file = None
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _seal(self) -> bool:
        """Read what is left in the log, all into memory, as the next change; return whether that is everything."""
        change = self._read_changes()
        if change is None:
            return True
        if change.state.position.offset - change.start > CHUNK_BYTES:
            self._pending = change._replace(is_all=False)
            return False
        self._pending = change._replace(pages=iter(list(change.pages)), is_all=False)
        return change.is_all

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
        header, before, stop = self._header, self._state, self._end_of_log(self._header)
        size = max(1, _FIRST_BYTES // header.frame_size) * header.frame_size
        while True:
            chunk = self._pread(max(0, min(size, stop - before.position.offset)), before.position.offset)
            frames = scan_frames(header, before.position, chunk)
            is_all = len(chunk) < size or frames.is_cut
            if is_all or size >= CHUNK_BYTES:
                break
            size *= 4
        if not frames.pages:
            return None if is_all else self._read_long()
        self._state = before._replace(position=frames.end, pages=frames.pages)
        pages = self._changed(header, before.pages, frames, chunk)
        return Change(header.page_size, frames.pages, pages, before.position.offset, self._state, is_all=is_all)

    def _read_long(self) -> Change | None:
        """Return a transaction that is longer than a chunk; its pages are read when they are asked for."""
        assert self._header is not None  # noqa: S101 - the callers looked
        assert self._state is not None  # noqa: S101
        header, before = self._header, self._state
        end, count, latest = self._committed(header, before.position, is_first=True)
        if count == 0:
            return None
        self._state = before._replace(position=end, pages=count)
        pages = self._changed_long(header, before.pages, count, latest)
        return Change(header.page_size, count, pages, before.position.offset, self._state, is_all=False)

    def _changed_long(
        self, header: WalHeader, before: int, count: int, latest: dict[int, int]
    ) -> Iterator[tuple[int, bytes]]:
        for number in sorted(latest.keys() | set(range(before + 1, count + 1))):
            if number > count or number == lock_page(header.page_size):
                continue
            at = latest.get(number)
            if at is None:
                yield number, self._database_page(number, header.page_size)
            else:
                yield number, self._pread(header.page_size, at + FRAME_HEADER_BYTES)

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

    def _committed(
        self, header: WalHeader, position: WalPosition, *, stop: int | None = None, is_first: bool = False
    ) -> tuple[WalPosition, int, dict[int, int]]:
        """Return the end of the last commit, the size after it, and where in the log the latest of each page is.

        It looks no further than `stop`, and with `is_first` no further than the first chunk that has a commit.
        """
        size = max(1, CHUNK_BYTES // header.frame_size) * header.frame_size
        stop = min(stop or self._end_of_log(header), self._end_of_log(header))
        end, count, latest, unfinished = position, 0, dict[int, int](), dict[int, int]()
        while True:
            chunk = self._pread(max(0, min(size, stop - position.offset)), position.offset)
            part = scan_frames(header, position, chunk)
            if part.pages:
                latest.update(unfinished)
                unfinished.clear()
                end, count = part.end, part.pages
            else:
                part = scan_frames(header, position, chunk, only_committed=False)
            into = latest if part.end == end else unfinished
            into.update((number, position.offset + at * header.frame_size) for number, at in part.latest().items())
            if part.end == position or (is_first and count):
                return end, count, latest
            position = part.end

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
        with sqlite_errors(self.path):
            left = max(0, min(length, self._file.xFileSize() - offset))
            found = self._file.xRead(left, offset) if left else b""
        return found + bytes(length - len(found))

    def _renew(self) -> None:
        """Have a read transaction on a frame: begin another after a heartbeat, then give up the one that is held."""
        self._beat()
        self._begin(1)
        self._end(0)
        self._readers.reverse()
        self._is_let_go = False

    def _beat(self) -> None:
        """Write a row. The table may be gone: an application may write another database over this one."""
        check_one_library(self.path)
        self._writer.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} "
            "(id INTEGER PRIMARY KEY CHECK (id = 1), beat INTEGER NOT NULL, lineage TEXT NOT NULL)"
        )
        on_conflict = "ON CONFLICT (id) DO UPDATE SET beat = beat + 1, lineage = excluded.lineage"
        self._writer.execute(f"INSERT INTO {TABLE} VALUES (1, 1, ?) {on_conflict}", (self.lineage,))  # noqa: S608 - ours

    def _begin(self, number: int) -> None:
        self._end(number)
        self._readers[number].execute("BEGIN")
        list(self._readers[number].execute("SELECT 1 FROM sqlite_schema LIMIT 1"))

    def _end(self, number: int) -> None:
        if self._readers[number].in_transaction:
            self._readers[number].execute("ROLLBACK")

    def _end_of_log(self, header: WalHeader) -> int:
        """Return where the log ends by SQLite's index; a writer that is about to change the index is waited for."""
        give_up_s, pause_s = time.monotonic() + INDEX_WITHIN_S, INDEX_PAUSE_S
        with sqlite_errors(self.path):
            while True:
                try:
                    frames, _ = self._readers[1].wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
                except apsw.BusyError:
                    if time.monotonic() > give_up_s:
                        raise
                    time.sleep(pause_s)
                    pause_s *= 2
                else:
                    return HEADER_BYTES + max(0, frames) * header.frame_size

    def _read_header(self) -> WalHeader | None:
        return parse_header(self._pread(HEADER_BYTES, 0))

    def _pread(self, length: int, offset: int) -> bytes:
        assert self._log is not None  # noqa: S101 - opened with the capture
        return os.pread(self._log, length, offset)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - one call for both
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino
