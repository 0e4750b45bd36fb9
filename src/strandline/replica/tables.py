"""The tables of a replicated database, read as rows without SQLite's file: what each is made of, and its rows.

SQLite itself says what a `CREATE TABLE` means: its text is put into the schema of an empty database in memory, as it
is when a file is opened, so that functions and collations that are not there do not matter. Rows are read by `btree`.

Invariants: a row has the values that `SELECT` gives: a rowid alias has the rowid, a column that was added after the row
was written has its default, a REAL column has floats. A virtual generated column is not stored, and is refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import InvalidInput
from strandline.lazy_imports import deferred
from strandline.replica.btree import MISSING, Database, PageReader, find_row_pages, parse_database, read_rows
from strandline.replica.errors import PageDamaged

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

SCHEMA_TABLE = "sqlite_schema"
ROWID = "rowid"
"""The name of a column that every rowid table has beside its own, unless one of these has the name."""
WINDOW_BYTES = 8 << 20
"""How many bytes of pages are fetched at once."""
_WINDOW_PAGES_MIN = 16
_SCHEMA_COLUMNS = {"type": "TEXT", "name": "TEXT", "tbl_name": "TEXT", "rootpage": "INTEGER", "sql": "TEXT"}
_AFFINITIES = (
    ("INTEGER", ("INT",)),
    ("TEXT", ("CHAR", "CLOB", "TEXT")),
    ("BLOB", ("BLOB",)),
    ("REAL", ("REAL", "FLOA", "DOUB")),
)
_VIRTUAL, _STORED = 2, 3


class TableColumn(NamedTuple):
    """A column; `place` is where its value is in a stored row, -1 for a rowid and its alias."""

    name: str
    declared: str
    affinity: str
    place: int
    default: object
    is_virtual: bool = False


class Table(NamedTuple):
    """A table of a database."""

    name: str
    root: int
    is_index: bool
    """Whether it is WITHOUT ROWID."""
    columns: tuple[TableColumn, ...]

    def column(self, name: str) -> TableColumn:
        """Return a column by its name, without regard to case as in SQL; `InvalidInput` where it cannot be read."""
        for column in self.columns:
            if _folded(column.name) == _folded(name):
                if column.is_virtual:
                    hint = "it is computed when it is read: compute it from the columns that it names"
                    raise InvalidInput(f"column {name} of {self.name} is generated and not stored", hint=hint)
                return column
        if _folded(name) == ROWID and not self.is_index:
            return TableColumn(ROWID, "INTEGER", "INTEGER", -1, None)
        has = ", ".join(column.name for column in self.columns if not column.is_virtual)
        raise InvalidInput(f"table {self.name} has no column {name}", hint=f"it has {has}")


SCHEMA = Table(
    SCHEMA_TABLE,
    1,
    is_index=False,
    columns=tuple(TableColumn(name, kind, kind, at, None) for at, (name, kind) in enumerate(_SCHEMA_COLUMNS.items())),
)


def affinity_of(declared: str) -> str:
    """Return the affinity of a declared type, by SQLite's rules."""
    upper = declared.upper()
    if not upper:
        return "BLOB"
    return next((affinity for affinity, words in _AFFINITIES if any(word in upper for word in words)), "NUMERIC")


def read_database(pages: PageReader, commit: int) -> Database:
    """Return what a database says of itself; `commit` is its size in pages."""
    if commit == 0:
        raise PageDamaged(1, "the database is empty")
    return parse_database(pages.page(1), commit)


def list_tables(pages: PageReader, database: Database) -> list[str]:
    """Return the names of the tables that can be read, sorted; SQLite's own are left out."""
    rows = _schema_rows(pages, database)
    return sorted(name for kind, name, root, _ in rows if kind == "table" and root and not name.startswith("sqlite_"))


def find_table(pages: PageReader, database: Database, name: str) -> Table:
    """Return a table by its name; `InvalidInput` with those that there are."""
    if _folded(name) in (SCHEMA_TABLE, "sqlite_master"):
        return SCHEMA
    for kind, found, root, sql in _schema_rows(pages, database):
        if kind not in ("table", "view") or _folded(found) != _folded(name):
            continue
        if kind == "view":
            raise InvalidInput(f"{name} is a view", hint="read its tables, and write the query of the view in Spark")
        if not root:
            hint = "its content is in tables of its own, such as …_content: read those, or restore the database"
            raise InvalidInput(f"{name} is a virtual table", hint=hint)
        return describe_table(found, root, sql, database.encoding)
    there = ", ".join(list_tables(pages, database)) or "no table"
    raise InvalidInput(f"there is no table {name!r}", hint=f"there is {there}")


