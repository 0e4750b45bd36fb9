"""The format on a real session: found by name, read, streamed and written, with Spark's traps set."""

import gc
import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from strandline.journal import Journal
from strandline.spark.source import StrandlineSource
from tests.spark.journals.child import copy, fold
from tests.spark.journals.helpers import fill, numbered, records, values


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    return spark.read.format("strandline").options(**options).load(str(path))  # type: ignore[arg-type]


def available(spark: SparkSession, path: Path, checkpoint: Path, **options: object) -> list[Any]:
    """Run a stream into nothing; return its progress."""
    stream = spark.readStream.format("strandline").options(**options).load(str(path))  # type: ignore[arg-type]
    writing = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def test_the_format_is_known_by_its_name_and_reads_every_record(spark: SparkSession, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j") as journal:
        journal.append([b"a", b"b"], keys=[b"k", b"l"], headers=[b"h", b""], timestamps=[1_000_000, 2_000_000])
    fill(tmp_path / "j", 1000)
    rows = read(spark, tmp_path / "j", rowsPerBatch=100).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(1002))
    assert [(row.key, bytes(row.value), row.headers) for row in rows[1:3]] == [
        (b"l", b"b", b""),
        (None, b"value 2", None),
    ]
    assert rows[1].timestamp.timestamp() == 0.002


class Telling(StrandlineSource):
    """The format, but it tells how its planner is instead of reading."""

    @classmethod
    def name(cls) -> str:
        return "telling"

    def reader(self, schema: StructType) -> DataSourceReader:
        super().reader(schema)
        raise RuntimeError(f"frozen: {gc.get_freeze_count()}")


def test_a_planner_keeps_what_it_has_loaded_out_of_the_collectors_sight(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1)
    spark.dataSource.register(Telling)
    with pytest.raises(PySparkException, match=r"frozen: [1-9]\d{3}"):
        spark.read.format("telling").load(str(tmp_path / "j")).collect()


def test_a_schema_prunes_columns(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 500)
    pruned = spark.read.format("strandline").schema("value BINARY, offset BIGINT").load(str(tmp_path / "j"))
    assert pruned.columns == ["value", "offset"]
    assert pruned.selectExpr("CAST(value AS STRING) AS text").first() == ("value 0",)
    assert pruned.count() == 500


def test_an_unknown_option_is_refused_and_the_known_ones_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 10)
    with pytest.raises(PySparkException, match="no option startingoffsets") as refusal:
        read(spark, tmp_path / "j", startingOffsets=1).count()
    assert "startingTimestamp" in str(refusal.value)


