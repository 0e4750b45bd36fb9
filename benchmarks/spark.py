"""The Spark format beside `spark.read.parquet` of the same rows, and what a streaming batch and a session cost.

The peer reads the same offsets, keys and values from uncompressed Parquet, as many files as there are cores. Both are
read into nothing and into an aggregate that touches every value, on a session that is set for throughput; sums are
compared before a figure counts. The same is read through Parquet copies of the journal's segments, made before; "one
column" is the sum of all offsets and "a range" that of a hundredth of them, with no schema given. Streaming figures are
medians over batches of 100 records, on a session as it comes. A session's start is that of a process with its
class-data archive made, import of PySpark included. Whole scans are in `_scans`.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks._harness import Row, alone, compare, medians, report, scratch
from benchmarks._scans import scan_rows
from strandline.journal import WRITTEN, Journal
from strandline.spark import copy_segments, journal_dataframe
from strandline.spark.sessions import session
from strandline.spark.settings import THROUGHPUT

ROUNDS = 5
WARM_UPS = 3
STARTS = 3
SIZES = {128: 4_000_000, 1024: 400_000}
GOALS = {128: 1 / 1.15, 1024: 1 / 0.9}
BATCH = 10_000
STREAM_BATCHES = 60
STREAM_RECORDS = 100
STREAMS = 4
PUBLISHED = 60
PUBLISH_EVERY_S = 0.1
START = """
import time
begin = time.perf_counter()
from strandline.spark.sessions import session
with session() as spark:
    print(time.perf_counter() - begin)
