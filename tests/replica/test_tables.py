"""Tables read from pages: row for row what SQLite says, for every kind of table, value, page size and encoding."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.objects import MemoryObjects
from strandline.replica import Layout, LtxDamaged, ReplicaGap, Replicator, btree, plan_restore, tables
from strandline.replica.compaction import compact_level, take_snapshot
from strandline.replica.errors import PageDamaged
from strandline.replica.pages import ReplicaPages
from tests.effort import examples
from tests.replica.databases import PAGE_SIZES, database, fill
from tests.waiting import PATIENCE_S

SCHEMAS = (
    "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c REAL, d BLOB)",
    "CREATE TABLE t (a, b INT, c NUMERIC, d)",
    "CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b, c DOUBLE, d TEXT)",
    "CREATE TABLE t (b, c, d, a INTEGER, PRIMARY KEY (a ASC))",
    "CREATE TABLE t (c REAL, a INTEGER, b TEXT NOT NULL, d, PRIMARY KEY (b, a)) WITHOUT ROWID",
    "CREATE TABLE t (d, c, b, a REAL PRIMARY KEY DESC) WITHOUT ROWID",
    "CREATE TABLE t (a INTEGER PRIMARY KEY, v AS (a + 1), b, s TEXT AS (typeof(b) || 'x') STORED, c FLOAT, d)",
)
INTEGERS = st.one_of(st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1))
VALUES = st.one_of(
    st.none(),
    INTEGERS,
    st.floats(allow_nan=False),
    st.text(max_size=40),
    st.binary(max_size=40),
    st.integers(1, 9000).map(bytes),
    st.integers(1, 5000).map(lambda size: "ä" * size),
)
ROWS = st.lists(st.tuples(INTEGERS, VALUES, VALUES, VALUES), max_size=30)


class Image:
    """The pages of a database that is held as bytes; counts those that were asked for."""

    def __init__(self, image: bytes) -> None:
        size = int.from_bytes(image[16:18], "big")
        self._size = 65536 if size == 1 else size
        self._image = image
        self.asked = set[int]()

    @property
    def pages(self) -> int:
        """Return the size of the database."""
        return len(self._image) // self._size

    def page(self, number: int) -> bytes:
        """Return a page."""
        self.asked.add(number)
        return self._image[(number - 1) * self._size : number * self._size]

    def prefetch(self, numbers: Sequence[int]) -> None:
        """Have nothing to do."""


def read(pages: btree.PageReader, commit: int, name: str = "t") -> list[tuple[object, ...]]:
    """Return the rows of a table, without its virtual columns."""
    found = tables.read_database(pages, commit)
    table = tables.find_table(pages, found, name)
    names = [column.name for column in table.columns if not column.is_virtual]
    parts = tables.split_table(pages, found, table, 3, 1)
    return [tuple(row) for part in parts for row in tables.read_table(pages, found, table, names, part)]


def selected(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Return what SQLite says of the same columns, with the types of its values."""
    names = [name for _, name, *_, hidden in connection.execute("PRAGMA table_xinfo(t)") if hidden != 2]
    return connection.execute(f"SELECT {', '.join(names)} FROM t").fetchall()  # noqa: S608


def typed(rows: list[tuple[object, ...]]) -> list[str]:
    """Return rows in one order, whichever they came in; 1 and 1.0 are told apart."""
    return sorted(repr(row) for row in rows)


@examples(60)
@given(
    st.sampled_from(SCHEMAS),
    st.sampled_from(PAGE_SIZES),
    st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"]),
    ROWS,
    ROWS,
)
def test_every_row_is_what_sqlite_says(
    schema: str,
    page_size: int,
    encoding: str,
    rows: list[tuple[object, ...]],
    later: list[tuple[object, ...]],
) -> None:
    compare(schema, page_size, encoding, rows, later)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_rows_of_every_length_are_what_sqlite_says(schema: str) -> None:
    rows = [(at, "x" * at, at / 2, bytes(at * 7)) for at in range(1, 700)]
    compare(schema, 512, "UTF-16le", rows, [(-1, "y", None, 2.5)])