def describe_table(name: str, root: int, sql: str, encoding: str = "utf-8") -> Table:
    """Return what a `CREATE TABLE` makes in a database with a text encoding."""
    try:
        with _schema_of(name, sql, encoding) as connection:
            columns = list(connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)))
            (is_index,) = next(connection.execute("SELECT wr FROM pragma_table_list(?)", (name,)))
            query = "SELECT name FROM pragma_index_list(?) WHERE origin = 'pk'"
            key = next(iter(connection.execute(query, (name,))), None)
            stored = [cid for cid, *_, hidden in columns if hidden != _VIRTUAL]
            if is_index and key:
                stored = [cid for (cid,) in connection.execute("SELECT cid FROM pragma_index_xinfo(?)", key)]
        has_default = [
            column
            for _, column, _, _, default, _, hidden in columns
            if default is not None and hidden not in (_VIRTUAL, _STORED)
        ]
        defaults = _defaults(name, sql, encoding, has_default, is_index=bool(is_index))
    except (apsw.Error, StopIteration) as error:
        hint = "restore the database, and read it with SQLite"
        raise InvalidInput(f"table {name} cannot be understood: {error}", hint=hint) from error
    alias = [cid for cid, _, _, _, _, pk, _ in columns if pk] if not is_index and key is None else []
    made = []
    for cid, column, declared, _, _, _, hidden in columns:
        is_alias = alias == [cid]
        place = -1 if is_alias or hidden == _VIRTUAL else stored.index(cid)
        value = defaults.get(column)
        made.append(TableColumn(column, declared, affinity_of(declared), place, value, hidden == _VIRTUAL))
    return Table(name, root, bool(is_index), tuple(made))


def _defaults(
    name: str, sql: str, encoding: str, columns: Sequence[str], *, is_index: bool
) -> "dict[str, apsw.SQLiteValue]":
    """Return what SQLite gives for columns of a row that was written before they were added."""
    if not columns:
        return {}
    with _schema_of(name, sql, encoding, is_index=is_index) as connection:
        # The only row has one value. Other indexes than the table itself have no pages here.
        query = f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(name)} NOT INDEXED"  # noqa: S608 - quoted
        return dict(zip(columns, next(connection.execute(query)), strict=True))


@contextmanager
def _schema_of(name: str, sql: str, encoding: str, *, is_index: bool = False) -> "Iterator[apsw.Connection]":
    """Open a database in memory that has a table with one row of one value."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(f"PRAGMA encoding = '{encoding.replace('-le', 'le').replace('-be', 'be')}'")
        connection.execute(f"CREATE TABLE placeholder (x {'PRIMARY KEY) WITHOUT ROWID' if is_index else ')'}")
        connection.execute("INSERT INTO placeholder VALUES (0)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET name = ?, tbl_name = ?, sql = ?", (name, name, sql))
        connection.execute("PRAGMA writable_schema = RESET")
        yield connection
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def split_table(pages: PageReader, database: Database, table: Table, parts_max: int, pages_min: int) -> list[list[int]]:
    """Return the pages that have the rows of a table, in contiguous parts of about the same length."""
    numbers = find_row_pages(pages, database, table.root)
    parts = min(parts_max, max(1, len(numbers) // pages_min))
    bounds = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[start:stop] for start, stop in pairwise(bounds) if stop > start]


def read_table(
    pages: PageReader, database: Database, table: Table, names: Sequence[str], numbers: Sequence[int] | None = None
) -> Iterator[list[object]]:
    """Yield rows of a table with the named columns: those that stand in pages, or all of them."""
    columns = [table.column(name) for name in names]
    wanted = [column.place for column in columns]
    defaults = [column.default for column in columns]
    reals = [at for at, column in enumerate(columns) if column.affinity == "REAL"]
    numbers = find_row_pages(pages, database, table.root) if numbers is None else numbers
    step = max(_WINDOW_PAGES_MIN, WINDOW_BYTES // database.page_size)
    for start in range(0, len(numbers), step):
        window = numbers[start : start + step]
        pages.prefetch(window)
        for values in read_rows(pages, database, window, wanted, is_index=table.is_index):
            for at, value in enumerate(values):
                if value is MISSING:
                    values[at] = defaults[at]
            for at in reals:
                if isinstance(value := values[at], int):  # SQLite stores floats without a fraction so
                    values[at] = float(value)
            yield values


def _schema_rows(pages: PageReader, database: Database) -> Iterator[tuple[str, str, int, str]]:
    for kind, name, root, sql in read_table(pages, database, SCHEMA, ("type", "name", "rootpage", "sql")):
        yield str(kind), str(name), root if isinstance(root, int) else 0, str(sql)


def _folded(name: str) -> str:
    """Return a name without regard to case, as SQLite compares names: by ASCII alone."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)