@pytest.mark.parametrize("is_enabled", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_t1_a_filter_of_one_query_does_not_reach_the_next(spark: SparkSession, tmp_path: Path, is_enabled: str) -> None:
    fill(tmp_path / "j", 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", is_enabled)
    try:
        frame = read(spark, tmp_path / "j")
        assert frame.filter("offset > 89").count() == 10
        assert frame.count() == 100
        assert frame.filter("offset > 89").union(frame.filter("offset <= 89")).count() == 100
        assert frame.alias("a").join(frame.filter("offset > 89").alias("b"), "offset", "left").count() == 100
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_tells_its_positions_and_its_lag(spark: SparkSession, tmp_path: Path) -> None:
    identity = fill(tmp_path / "j", 250).hex()
    progress = available(spark, tmp_path / "j", tmp_path / "c", maxRecordsPerTrigger=100)
    sources = [batch["sources"][0] for batch in progress if batch["numInputRows"]]
    assert [source["endOffset"] for source in sources] == [
        {"journal": identity, "offset": offset} for offset in (100, 200, 250)
    ]
    lag = sources[0]["latestOffset"]["offset"] - sources[0]["endOffset"]["offset"]
    assert lag == 150


def test_t3_a_query_refuses_a_journal_that_took_the_place_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    available(spark, tmp_path / "j", tmp_path / "c")
    shutil.rmtree(tmp_path / "j")
    fill(tmp_path / "j", 300)
    with pytest.raises(PySparkException, match="it was made again"):
        available(spark, tmp_path / "j", tmp_path / "c")
    progress = available(spark, tmp_path / "j", tmp_path / "c", failOnDataLoss="false")
    assert sum(batch["numInputRows"] for batch in progress) == 300


def test_t6_a_broken_checkpoint_may_be_thrown_away_where_the_cursor_lives_with_the_effects(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, effects = str(tmp_path / "j"), str(tmp_path / "effects")
    fill(tmp_path / "j", 250)
    fold(spark, journal, effects, str(tmp_path / "c1"))
    newest = tmp_path / "c1" / "offsets" / "2"
    assert newest.stat().st_size
    newest.write_bytes(b"")
    fill(tmp_path / "j", 50)
    with pytest.raises(PySparkException):
        fold(spark, journal, effects, str(tmp_path / "c1"))
    fold(spark, journal, effects, str(tmp_path / "c2"))
    with closing(sqlite3.connect(effects)) as database:
        assert [row[0] for row in database.execute("SELECT offset FROM applied")] == list(range(300))


def test_t9_the_sink_appends_every_batch_of_a_query_once(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 250)
    copy(spark, str(tmp_path / "j"), str(tmp_path / "t"), str(tmp_path / "c"))
    assert values(tmp_path / "t") == numbered(0, 250)
    fill(tmp_path / "j", 10)
    copy(spark, str(tmp_path / "j"), str(tmp_path / "t"), str(tmp_path / "c"))
    assert values(tmp_path / "t") == numbered(0, 260)
    assert not list((tmp_path / "t.spark" / "staged").iterdir()), "nothing staged is left"


def test_t7_a_batch_that_spark_forgot_to_have_committed_is_not_appended_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "j", 250)
    arguments = str(tmp_path / "j"), str(tmp_path / "t"), str(tmp_path / "c")
    copy(spark, *arguments)
    (tmp_path / "c" / "commits" / "2").unlink()
    copy(spark, *arguments)
    assert values(tmp_path / "t") == numbered(0, 250)
    shutil.rmtree(tmp_path / "c")
    copy(spark, *arguments)
    assert values(tmp_path / "t") == numbered(0, 250) * 2, (
        "a new checkpoint is a new query, never dropped for its number"
    )


def test_a_bounded_write_appends_all_rows_and_once_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 3 AS STRING) AS key")
    for _ in range(2):
        frame.write.format("strandline").mode("append").option("commitId", "load 1").save(str(tmp_path / "t"))
    assert [(record.value, record.key) for record in records(tmp_path / "t")] == [
        (b"%d" % number, b"%d" % (number % 3)) for number in range(100)
    ]
    frame.write.format("strandline").mode("append").save(str(tmp_path / "t"))
    assert len(values(tmp_path / "t")) == 200
    with pytest.raises(PySparkException, match="not overwritten"):
        frame.write.format("strandline").mode("overwrite").save(str(tmp_path / "t"))


def _failing_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail the first attempt of every task after it gave some rows."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")


def test_tasks_that_are_tried_again_write_their_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = (
        spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value").mapInArrow(_failing_once, "value STRING")
    )
    frame.write.format("strandline").mode("append").save(str(tmp_path / "t"))
    assert values(tmp_path / "t") == [b"%d" % number for number in range(100)]
    assert not list((tmp_path / "t.spark" / "staged").iterdir())


def test_rows_can_be_read_folded_and_joined_like_any_others(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    frame = read(spark, tmp_path / "j", startingOffset=100, endingOffset=900, partitions=4, rowsPerBatch=50)
    (row,) = frame.agg(f.count("*").alias("n"), f.min("offset").alias("a"), f.max("offset").alias("b")).collect()
    assert (row.n, row.a, row.b) == (800, 100, 899)