"""


# Rows


def write_rows(folder: Path, size: int, count: int) -> tuple[str, str]:
    """Write the same rows as a journal and as Parquet; return both paths."""
    journal, table = folder / f"journal-{size}", folder / f"parquet-{size}"
    table.mkdir()
    randomness = np.random.default_rng(size)
    halves = [count // 2, count]
    with Journal.open(journal) as writer:
        at = 0
        for part, end in enumerate(halves):
            with pq.ParquetWriter(
                table / f"{part}.parquet", _schema(), compression="none", use_dictionary=False
            ) as out:
                for begin in range(at, end, BATCH):
                    rows = min(BATCH, end - begin)
                    values = _fixed(randomness.bytes(rows * size), rows)
                    keys = _fixed(b"".join(b"%012d" % number for number in range(begin, begin + rows)), rows)
                    writer.append(values, keys=keys, durability=WRITTEN)
                    offsets = pa.array(np.arange(begin, begin + rows))
                    out.write_table(pa.table([offsets, keys, values], schema=_schema()))
            at = end
    return str(journal), str(table)


def _schema() -> pa.Schema:
    return pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def _fixed(data: bytes, rows: int) -> pa.Array:
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(data) // rows))
    return pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(data)])


# Bounded reads


def summed(frame: DataFrame) -> tuple[int, ...]:
    """Touch every row of a frame, and return what shows that it is the same."""
    (row,) = frame.selectExpr("count(*)", "sum(length(value))", "sum(length(key))", "max(offset)").collect()
    return tuple(row)


def read_into_nothing(frame: Callable[[], DataFrame]) -> float:
    """Return the seconds that a read takes whose rows are thrown away."""
    begin = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def read_into_sums(frame: Callable[[], DataFrame]) -> float:
    """Return the seconds that a read takes whose rows are added up."""
    begin = time.perf_counter()
    summed(frame())
    return time.perf_counter() - begin


def bounded(spark: SparkSession, folder: Path) -> list[Row]:
    """Compare reads of the format with reads of Parquet."""
    rows = []
    for size, count in SIZES.items():
        journal, table = write_rows(folder, size, count)
        ours = partial(_journal, spark, journal)
        peer = partial(spark.read.parquet, table)
        assert summed(ours()) == summed(peer()) == (count, count * size, count * 12, count - 1)
        for name, action in (("into nothing", read_into_nothing), ("into sums", read_into_sums)):
            for _ in range(WARM_UPS):  # Java compiles what it saw often
                action(ours)
                action(peer)
            mine, theirs = medians(ROUNDS, [partial(action, ours), partial(action, peer)])
            what = f"read {size} B, {name}"
            per_s = count / 1e6
            rows.append(compare(what, per_s / mine, "spark.read.parquet", per_s / theirs, "M rows/s", goal=GOALS[size]))
    return rows


def through_copies(spark: SparkSession, folder: Path) -> list[Row]:
    """Compare reads through Parquet copies with reads of Parquet, and with the plain source."""
    count = SIZES[128]
    journal, table = folder / "journal-128", folder / "parquet-128"
    if not journal.exists():
        write_rows(folder, 128, count)
    begin = time.perf_counter()
    copy_segments(journal)
    rows = [alone("copies of 128 B rows made", count / (time.perf_counter() - begin) / 1e6, "M rows/s")]
    copied = partial(journal_dataframe, spark, journal, columns=["offset", "key", "value"])
    peer = partial(spark.read.parquet, str(table))
    assert summed(copied()) == summed(peer()) == (count, count * 128, count * 12, count - 1)
    plain = partial(spark.read.format("strandline").load, str(journal))
    whole = partial(journal_dataframe, spark, journal)
    middle = f"offset >= {count // 2} AND offset < {count // 2 + count // 100}"
    cases: list[tuple[str, str, Callable[[], float], Callable[[], float], float]] = [
        (
            "into nothing",
            "spark.read.parquet",
            partial(read_into_nothing, copied),
            partial(read_into_nothing, peer),
            count,
        ),
        ("into sums", "spark.read.parquet", partial(read_into_sums, copied), partial(read_into_sums, peer), count),
        ("one column", "the plain source", partial(_offsets, whole), partial(_offsets, plain), count),
        (
            "a range",
            "the plain source",
            partial(_offsets, whole, middle),
            partial(_offsets, plain, middle),
            count // 100,
        ),
    ]
    for name, against, ours, theirs, size in cases:
        for _ in range(WARM_UPS):
            ours()
            theirs()
        mine, other = medians(ROUNDS, [ours, theirs])
        goal = GOALS[128] if against == "spark.read.parquet" else None
        what = f"read 128 B through copies, {name}"
        rows.append(compare(what, size / mine / 1e6, against, size / other / 1e6, "M rows/s", goal=goal))
    return rows


def _offsets(frame: Callable[[], DataFrame], where: str = "true") -> float:
    """Return the seconds that it takes to add up offsets."""
    begin = time.perf_counter()
    (row,) = (
        frame().where(where).selectExpr("count(*) AS rows", "sum(offset) AS offsets", "min(offset) AS least").collect()
    )
    assert row.offsets == row.rows * row.least + row.rows * (row.rows - 1) // 2
    return time.perf_counter() - begin


def _journal(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("strandline").schema("offset BIGINT, key BINARY, value BINARY").load(path)


# Streams


def micro_batches(spark: SparkSession, folder: Path) -> list[Row]:
    """Return what a batch costs whose rows are in hand in foreachBatch: in a young session, and in one that is warm."""
    path = folder / "stream"
    with Journal.open(path) as journal:
        journal.append([b"v" * 128] * (STREAM_BATCHES * STREAM_RECORDS))
    spent = [_median_batch(spark, path, folder / f"checkpoint-batches-{stream}") for stream in range(STREAMS)]
    return [
        alone("a batch with rows in hand, p50", spent[0], "ms", better="lower", goal=50),
        alone(f"the same in stream {STREAMS} of a session", spent[-1], "ms", better="lower"),
    ]


def _median_batch(spark: SparkSession, path: Path, checkpoint: Path) -> float:
    taken: list[int] = []
    source = spark.readStream.format("strandline").option("maxRecordsPerTrigger", STREAM_RECORDS)
    writing = source.load(str(path)).writeStream.foreachBatch(lambda frame, _: taken.append(frame.toArrow().num_rows))
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(taken) == STREAM_BATCHES * STREAM_RECORDS
    spent = [progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows]
    return statistics.median(spent[5:])


def latency(spark: SparkSession, folder: Path) -> list[Row]:
    """Return how long a record takes from its durable append until it is in hand in foreachBatch."""
    path = folder / "live"
    with Journal.open(path) as journal:
        published: list[float] = []
        in_hand: dict[int, float] = {}

        def take(frame: DataFrame, _: int) -> None:
            offsets = frame.select("offset").toArrow()["offset"].to_pylist()
            now = time.perf_counter()
            in_hand.update(dict.fromkeys(offsets, now))

        stream = spark.readStream.format("strandline").load(str(path))
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint-2")).start()
        for _ in range(PUBLISHED):
            begin = time.perf_counter()
            journal.append([b"v" * 128])
            published.append(begin)
            time.sleep(PUBLISH_EVERY_S)
        deadline = time.monotonic() + 30
        while len(in_hand) < PUBLISHED and time.monotonic() < deadline:
            time.sleep(0.01)
        query.stop()
    assert sorted(in_hand) == list(range(PUBLISHED))
    waits = [1000 * (in_hand[offset] - published[offset]) for offset in range(PUBLISHED // 3, PUBLISHED)]
    return [
        alone("append to rows in hand, p50", statistics.median(waits), "ms", better="lower", goal=70),
        alone("append to rows in hand, p90", statistics.quantiles(waits, n=10)[-1], "ms", better="lower"),
    ]


def copies(spark: SparkSession, folder: Path) -> list[Row]:
    """Return how fast the sink appends what it is given."""
    count, source, target = SIZES[128], folder / "journal-128", folder / "copy"
    frame = spark.read.format("strandline").schema("key BINARY, value BINARY").load(str(source))
    begin = time.perf_counter()
    frame.write.format("strandline").mode("append").save(str(target))
    seconds = time.perf_counter() - begin
    assert summed(_journal(spark, str(target))) == summed(_journal(spark, str(source)))
    return [alone("append 128 B rows through the sink", count / seconds / 1e6, "M rows/s")]


def starts() -> list[Row]:
    """Return how long a session takes to start, in processes of their own."""
    command = [sys.executable, "-c", START]
    spent = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(STARTS + 1)]
    return [alone("session start", statistics.median(spent[1:]), "s", better="lower", goal=2.5)]


def main(sections: Sequence[str]) -> None:
    """Measure and report; names of sections narrow it."""
    rows = starts() if "starts" in sections else []
    heavy = {"bounded": bounded, "through_copies": through_copies, "copies": copies}
    light = {"batches": micro_batches, "latency": latency}
    with scratch() as folder:
        for measures, settings in ((heavy, THROUGHPUT), (light, {})):
            chosen = [measure for name, measure in measures.items() if name in sections]
            if chosen:
                with session(settings=settings) as spark:
                    for measure in chosen:
                        rows += measure(spark, folder.resolve())
    if "scans" in sections:
        rows += scan_rows()
    report("spark", rows)


if __name__ == "__main__":
    main(sys.argv[1:] or ["starts", "bounded", "through_copies", "copies", "batches", "latency", "scans"])
