"""Streams and buckets on a real session and a real server: read, streamed and written, with Spark's traps set."""

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from strandline.nats.errors import Unreachable
from strandline.spark.streams import Target
from tests.servers_nats import NatsServer
from tests.spark.streams.helpers import ServerLog, numbered


def read(spark: SparkSession, world: ServerLog, **options: object) -> DataFrame:
    return spark.read.format("strandline").options(**world.options, **options).load()  # type: ignore[arg-type]


def available(spark: SparkSession, world: ServerLog, checkpoint: Path, **options: object) -> list[Any]:
    """Run a stream into nothing; return its progress."""
    stream = spark.readStream.format("strandline").options(**world.options, **options).load()  # type: ignore[arg-type]
    writing = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def copy(spark: SparkSession, source: ServerLog, target: ServerLog, checkpoint: Path, rows: int = 100) -> None:
    """Copy what a stream has to another through the sink."""
    stream = spark.readStream.format("strandline").options(**source.options, maxRecordsPerTrigger=rows).load()
    renamed = stream.select(f.regexp_replace("subject", source.name, target.name).alias("subject"), "data")
    writing = renamed.writeStream.format("strandline").options(**target.options)
    writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def target(nats_server: NatsServer, nats_bucket: str) -> Iterator[ServerLog]:
    with ServerLog(nats_server.url, Target("stream", f"{nats_bucket}-t")) as world:
        yield world


def test_a_stream_is_read_whole_with_all_its_columns(spark: SparkSession, stream: ServerLog) -> None:
    stream.publish("a", b"one", [("Color", "red")])
    stream.fill(5000)
    rows = read(spark, stream, partitions=2).orderBy("sequence").collect()
    assert [row.sequence for row in rows] == list(range(1, 5002))
    assert (rows[0].subject, bytes(rows[0].data), rows[0].headers) == (f"{stream.name}.a", b"one", {"Color": ["red"]})
    assert (rows[1].headers, bytes(rows[1].data)) == (None, b"value 2")
    assert rows[0].time.year >= 2026
    (row,) = read(spark, stream, startingOffset=100, endingOffset=900).agg(f.count("*").alias("n")).collect()
    assert row.n == 800


def test_a_schema_prunes_columns_and_a_wrong_one_is_refused(spark: SparkSession, stream: ServerLog) -> None:
    stream.fill(500)
    reading = spark.read.format("strandline").options(**stream.options)
    pruned = reading.schema("data BINARY, sequence BIGINT").load()
    assert pruned.columns == ["data", "sequence"]
    assert pruned.selectExpr("CAST(data AS STRING) AS text").first() == ("value 1",)
    with pytest.raises(PySparkException, match="cannot be read as"):
        reading.schema("data STRING").load().count()
    with pytest.raises(PySparkException, match="a stream has no column value"):
        reading.schema("value BINARY").load().count()


def test_hints_of_a_server_that_is_not_there_are_shown(spark: SparkSession) -> None:
    nowhere = spark.read.format("strandline").options(servers="nats://127.0.0.1:1", stream="S").load()
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1") as refusal:
        nowhere.count()
    assert str(Unreachable("x", "y").hint) in str(refusal.value)


def test_a_bucket_has_two_views(spark: SparkSession, bucket: ServerLog) -> None:
    bucket.fill(100)
    bucket.take_away("k1")
    latest = read(spark, bucket).select("key", "value", "kind").orderBy("key").collect()
    assert [(row.key, bytes(row.value)) for row in latest] == sorted(
        (f"k{number % 10}", b"value %d" % number) for number in range(91, 101) if number % 10 != 1
    )
    changes = read(spark, bucket, view="changes").orderBy("revision").collect()
    assert [row.revision for row in changes] == [*range(92, 102)]
    assert (changes[-1].key, changes[-1].kind, changes[-1].value) == ("k1", "delete", None)


def test_unknown_options_and_missing_streams_are_told_with_hints(spark: SparkSession, stream: ServerLog) -> None:
    with pytest.raises(PySparkException, match="no option startingoffsets") as refusal:
        read(spark, stream, startingOffsets=1).count()
    assert "startingTimestamp" in str(refusal.value)
    with pytest.raises(PySparkException, match="there is no stream nobody"):
        spark.read.format("strandline").options(servers=stream.url, stream="nobody").load().count()
    with pytest.raises(PySparkException, match="more than one thing to read"):
        read(spark, stream, path="/x").count()


