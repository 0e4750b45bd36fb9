"""Drivers in processes of their own: one that is killed in the middle of the sink, one whose traces are searched.

    python -m tests.spark.streams.child sink URL SOURCE TARGET CHECKPOINT MOMENT
    python -m tests.spark.streams.child secrets URL STREAM FOLDER

Moments of the sink's second batch: "intent", "window" (some windows are published), "published" (before it is noted),
"done" (before Spark notes it), and "task" (a worker is killed, then all).
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.spark.sessions import session
from strandline.spark.sink.writers import SinkStreamWriter, Staged
from strandline.spark.source import StrandlineSource
from strandline.spark.streams import publisher as publisher_module
from strandline.spark.streams.publisher import Publisher
from strandline.spark.streams.sink_state import Entry, SinkStates
from tests.servers_spark import SETTINGS

BATCH = 100
WINDOW = 10
ROOT_VARIABLE = "STRANDLINE_TEST_ROOT_PID"
MOMENT_VARIABLE = "STRANDLINE_TEST_MOMENT"
FLAG_VARIABLE = "STRANDLINE_TEST_FLAG"


def kill_all() -> None:
    """Kill the driver, its Java and every Python worker, this one last."""
    root = psutil.Process(int(os.environ[ROOT_VARIABLE]))
    for process in [root, *root.children(recursive=True)]:
        if process.pid != os.getpid():
            with suppress(psutil.NoSuchProcess):  # it ends by itself when its parent does
                process.kill()
    os.kill(os.getpid(), 9)


class KilledWriter(SinkStreamWriter):
    """Dies in its second commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage, but for the first attempt at the moment "task": that dies alone."""
        staged = super().write(iterator)
        flag = Path(os.environ[FLAG_VARIABLE])
        if os.environ[MOMENT_VARIABLE] == "task" and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), 9)
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit, and die at the moment."""
        moment = os.environ[MOMENT_VARIABLE]
        publisher_module.WINDOW_ROWS = WINDOW
        write, send, sent = SinkStates.write, Publisher.send, [0]

        def written(states: SinkStates, key: str, entry: Entry, revision: int) -> int:
            if entry.next is not None and moment == "published":
                kill_all()
            after = write(states, key, entry, revision)
            if entry.next is None and moment == "intent":
                kill_all()
            return after

        def sending(publisher: Publisher, frames: bytes, count: int) -> None:
            send(publisher, frames, count)
            sent[0] += 1
            if sent[0] == 3 and moment in ("window", "task"):
                publisher.collect()
                kill_all()

        if batchId == 1:
            setattr(SinkStates, "write", written)  # noqa: B010 - not a method of its own
            setattr(Publisher, "send", sending)  # noqa: B010
        super().commit(messages, batchId)
        if batchId == 1:
            kill_all()


class KilledSource(StrandlineSource):
    """The format, with a writer that dies."""

    @classmethod
    def name(cls) -> str:
        """Return another name, so that the real one stays what it is."""
        return "strandline-killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:  # noqa: N802
        """Return the writer that dies."""
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, SinkStreamWriter)
        writer.__class__ = KilledWriter
        return writer


def stream_of(spark: SparkSession, url: str, name: str) -> DataFrame:
    """Return a stream in small batches."""
    return spark.readStream.format("strandline").options(servers=url, stream=name, maxRecordsPerTrigger=BATCH).load()


def copy(spark: SparkSession, url: str, source: str, target: str, checkpoint: str, name: str = "strandline") -> None:
    """Copy what a stream has to another through the sink, in two partitions."""
    renamed = f.regexp_replace("subject", source, target).alias("subject")
    rows = stream_of(spark, url, source).select(renamed, "data").coalesce(2)
    writing = rows.writeStream.format(name).options(servers=url, stream=target)
    writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def leave_traces(spark: SparkSession, url: str, name: str, folder: Path) -> None:
    """Use every door with credentials, and write down all that a user can be shown."""
    address, _, secret = url.rpartition("@")[2], None, url.partition("://")[2].rpartition("@")[0]
    shown, hidden = {"servers": url, "stream": name}, {"servers": f"nats://{address}", "stream": name}
    hidden["userSecret"] = secret
    for options in (shown, hidden):
        frame = spark.read.format("strandline").options(**options).load()
        frame.explain("extended")
        frame.explain("formatted")
        print(frame.count(), frame._jdf.queryExecution().toString())  # noqa: SLF001, T201 - what people print
    frame.select("subject", "data").write.format("strandline").mode("append").options(**hidden).save()
    given = ", ".join(f"{key} '{value}'" for key, value in hidden.items())
    spark.sql(f"CREATE TEMPORARY VIEW v USING strandline OPTIONS ({given})")
    spark.sql("SELECT * FROM v").explain("extended")
    for options in (shown, hidden):
        stream = spark.readStream.format("strandline").options(**options).load().select("subject", "data")
        writing = stream.writeStream.format("strandline").options(**options)
        query = writing.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        query.explain(extended=True)
        print(query.lastProgress)  # noqa: T201
    for wrong in ({"stream": "nobody"}, {"failOnDataLoss": "perhaps"}, {"startingOffset": "99999999"}):
        try:
            spark.read.format("strandline").options(**{**shown, **wrong}).load().count()
        except PySparkException as error:
            print(error)  # noqa: T201


def main() -> None:
    """Do what the arguments say."""
    mode, url, *rest = sys.argv[1:]
    os.environ |= {ROOT_VARIABLE: str(os.getpid())}
    if mode == "sink":
        source, target, checkpoint, moment = rest
        os.environ |= {MOMENT_VARIABLE: moment, FLAG_VARIABLE: f"{checkpoint}.flag"}
        with session(master="local[2,4]", settings=SETTINGS) as spark:
            spark.dataSource.register(KilledSource)
            copy(spark, url, source, target, checkpoint, KilledSource.name())
    else:
        name, folder = rest[0], Path(rest[1])
        events = folder / "events"
        events.mkdir()
        logged = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(events),
            "spark.eventLog.compress": "false",
        }
        with session(master="local[2,4]", settings=SETTINGS | logged) as spark:
            leave_traces(spark, url, name, folder)


if __name__ == "__main__":
    main()
