"""One untrusted SQLite file: its tables, blocks of their rows, and the cells of a block.

Invariants: the file is never written, and no file appears beside it: a log without its index is read in a copy; the
schema runs no function, view, trigger or virtual table; a value longer than the limit is an error of SQLite, and so is
work beyond a bound; broken bytes are `BROKEN_TABLE`.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from blake3 import blake3

from strandline.scan.sources.errors import Problem, problem_of, stat_version
from strandline.scan.sources.source import ADDRESS_MAX, Part
from strandline.scan.sources.stat_cache import format_stat

MAGIC = b"SQLite format 3\0"
BLOCK_ROWS = 65_536
STEPS_MAX = 200_000_000
"""Instructions of SQLite's machine between two rows: a hostile schema can make it search for ever."""
_STEPS_AT_ONCE = 1_000_000
_READS = {sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_FUNCTION}
_FUNCTIONS = {"count", "min", "max"}
_SPARSE = 4
_ROWIDS = ("rowid", "_rowid_", "oid")


class Block(NamedTuple):
    """Rows of a table: those whose rowid is in a block of `BLOCK_ROWS`, or all (None)."""

    table: str
    number: int | None


class SqliteFile:
    """An open SQLite file; use it as a context."""

    def __init__(self, path: str, size_max: int) -> None:
        self.path = path
        self._size_max = size_max
        self._stack = ExitStack()
        self._steps = self._count = 0
        self.looked_at_ns = time.time_ns()
        self.stat = combined_stat(path)
        try:
            with sqlite_problems(self.stat):
                self._connection = self._stack.enter_context(closing(self._connect()))
        except BaseException:
            self._stack.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        """Connect without leaving a trace; without a log it is read as if it could not change, and checked after."""
        log = Path(f"{self.path}-wal")
        has_log = log.exists() and log.stat().st_size > 0
        if not has_log:
            return self._prepared(self.path, "mode=ro&immutable=1")
        if Path(f"{self.path}-shm").exists():
            try:
                return self._prepared(self.path, "mode=ro")
            except sqlite3.OperationalError:  # its writer crashed: the log has to be recovered, which is a write
                pass
        return self._prepared(self._copied(log), "mode=ro")

    def _copied(self, log: Path) -> str:
        """Copy the file and its log to a temporary folder, and return the path of the copy."""
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-sqlite-"))
        path = str(Path(folder) / "copy.db")
        shutil.copyfile(self.path, path)
        shutil.copyfile(log, f"{path}-wal")
        return path

    def _prepared(self, path: str, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(f"file:{quote(path)}?{mode}", uri=True, isolation_level=None)
        connection.text_factory = bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._size_max)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}").close()
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").close()
        except sqlite3.Error:
            connection.close()
            raise
        connection.set_authorizer(_authorized)
        connection.set_progress_handler(self._step, _STEPS_AT_ONCE)
        return connection

    def _step(self) -> bool:
        self._steps += _STEPS_AT_ONCE
        return self._steps > STEPS_MAX

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of all tables, in the order of names and rowids."""
        with sqlite_problems(self.stat):
            names = self._rows("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'")
            for name in sorted(_text(row[0]) for row in names):
                yield from self._blocks(name)

    def _blocks(self, table: str) -> Iterator[Block]:
        rowid = self._rowid(table)
        try:
            ((first, last, count),) = self._rows(f"SELECT min({rowid}), max({rowid}), count(*) FROM {_quoted(table)}")  # noqa: S608 - quoted
        except sqlite3.OperationalError as error:
            if not str(error).startswith("no such column"):
                raise
            if next(self._rows(f"SELECT 1 FROM {_quoted(table)} LIMIT 1"), None) is not None:  # noqa: S608
                yield Block(table, None)
            return
        if not count:
            return
        if not isinstance(first, int) or (last - first) // BLOCK_ROWS > _SPARSE * (count // BLOCK_ROWS + 1):
            yield Block(table, None)
            return
        at: int | None = first
        while at is not None:
            number = at // BLOCK_ROWS
            yield Block(table, number)
            begin = (number + 1) * BLOCK_ROWS
            ((at,),) = self._rows(f"SELECT min({rowid}) FROM {_quoted(table)} WHERE {rowid} >= ?", begin)  # noqa: S608

    def _rowid(self, table: str) -> str:
        """Return the name of the rowid that no column of the table has; that of one may be empty, or the same twice."""
        cursor = self._connection.execute(f"SELECT * FROM {_quoted(table)} LIMIT 0")  # noqa: S608 - quoted
        taken = {str(column[0]).lower() for column in cursor.description}
        return next((name for name in _ROWIDS if name not in taken), "no_rowid")

    def version(self, block: Block) -> bytes:
        """Return the version of a block: the digest of its columns, rowids and cells."""
        hasher = blake3(repr(block).encode())
        self._count = 0
        for row, name, cell in self._cells(block):
            hasher.update(f"{row}\0{name}\0{len(cell)}\0".encode())
            hasher.update(cell)
        if not self._count:
            raise Problem.VANISHED.error(stat_version(self.stat))
        return b"blake3:" + hasher.digest()

    def parts(self, block: Block, path: str) -> Iterator[Part]:
        """Yield the cells of a block that hold text or bytes."""
        where = f"{path}/{block.table}"
        for address, (row, name, cell) in enumerate(self._cells(block)):
            if address > ADDRESS_MAX:
                raise Problem.TOO_LARGE.error(stat_version(self.stat))
            yield Part(cell, where, address, row=row, field=name)
        if combined_stat(self.path) != self.stat:
            raise Problem.CHANGED_WHILE_READ.error(stat_version(self.stat))

    def _cells(self, block: Block) -> Iterator[tuple[str, str, bytes]]:
        """Yield row, column and bytes of all cells that are not empty; numbers hold no secret."""
        with sqlite_problems(self.stat):
            chosen, bounds = "*", ""
            values: tuple[int, ...] = ()
            if block.number is not None:
                begin = block.number * BLOCK_ROWS
                rowid, values = self._rowid(block.table), (begin, begin + BLOCK_ROWS)
                chosen, bounds = f"{rowid}, *", f" WHERE {rowid} >= ? AND {rowid} < ? ORDER BY {rowid}"
            cursor = self._connection.execute(f"SELECT {chosen} FROM {_quoted(block.table)}{bounds}", values)  # noqa: S608
            skip = 0 if block.number is None else 1
            names = [str(column[0]) for column in cursor.description][skip:]
            for number, row in enumerate(cursor):
                self._steps = 0
                self._count += 1
                shown = str(row[0]) if skip else str(number)
                for name, cell in zip(names, row[skip:], strict=True):
                    if isinstance(cell, bytes) and cell:
                        yield shown, name, cell

    def _rows(self, query: str, *values: int) -> Iterator[Any]:
        self._steps = 0
        return self._connection.execute(query, values)

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_sqlite(path: str | bytes) -> bool:
    """Return whether a file begins as SQLite's do; `ItemProblem` if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(file, len(MAGIC), 0) == MAGIC
        finally:
            os.close(file)
    except OSError as error:
        if problem_of(error).is_skipped:
            return False
        raise problem_of(error).error() from error