@pytest.mark.parametrize("is_enabled", [pytest.param("true", marks=pytest.mark.long), "false"])
def test_t1_a_filter_of_one_query_does_not_reach_the_next(
    spark: SparkSession, stream: ServerLog, is_enabled: str
) -> None:
    stream.fill(100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", is_enabled)
    try:
        frame = read(spark, stream)
        assert frame.filter("sequence > 90").count() == 10
        assert frame.count() == 100
        assert frame.filter("sequence > 90").union(frame.filter("sequence <= 90")).count() == 100
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_streaming_query_tells_its_positions_and_its_lag(
    spark: SparkSession, stream: ServerLog, tmp_path: Path
) -> None:
    stream.fill(250)
    progress = available(spark, stream, tmp_path / "c", maxRecordsPerTrigger=100)
    sources = [batch["sources"][0] for batch in progress if batch["numInputRows"]]
    assert [source["endOffset"]["sequence"] for source in sources] == [101, 201, 251]
    assert sources[0]["endOffset"]["created"] == stream.state().created
    assert sources[0]["latestOffset"]["sequence"] - sources[0]["endOffset"]["sequence"] == 150
    stream.fill(10)
    again = available(spark, stream, tmp_path / "c")
    assert sum(batch["numInputRows"] for batch in again) == 10


@pytest.mark.long  # `make test` shows it of a journal, and of the reader and the sink of a stream without Spark
def test_t3_a_query_refuses_a_stream_that_was_made_again_or_trimmed(
    spark: SparkSession, stream: ServerLog, tmp_path: Path
) -> None:
    stream.fill(100)
    available(spark, stream, tmp_path / "c")
    stream.fill(100)
    stream.purge(below=151)
    with pytest.raises(PySparkException, match=r"sequences \[101, 151\) were removed"):
        available(spark, stream, tmp_path / "c")
    stream.make_again()
    stream.fill(300)
    with pytest.raises(PySparkException, match="made again"):
        available(spark, stream, tmp_path / "c")
    progress = available(spark, stream, tmp_path / "c", failOnDataLoss="false")
    assert sum(batch["numInputRows"] for batch in progress) == 300


def test_t9_the_sink_publishes_every_batch_of_a_query_once(
    spark: SparkSession, stream: ServerLog, target: ServerLog, tmp_path: Path
) -> None:
    stream.fill(250)
    copy(spark, stream, target, tmp_path / "c")
    assert target.datas() == numbered(1, 251)
    stream.fill(10)
    copy(spark, stream, target, tmp_path / "c")
    assert target.datas() == numbered(1, 261)
    assert not list((tmp_path / "c" / "strandline-staged").iterdir()), "nothing staged is left"


@pytest.mark.long  # `make test` shows it of a journal, and of the reader and the sink of a stream without Spark
def test_t7_a_batch_that_spark_forgot_to_have_committed_is_not_published_again(
    spark: SparkSession, stream: ServerLog, target: ServerLog, tmp_path: Path
) -> None:
    stream.fill(250)
    copy(spark, stream, target, tmp_path / "c")
    (tmp_path / "c" / "commits" / "2").unlink()
    copy(spark, stream, target, tmp_path / "c")
    assert target.datas() == numbered(1, 251)
    shutil.rmtree(tmp_path / "c")
    copy(spark, stream, target, tmp_path / "c")
    assert target.datas() == numbered(1, 251) * 2, "a new checkpoint is a new query, never dropped for its number"


def test_a_bounded_write_publishes_all_rows_and_once_by_its_name(spark: SparkSession, target: ServerLog) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr(f"'{target.name}.x' AS subject", "CAST(id AS STRING) AS data")
    writing = frame.write.format("strandline").mode("append").options(**target.options)
    for _ in range(2):
        writing.option("commitId", "load 1").save()
    assert target.datas() == [b"%d" % number for number in range(100)]
    frame.write.format("strandline").mode("append").options(**target.options).save()
    assert len(target.datas()) == 200
    with pytest.raises(PySparkException, match="not overwritten"):
        frame.write.format("strandline").mode("overwrite").options(**target.options).save()


def _failing_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail the first attempt of every task after it gave some rows."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")


def test_tasks_that_are_tried_again_publish_their_rows_once(spark: SparkSession, target: ServerLog) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS data").mapInArrow(_failing_once, "data STRING")
    options = {**target.options, "subject": f"{target.name}.x"}
    frame.write.format("strandline").mode("append").options(**options).save()
    assert target.datas() == [b"%d" % number for number in range(100)]


def test_rows_become_keys_of_a_bucket_and_deletes_take_them_away(spark: SparkSession, bucket: ServerLog) -> None:
    frame = spark.range(0, 50, 1, 2).selectExpr("CONCAT('k', id % 10) AS key", "CAST(id AS STRING) AS value")
    frame.write.format("strandline").mode("append").options(**bucket.options).save()
    kinds = "CASE WHEN id = 3 THEN 'delete' WHEN id = 4 THEN 'purge' ELSE 'put' END AS kind"
    some = spark.range(3, 6).selectExpr("CONCAT('k', id) AS key", "CAST(id AS STRING) AS value", kinds)
    some.write.format("strandline").mode("append").options(**bucket.options).save()
    rows = read(spark, bucket).orderBy("key").collect()
    assert {row.key: bytes(row.value) for row in rows} == {
        **{f"k{number}": b"%d" % (40 + number) for number in (0, 1, 2, 6, 7, 8, 9)},
        "k5": b"5",
    }


def test_headers_are_written_and_read_back(spark: SparkSession, target: ServerLog) -> None:
    frame = spark.sql(f"SELECT '{target.name}.x' AS subject, 'd' AS data, map('A', 'x', 'B', 'y') AS headers")
    frame.write.format("strandline").mode("append").options(**target.options).save()
    (row,) = read(spark, target).collect()
    assert {name: values for name, values in row.headers.items() if name != "Nats-Msg-Id"} == {"A": ["x"], "B": ["y"]}
    with pytest.raises(PySparkException, match="header Nats-Msg-Id is the sink's own"):
        frame.withColumn("headers", f.expr("map('Nats-Msg-Id', '1')")).write.format("strandline").mode(
            "append"
        ).options(**target.options).save()
