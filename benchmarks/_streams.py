"""A JetStream stream through Spark beside the same rows in Parquet; and what the sink and a built fold take.

The server runs on the same cores. The peer reads the same sequences, subjects and values from uncompressed Parquet, as
many files as there are cores. Sums are compared before a figure counts. A bucket's fold is built, and watched by a
process of its own, from the same million keys; both must have one digest.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks._harness import Row, alone, compare, medians, scratch
from strandline.fold.backends import open_fold
from strandline.fold.scopes import Scope
from strandline.fold.watch import catch_up
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings
from strandline.nats.jetstream import JetStreamApi, stream_state
from strandline.nats.socket import NatsSocket
from strandline.spark.folds import fold_build
from strandline.spark.sessions import session
from strandline.spark.settings import THROUGHPUT
from strandline.spark.streams import Target, read_stream
from tests.servers_nats import running_nats

ROUNDS = 5
WARM_UPS = 2
SINK_ROUNDS = 3
COUNT = 600_000
VALUE_BYTES = 128
KEYS = 1_000_000
WINDOW = 4_000
SUBJECTS = 1_000
BATCH_ROWS = 50_000


def stream_rows() -> Iterator[Row]:
    """Yield the figures of streams, sinks and built folds."""
    with scratch() as folder, running_nats() as server, session(settings=THROUGHPUT) as spark:
        yield from _reads(spark, server.url, folder.resolve())
        yield from _micro_batches(spark, server.url, folder.resolve())
        yield from _sink(spark, server.url)
        yield from _folds(spark, server.url, folder.resolve())


def _reads(spark: SparkSession, url: str, folder: Path) -> Iterator[Row]:
    _make(url, "ORDERS", {"subjects": ["orders.>"]})
    values = np.random.default_rng(1).bytes(COUNT * VALUE_BYTES)
    _publish(url, "orders.k", SUBJECTS, COUNT, lambda number: values[number * VALUE_BYTES : (number + 1) * VALUE_BYTES])
    table = folder / "parquet"
    _write_parquet(table, values)
    ours, peer = partial(_stream, spark, url), partial(spark.read.parquet, str(table))
    expected = (COUNT, COUNT * VALUE_BYTES, COUNT)
    assert _summed(ours()) == _summed(peer()) == expected
    sides = [partial(_seconds, ours), partial(_seconds, peer), partial(_plain_seconds, url)]
    for _ in range(WARM_UPS):  # Java compiles what it saw often
        for side in sides:
            side()
    spark_s, parquet_s, plain_s = medians(ROUNDS, sides)
    rate = COUNT / 1e6
    what = f"stream of {COUNT:,} x {VALUE_BYTES} B"
    yield compare(f"{what} through Spark", rate / spark_s, "spark.read.parquet", rate / parquet_s, "M rows/s")
    yield compare(f"{what} without Spark", rate / plain_s, "ours through Spark", rate / spark_s, "M rows/s")


def _micro_batches(spark: SparkSession, url: str, folder: Path) -> Iterator[Row]:
    """Yield the rate of a streaming query whose rows are in hand in foreachBatch."""
    taken: list[int] = []
    stream = spark.readStream.format("strandline").schema("sequence BIGINT, data BINARY")
    frame = stream.options(servers=url, stream="ORDERS", maxRecordsPerTrigger=BATCH_ROWS).load()
    writing = frame.writeStream.foreachBatch(lambda rows, _: taken.append(rows.toArrow().num_rows))
    query = writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(taken) == COUNT
    spent = [progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows]
    rate = BATCH_ROWS / statistics.median(spent[3:]) / 1000
    yield alone(f"micro-batches of {BATCH_ROWS:,} rows in hand", rate, "M rows/s")


def _sink(spark: SparkSession, url: str) -> Iterator[Row]:
    """Yield how fast rows are published once, beside bare publishing of the same rows without ids."""
    _make(url, "COPIES", {"subjects": ["copies.>"]})
    _make(url, "BARE", {"subjects": ["bare.>"]})
    count, value = COUNT // 3, bytes(VALUE_BYTES)
    data = f"unhex(repeat('ab', {VALUE_BYTES})) AS data"
    frame = spark.range(0, count, 1, 2).selectExpr("'copies.x' AS subject", data)

    def write() -> float:
        begin = time.perf_counter()
        frame.write.format("strandline").mode("append").options(servers=url, stream="COPIES").save()
        return time.perf_counter() - begin

    def publish() -> float:
        begin = time.perf_counter()
        _publish(url, "bare.x", 1, count, lambda _: value)
        return time.perf_counter() - begin

    write()  # the first starts Python on Spark's side
    ours, bare = medians(SINK_ROUNDS, [write, publish])
    assert stream_state(NatsSettings(url), "COPIES").messages == count * (SINK_ROUNDS + 1)
    rate = count / 1e6
    yield compare("rows published once by the sink", rate / ours, "bare PUB with acks", rate / bare, "M rows/s")


def _folds(spark: SparkSession, url: str, folder: Path) -> Iterator[Row]:
    bucket = {
        "subjects": ["$KV.prices.>"],
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "discard": "new",
        "allow_direct": True,
    }
    _make(url, "KV_prices", bucket)
    value = bytes(VALUE_BYTES)
    _publish(url, "$KV.prices.k", KEYS, KEYS, lambda _: value)
    fold_build(spark, {"servers": url, "stream": "ORDERS"}, folder / "warm")
    begin = time.perf_counter()
    built = fold_build(spark, {"servers": url, "bucket": "prices"}, folder / "built")
    ours = time.perf_counter() - begin
    assert built.entries == KEYS
    begin = time.perf_counter()
    asyncio.run(_watch(url, folder / "watched"))
    watched = time.perf_counter() - begin
    digests = []
    for name in ("built", "watched"):
        store = open_fold(folder / name)
        digests.append(store.verify()[1:])
        store.close()
    assert digests[0] == digests[1]
    rate = KEYS / 1e6
    yield compare(f"fold of {KEYS:,} keys built by Spark", rate / ours, "catch_up", rate / watched, "M keys/s")


async def _watch(url: str, path: Path) -> None:
    async with NatsConnection(url) as connection:
        await catch_up(await connection.store("prices"), Scope(), lambda: open_fold(path))


def _stream(spark: SparkSession, url: str) -> DataFrame:
    reading = spark.read.format("strandline").schema("sequence BIGINT, subject STRING, data BINARY")
    return reading.options(servers=url, stream="ORDERS").load()


def _summed(frame: DataFrame) -> tuple[int, ...]:
    (row,) = frame.selectExpr("count(*)", "sum(length(data))", "max(sequence)").collect()
    return tuple(row)


def _seconds(frame: Callable[[], DataFrame]) -> float:
    begin = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def _plain_seconds(url: str) -> float:
    begin = time.perf_counter()
    batches = read_stream(NatsSettings(url), Target("stream", "ORDERS"), ["sequence", "subject", "data"])
    assert sum(batch.num_rows for batch in batches) == COUNT
    return time.perf_counter() - begin


def _write_parquet(folder: Path, values: bytes) -> None:
    folder.mkdir()
    schema = pa.schema([("sequence", pa.int64()), ("subject", pa.string()), ("data", pa.binary())])
    for part in range(2):
        numbers = range(part * COUNT // 2, (part + 1) * COUNT // 2)
        columns = {
            "sequence": [number + 1 for number in numbers],
            "subject": [f"orders.k{number % SUBJECTS}" for number in numbers],
            "data": [values[number * VALUE_BYTES : (number + 1) * VALUE_BYTES] for number in numbers],
        }
        table = pa.table(columns, schema=schema)
        pq.write_table(table, folder / f"{part}.parquet", compression="none", use_dictionary=False)


def _make(url: str, name: str, config: dict[str, object]) -> None:
    with NatsSocket.connect(NatsSettings(url)) as connection:
        JetStreamApi(connection, "$JS.API").call(f"STREAM.CREATE.{name}", {"name": name, **config}, name)


def _publish(url: str, subject: str, subjects: int, count: int, value: Callable[[int], bytes]) -> None:
    """Publish with a window of acknowledgements, to so many subjects in turn."""
    with NatsSocket.connect(NatsSettings(url)) as connection:
        connection.subscribe("_INBOX.bench")
        for begin in range(0, count, WINDOW):
            numbers = range(begin, min(count, begin + WINDOW))
            frames = [
                b"PUB %s%d _INBOX.bench %d\r\n%s\r\n"
                % (subject.encode(), number % subjects, VALUE_BYTES, value(number))
                for number in numbers
            ]
            connection.send(b"".join(frames))
            answers = 0
            while answers < len(numbers):
                answers += len(connection.receive(30))
