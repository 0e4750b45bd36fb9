"""A driver in a process of its own that is killed, with all its children, at the moment it was told.

    python -m tests.spark.journals.child sink JOURNAL TARGET CHECKPOINT MOMENT
    python -m tests.spark.journals.child foreach JOURNAL EFFECTS CHECKPOINT MOMENT

Moments of the sink's second batch: "intent", "append" (before it is noted) and "done" (before Spark notes it). Moments
of the second foreachBatch: "before" and "after" its one durable write.
"""

import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.journal import Journal
from strandline.spark.journals import sink
from strandline.spark.journals.sink_state import SinkState
from strandline.spark.sessions import session
from strandline.spark.sink.writers import SinkStreamWriter
from strandline.spark.source import StrandlineSource
from tests.servers_spark import SETTINGS

BATCH = 100
ROOT_VARIABLE = "STRANDLINE_TEST_ROOT_PID"
MOMENT_VARIABLE = "STRANDLINE_TEST_MOMENT"


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

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit, and die at the moment."""
        moment = os.environ[MOMENT_VARIABLE]
        store = sink.store_state

        def stored(path: str, state: SinkState) -> None:
            if state.intent is None and moment == "append":
                kill_all()
            store(path, state)
            if state.intent is not None and moment == "intent":
                kill_all()

        if batchId == 1:
            sink.store_state = stored
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


def stream_of(spark: SparkSession, journal: str) -> DataFrame:
    """Return the journal as a stream of small batches."""
    return spark.readStream.format("strandline").option("maxRecordsPerTrigger", BATCH).load(journal)


def copy(spark: SparkSession, journal: str, target: str, checkpoint: str, name: str = "strandline") -> None:
    """Copy what the journal has to the target through the sink."""
    writing = stream_of(spark, journal).select("key", "value").writeStream.format(name)
    writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target).awaitTermination()


def apply(effects: str, batch: DataFrame, number: int, moment: str = "") -> None:
    """Write effects and cursor in one transaction, unless the cursor shows that it happened."""
    table = batch.select("offset").toArrow()
    offsets = table["offset"].to_pylist()
    with closing(sqlite3.connect(effects)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS applied (offset INTEGER)")
        (cursor,) = database.execute("SELECT COALESCE(MAX(offset), -1) FROM applied").fetchone()
        if moment == "before" and number == 1:
            kill_all()
        database.executemany("INSERT INTO applied VALUES (?)", [(offset,) for offset in offsets if offset > cursor])
    if moment == "after" and number == 1:
        kill_all()


def fold(spark: SparkSession, journal: str, effects: str, checkpoint: str, moment: str = "") -> None:
    """Apply what the journal has, batch by batch."""
    writing = stream_of(spark, journal).writeStream.foreachBatch(partial(apply, effects, moment=moment))
    writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Do what the arguments say, and die."""
    mode, journal, target, checkpoint, moment = sys.argv[1:]
    os.environ |= {ROOT_VARIABLE: str(os.getpid()), MOMENT_VARIABLE: moment}
    with session(master="local[2,4]", settings=SETTINGS) as spark:
        if mode == "sink":
            with Journal.open(target):
                pass
            spark.dataSource.register(KilledSource)
            copy(spark, journal, target, checkpoint, KilledSource.name())
        else:
            fold(spark, journal, target, checkpoint, moment)


if __name__ == "__main__":
    main()
