"""Tables of a replica as DataFrames and as Arrow batches: the rows of one position, with types that are said."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.errors import InvalidInput
from strandline.objects import LocalObjects
from strandline.replica import Layout, Replicator, RestorePointMissing
from strandline.replica.compaction import compact_level
from strandline.spark.replicas.reader import parse_replica_options, plan_parts, read_part, read_replica
from tests.replica.databases import database
from tests.waiting import PATIENCE_S

SCHEMA = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL, due DATE, picture BLOB, loose, v AS (id + 1));
    CREATE TABLE codes (code TEXT PRIMARY KEY, meaning TEXT) WITHOUT ROWID;
    CREATE TABLE wrong (number INTEGER, text TEXT);
    INSERT INTO codes VALUES ('a', 'first'), ('b', 'second');
    INSERT INTO wrong VALUES ('no number', x'ff');
"""


class SmallReplica:
    """A replica in a folder, and what its database held after two transactions."""

    def __init__(self, folder: Path) -> None:
        self.address = f"file://{folder}/replica"
        self.query = "SELECT id, item, price, due, picture, loose FROM orders ORDER BY id"
        with database(folder / "a.db", 1024) as connection:
            connection.set_busy_timeout(int(PATIENCE_S * 1000))
            connection.execute(SCHEMA)
            with Replicator(folder / "a.db", LocalObjects(folder / "replica")) as running:
                self._insert(connection, 3000)
                self.first = running.wait_durable(PATIENCE_S).txid
                self.rows_at_first = list(connection.execute(self.query))
                self.between = datetime.now(UTC)
                self._insert(connection, 500)
                connection.execute("DELETE FROM orders WHERE id % 5 = 0")
                connection.execute("ALTER TABLE orders ADD COLUMN note TEXT DEFAULT 'none'")
                self.last = running.wait_durable(PATIENCE_S).txid
                self.rows = list(connection.execute(self.query))

    @staticmethod
    def _insert(connection: apsw.Connection, rows: int) -> None:
        insert = "INSERT INTO orders (item, price, due, picture, loose) VALUES (?, ?, ?, ?, ?)"
        with connection:
            for at in range(rows):
                values = (f"item {at}", at, "2026-01-31" if at % 2 else 20260131, bytes(at), None if at % 3 else b"x")
                connection.execute(insert, values)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SmallReplica:
    """Give all tests one replica."""
    return SmallReplica(tmp_path_factory.mktemp("replica"))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """Return the rows of batches."""
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def as_text(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return rows with the column `due`, of affinity NUMERIC, as text."""
    return [(*row[:3], str(row[3]), *row[4:]) for row in rows]


def test_a_table_is_a_dataframe_at_any_position(spark: SparkSession, world: SmallReplica) -> None:
    source = spark.read.format("strandline").option("replica", world.address).option("table", "orders")
    frame = source.option("partitions", 3).load()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("id", "bigint"),
        ("item", "string"),
        ("price", "double"),
        ("due", "string"),
        ("picture", "binary"),
        ("loose", "binary"),
        ("note", "string"),
    ]
    assert frame.rdd.getNumPartitions() == 3
    found = [tuple(row) for row in frame.drop("note").orderBy("id").collect()]
    assert found == as_text(world.rows)
    assert frame.filter("note = 'none'").count() == len(world.rows)
    earlier = source.schema("item STRING, id BIGINT").option("txid", world.first).load()
    assert [tuple(row) for row in earlier.orderBy("id").collect()] == [row[1::-1] for row in world.rows_at_first]


def test_what_a_replica_cannot_do_is_told(spark: SparkSession, world: SmallReplica) -> None:
    options = {"replica": world.address, "table": "codes"}
    frame = spark.read.format("strandline").options(**options).load()
    assert sorted(tuple(row) for row in frame.collect()) == [("a", "first"), ("b", "second")]
    with pytest.raises(PySparkException, match="a replica cannot be written to"):
        frame.write.format("strandline").mode("append").options(**options).save()
    stream = spark.readStream.format("strandline").options(**options).load()
    with pytest.raises(PySparkException, match="a replica cannot be read as a stream"):
        stream.writeStream.format("noop").start().awaitTermination()
    with pytest.raises(PySparkException, match=r"(?s)there is no table 'order'.*codes, orders, wrong"):
        spark.read.format("strandline").options(replica=world.address, table="order").load()


def test_all_tasks_read_the_position_that_was_planned(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/replica"
    with database(tmp_path / "a.db", 512) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
        with connection:
            connection.executemany("INSERT INTO t (b) VALUES (randomblob(?))", [(400,)] * 1000)
        with Replicator(tmp_path / "a.db", LocalObjects(tmp_path / "replica")) as running:
            running.wait_durable(PATIENCE_S)
            expected = list(connection.execute("SELECT a, b FROM t"))
            options = parse_replica_options({"replica": address, "table": "t"})
            schema = pa.schema([("a", pa.int64()), ("b", pa.binary())])
            parts = plan_parts(options, schema, 4)
            connection.execute("UPDATE t SET b = x'00'")
            running.wait_durable(PATIENCE_S)
            layout = Layout(LocalObjects(tmp_path / "replica"))
            compact_level(LocalObjects(tmp_path / "replica"), layout, layout.all_files(), 1)
    assert len(parts) == 4
    assert [row for part in parts for row in rows_of(read_part(options, part, schema))] == expected


def test_batches_without_spark(world: SmallReplica) -> None:
    assert rows_of(read_replica(world.address, "Orders", ["id", "price"], at=world.between)) == [
        (row[0], row[2]) for row in world.rows_at_first
    ]
    batches = list(read_replica(world.address, "orders", ["rowid", "picture"], txid=world.first, rows_per_batch=700))
    assert [batch.num_rows for batch in batches] == [700, 700, 700, 700, 200]
    assert sum(batch.nbytes for batch in batches) > 3000 * 3000 / 2
    assert len(rows_of(read_replica(world.address, "sqlite_schema", ["name"]))) == 4


@pytest.mark.parametrize(("column", "problem"), [("number", "has a text, which is no BIGINT"), ("text", "has a blob")])
def test_a_value_that_does_not_fit_is_an_error_and_another_type_may_be_chosen(
    world: SmallReplica, column: str, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as raised:
        list(read_replica(world.address, "wrong", [column]))
    assert "BINARY" in (raised.value.hint or "")
    options = parse_replica_options({"replica": world.address, "table": "wrong"})
    schema = pa.schema([(column, pa.binary())])
    (part,) = plan_parts(options, schema, 1)
    ((value,),) = rows_of(read_part(options, part, schema))
    assert value in (b"no number", b"\xff")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"replica": "file:///x"}, "by table"),
        ({"table": "x"}, "by table"),
        ({"replica": "file:///x", "table": "t", "txid": "0"}, "txid cannot be '0'"),
        ({"replica": "file:///x", "table": "t", "txid": "1", "timestamp": "2026-01-01T00:00:00Z"}, "two positions"),
        ({"replica": "file:///x", "table": "t", "startingOffset": "1"}, "no option startingoffset"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_replica_options(options)


def test_positions_and_places_that_are_not_there_are_refused(world: SmallReplica, tmp_path: Path) -> None:
    with pytest.raises(RestorePointMissing):
        list(read_replica(world.address, "orders", at=datetime(2020, 1, 1, tzinfo=UTC)))
    with pytest.raises(InvalidInput, match="there is no folder"):
        list(read_replica(f"file://{tmp_path}/nothing", "orders"))
    assert not (tmp_path / "nothing").exists()
    options = parse_replica_options({"replica": world.address, "table": "orders"})
    with pytest.raises(InvalidInput, match="cannot be read as float"):
        plan_parts(options, pa.schema([("id", pa.float32())]), 1)