def combined_stat(path: str) -> bytes:
    """Return the stat data of a file together with those of its log: transactions change the log alone."""
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - a text of bytes
        if not stat.S_ISREG(found.st_mode):
            raise Problem.NOT_A_FILE.error()
        main = format_stat(found)
        try:
            log = format_stat(os.stat(f"{path}-wal"))  # noqa: PTH116
        except FileNotFoundError:
            return main
    except OSError as error:
        raise problem_of(error).error() from error
    # The times stay where `vouching` looks for them, and are the later ones; the rest is digested. The change time of
    # the log is left out: SQLite sets the owner of a log that it opens as root.
    times = max(main[24:32], log[24:32], key=_number) + max(main[32:40], log[24:32], key=_number)
    return blake3(main + log[:32]).digest(24) + times


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _authorized(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FUNCTIONS | {"like"}:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READS and first != "writable_schema" else sqlite3.SQLITE_DENY


@contextmanager
def sqlite_problems(seen: bytes) -> Iterator[None]:
    """Map errors of SQLite and the operating system to a problem of the item."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorname", "")
        if str(error).startswith("no such table"):
            raise Problem.VANISHED.error(stat_version(seen)) from error
        if code in ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_CANTOPEN"):
            raise Problem.IO_ERROR.error(stat_version(seen)) from error
        raise Problem.BROKEN_TABLE.error(stat_version(seen)) from error
    except (sqlite3.Error, OverflowError, ValueError) as error:
        raise Problem.BROKEN_TABLE.error(stat_version(seen)) from error
    except OSError as error:
        raise problem_of(error).error(stat_version(seen)) from error
