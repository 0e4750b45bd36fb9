"""The examples of docs/spark.md are executed, one after another, on a real session and a real server."""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from strandline.detect import load_builtin
from strandline.objects import LocalObjects
from strandline.pipeline.identity import TenantSecretKey
from strandline.replica import Replicator
from strandline.scan.state import tenant_named
from strandline.spark.streams import Target
from tests.replica import databases as applications
from tests.servers_nats import running_nats
from tests.spark.streams.helpers import ServerLog
from tests.waiting import PATIENCE_S

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "spark.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def names(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return the names that the page supposes: tables, a database, a server with a stream and a bucket."""
    database = sqlite3.connect(tmp_path / "effects.db", check_same_thread=False)
    database.executescript("CREATE TABLE cursor (next); CREATE TABLE effects (value); INSERT INTO cursor VALUES (0)")
    rows = spark.range(20).selectExpr("id", "IF(id % 2 = 0, 'north', 'south') AS region")
    table = spark.sql("SELECT 1 AS id, 'a note' AS notes, named_struct('street', 'x') AS address")
    for name in ("src", "deploy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings").write_text("colour = blue\n")
    with applications.database(tmp_path / "app.db") as application:
        application.execute("CREATE TABLE bookings (id INTEGER PRIMARY KEY, price REAL)")
        application.execute("INSERT INTO bookings (price) VALUES (7), (8.5)")
        with Replicator(tmp_path / "app.db", LocalObjects(tmp_path / "replica")) as replicator:
            replicator.wait_durable(PATIENCE_S)
    with (
        running_nats() as server,
        ServerLog(server.url, Target("stream", "ORDERS"), subjects=["orders.>", "ORDERS.>"]) as orders,
        ServerLog(server.url, Target("bucket", "prices")) as prices,
    ):
        orders.fill(10)
        prices.publish("apples", b"7")
        yield {
            "spark": spark,
            "pc": pc,
            "tempfile": tempfile,
            "database": database,
            "cursor": 0,
            "rows": rows,
            "orders_table": table,
            "servers": server.url,
            "load_builtin": load_builtin,
            "tenant": tenant_named("docs"),
            "key": TenantSecretKey(bytes(32)),
        }
    database.close()


def local(block: str, number: int, folder: Path, url: str) -> str:
    """Return a block for this session: with absolute paths, a checkpoint of its own, and waits of a moment."""
    block = block.replace("with session() as spark:", "if True:").replace("nats://127.0.0.1:4222", url)
    block = block.replace("s3://backups/app", f"file://{folder}/replica")
    block = block.replace("2026-01-05T09:00:00Z", datetime.now(UTC).isoformat())
    block = re.sub(r'"(orders|events|prices\.fold|pipeline\.db|src|deploy)"', rf'"{folder}/\1"', block)
    return re.sub(r'"(checkpoint|c)"', rf'"{folder}/\1-{number}"', block).replace("wait(3600)", "wait(1)")


def prepare(spark: SparkSession, names: dict[str, Any], block: str, folder: Path) -> None:
    """Set the names that only some blocks suppose."""
    if "updates." in block:
        stream = spark.readStream.format("strandline").load(f"{folder}/orders")
        names["updates"] = stream.selectExpr("CAST(offset AS STRING) AS id", "value AS payload")
    if "foreachBatch(apply)" in block and "ORDERS" in block:
        names["apply"] = count
    if "scan_stream(" in block:
        names["stream"] = spark.readStream.format("strandline").load(f"{folder}/orders")


def count(batch: DataFrame, _number: int) -> None:
    """Stand for the effects of a stream."""
    batch.count()


def test_every_example_of_the_page_runs(spark: SparkSession, names: dict[str, Any], tmp_path: Path) -> None:
    (reading,) = [block for block in BLOCKS if '.option("fold"' in block]
    (building,) = [block for block in BLOCKS if "fold_build(" in block]
    at = BLOCKS.index(reading)
    ordered = [*BLOCKS[:at], building, reading, *[block for block in BLOCKS[at + 1 :] if block != building]]
    for number, block in enumerate(ordered):
        prepare(spark, names, block, tmp_path)
        exec(compile(local(block, number, tmp_path, names["servers"]), f"example {number}", "exec"), names)  # noqa: S102
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
    assert names["database"].execute("SELECT value FROM effects").fetchall() == [(b"first",), (b"second",)]