def compare(
    schema: str,
    page_size: int,
    encoding: str,
    rows: Sequence[tuple[object, ...]],
    later: Sequence[tuple[object, ...]],
) -> None:
    """Compare the rows of a table with what SQLite says of it; columns are added before the later rows."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE other (x)")
        connection.execute(schema)
        insert = "INSERT OR IGNORE INTO t (a, b, c, d) VALUES (?, ?, ?, ?)"
        connection.executemany(insert, rows)
        for column in (
            "e DEFAULT abc",
            "f REAL DEFAULT 1",
            "g TEXT NOT NULL DEFAULT -5",
            "h BLOB DEFAULT x'00ff'",
            "i",
        ):
            connection.execute(f"ALTER TABLE t ADD COLUMN {column}")
        connection.executemany(insert, later)
        connection.execute("DELETE FROM t WHERE a & 7 = 3")
        connection.commit()
        image = Image(connection.serialize())
        found, expected = typed(read(image, image.pages)), typed(selected(connection))
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == theirs
    finally:
        connection.close()


def test_a_tree_of_several_levels_is_read_in_the_order_of_its_keys(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("PRAGMA page_size = 512")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(at * 3, f"row {at} " * 20) for at in range(5000)])
    connection.commit()
    image = Image((tmp_path / "a.db").read_bytes())
    assert read(image, image.pages) == connection.execute("SELECT * FROM t").fetchall()
    connection.close()


def test_only_the_pages_that_the_wanted_columns_need_are_asked_for(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c BLOB, d INTEGER)")
    connection.executemany("INSERT INTO t (b, c) VALUES (?, ?)", [("name", random.randbytes(100_000))] * 20)
    connection.commit()
    connection.close()
    image = Image((tmp_path / "a.db").read_bytes())
    found = tables.read_database(image, image.pages)
    table = tables.find_table(image, found, "T")
    image.asked.clear()
    rows = list(tables.read_table(image, found, table, ["rowid", "b"]))
    assert (rows[-1], len(rows)) == ([20, "name"], 20)
    assert len(image.asked) < 20
    list(tables.read_table(image, found, table, ["d"]))
    assert len(image.asked) > 400, "a column behind a blob is found through it"


def test_a_schema_with_functions_and_collations_of_the_application_is_understood() -> None:
    sql = "CREATE TABLE t (a TEXT COLLATE mine UNIQUE CHECK (known(a)), b DEFAULT (3), c DEFAULT (random()))"
    table = tables.describe_table("t", 7, sql)
    assert [(column.name, column.place, column.affinity) for column in table.columns] == [
        ("a", 0, "TEXT"),
        ("b", 1, "BLOB"),
        ("c", 2, "BLOB"),
    ]
    assert table.columns[1].default == 3


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE t (a ANY UNIQUE, b ANY) STRICT",
        "CREATE TABLE t (b, a PRIMARY KEY, UNIQUE (b, a)) WITHOUT ROWID",
        "CREATE TABLE t (a INTEGER PRIMARY KEY, g AS (a + 1) STORED, b)",
    ],
)
def test_a_row_that_is_older_than_a_column_has_the_value_that_sqlite_gives_it(encoding: str, schema: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"PRAGMA encoding = '{encoding}'")
    connection.execute(schema)
    connection.execute("INSERT INTO t (a, b) VALUES (1, 2)")
    columns = [
        "c ANY DEFAULT '5'",
        "d INTEGER DEFAULT '6'",
        "e TEXT COLLATE nocase DEFAULT 7.50",
        "f BLOB DEFAULT x'01'",
    ]
    if "STRICT" not in schema:
        columns += ['g2 "a-b" DEFAULT 5', "h [x)y] DEFAULT '6'", "i DEFAULT (CAST('ä' AS BLOB))", "j DEFAULT true"]
        columns += ['"k""; --" DEFAULT "word"', "l DEFAULT 9223372036854775808", "m REAL DEFAULT '1e3'", "n DEFAULT +1"]
    for column in columns:
        connection.execute(f"ALTER TABLE t ADD COLUMN {column}")
    connection.commit()
    image = Image(connection.serialize())
    assert typed(read(image, image.pages)) == typed(connection.execute("SELECT * FROM t").fetchall())
    connection.close()


def test_names_are_told_apart_as_sqlite_does() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "É" (a)')
    connection.execute('CREATE TABLE "é" ("ö", "Ö")')
    connection.execute('INSERT INTO "é" VALUES (1, 2)')
    connection.commit()
    image = Image(connection.serialize())
    found = tables.read_database(image, image.pages)
    table = tables.find_table(image, found, "é")
    assert list(tables.read_table(image, found, table, ["Ö", "ö"])) == [[2, 1]]
    connection.close()


def test_bytes_that_are_no_text_are_kept_as_they_are() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a TEXT)")
    connection.execute("INSERT INTO t VALUES (CAST(x'66ff' AS TEXT))")
    connection.commit()
    image = Image(connection.serialize())
    ((text,),) = read(image, image.pages)
    assert isinstance(text, str)
    assert text.encode("utf-8", "surrogateescape") == b"f\xff"
    connection.close()


@pytest.mark.parametrize(
    ("name", "problem"),
    [("v", "is a view"), ("search", "is a virtual table"), ("missing", "there is no table")],
)
def test_what_is_no_table_is_refused(name: str, problem: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, g AS (a))")
    connection.execute("CREATE VIEW v AS SELECT * FROM t")
    connection.execute("CREATE VIRTUAL TABLE search USING fts5 (body)")
    image = Image(connection.serialize())
    connection.close()
    found = tables.read_database(image, image.pages)
    with pytest.raises(InvalidInput, match=problem) as raised:
        tables.find_table(image, found, name)
    assert raised.value.hint
    table = tables.find_table(image, found, "t")
    with pytest.raises(InvalidInput, match="generated and not stored"):
        table.column("g")
    with pytest.raises(InvalidInput, match="has no column z"):
        table.column("z")
    assert {row[1] for row in read(image, image.pages, "sqlite_schema")} >= {"t", "v", "search", "search_content"}


@examples(60)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_damaged_page_is_an_error_or_other_values_never_a_crash(seed: int, changes: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA page_size = 512")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c)")
    connection.executemany("INSERT INTO t (b, c) VALUES (?, ?)", [("x" * at, bytes(10 * at)) for at in range(100)])
    connection.commit()
    image = bytearray(connection.serialize())
    connection.close()
    chance = random.Random(seed)
    for _ in range(changes):
        image[chance.randrange(512, len(image))] = chance.randrange(256)
    pages = Image(bytes(image))
    with suppress(PageDamaged):
        assert all(len(row) == 3 for row in read(pages, pages.pages))


def test_a_tree_that_leads_back_to_itself_ends() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA page_size = 512")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    connection.executemany("INSERT INTO t (b) VALUES (?)", [("x" * 400,)] * 10)
    connection.commit()
    image = bytearray(connection.serialize())
    ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema").fetchall()
    connection.close()
    image[(root - 1) * 512 + 8 : (root - 1) * 512 + 12] = root.to_bytes(4, "big")
    pages = Image(bytes(image))
    with pytest.raises(PageDamaged, match="leads back to itself"):
        read(pages, pages.pages)


def test_a_replica_is_read_at_every_transaction_without_a_restore(tmp_path: Path) -> None:
    store, after = MemoryObjects(), dict[int, list[tuple[object, ...]]]()
    with database(tmp_path / "a.db", 1024) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 200)
        layout = Layout(store)
        with Replicator(tmp_path / "a.db", store) as running:
            for number in range(6):
                fill(connection, 20, seed=number)
                if number == 2:
                    connection.execute("DELETE FROM t WHERE id % 3 > 0")
                    connection.execute("VACUUM")
                if number == 3:
                    compact_level(store, layout, layout.all_files(), 1)
                if number == 4:
                    take_snapshot(store, layout, layout.all_files())
                txid = running.wait_durable(PATIENCE_S).txid
                after[txid] = list(connection.execute("SELECT * FROM t"))
        files = layout.all_files()
        for txid, expected in after.items():
            with ReplicaPages(store, plan_restore(files, txid)) as pages:
                assert read(pages, pages.header.commit) == expected


def test_a_database_that_was_shipped_in_parts_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replica.snapshot_parts.PART_BYTES", 16 << 10)
    store = MemoryObjects()
    with database(tmp_path / "a.db", 1024) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 200)
        with Replicator(tmp_path / "a.db", store) as running:
            assert running.wait_durable(PATIENCE_S).txid > 3
            fill(connection, 5)
            running.wait_durable(PATIENCE_S)
        with ReplicaPages(store, plan_restore(Layout(store).all_files())) as pages:
            assert read(pages, pages.header.commit) == list(connection.execute("SELECT * FROM t"))


@pytest.fixture
def large(tmp_path: Path) -> MemoryObjects:
    """A replica of a database of 4 MB."""
    store = MemoryObjects()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        connection.execute("CREATE TABLE big (body)")
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
        with connection:
            for _ in range(40):
                connection.execute("INSERT INTO big VALUES (randomblob(100000))")
            connection.execute("INSERT INTO t (b) VALUES ('one'), ('two')")
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
            connection.execute("INSERT INTO t (b) VALUES ('three')")
            running.wait_durable(PATIENCE_S)
    return store


def test_a_small_table_of_a_large_database_costs_few_bytes(
    large: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = list[int]()
    get = large.get

    def counted(key: str, *, start: int = 0, stop: int | None = None) -> object:
        found = get(key, start=start, stop=stop)
        fetched.append(len(found.body) if found else 0)
        return found

    files = Layout(large).all_files()
    assert sum(file.size for file in files) > 4_000_000
    monkeypatch.setattr(large, "get", counted)
    with ReplicaPages(large, plan_restore(files)) as pages:
        assert read(pages, pages.header.commit) == [(1, "one"), (2, "two"), (3, "three")]
    assert sum(fetched) < 200_000
    assert len(fetched) < 12


def test_a_page_that_is_not_as_it_was_written_is_refused(large: MemoryObjects) -> None:
    files = Layout(large).all_files()
    first = files[0]
    found = large.get(first.key)
    assert found is not None
    body = bytearray(found.body)
    body[100 + 6 + 30] ^= 1  # within page 1
    large.put(first.key, bytes(body))
    with ReplicaPages(large, [first]) as pages, pytest.raises(LtxDamaged, match="page 1 "):
        pages.page(1)


def test_files_of_two_histories_are_not_mixed(large: MemoryObjects, tmp_path: Path) -> None:
    files = Layout(large).all_files()
    other = MemoryObjects()
    with database(tmp_path / "b.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 5)
        with Replicator(tmp_path / "b.db", other) as running:
            running.wait_durable(PATIENCE_S)
            fill(connection, 5)
            running.wait_durable(PATIENCE_S)
    second = other.get(files[1].key)
    assert second is not None
    large.put(files[1].key, second.body)
    with pytest.raises(ReplicaGap, match="follows another file"):
        ReplicaPages(large, plan_restore(Layout(large).all_files()))


def test_a_file_that_went_away_is_said(large: MemoryObjects) -> None:
    plan = plan_restore(Layout(large).all_files())
    with ReplicaPages(large, plan) as pages:
        large.delete(plan[0].key)
        with pytest.raises(LtxDamaged, match="went away"):
            pages.page(300)
        with pytest.raises(ReplicaGap, match="page 999999 of"):
            pages.page(999_999)
