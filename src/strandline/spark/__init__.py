"""All of it as DataFrames: the workers of a scan; journals, streams and buckets as sources and sinks; folds.

**Promise.** A scan is exactly once in effect, whatever Spark does: retried and speculative tasks, tasks that return
after they were given up, killed executors and drivers, a second driver on the same run. Finished work is not repeated.

**How.** Spark distributes; the pipeline's stores hold the truth.

    sessions       a tuned session for the command line and the tests; library functions take any `spark`
    workers        the workers of a scan (`strandline.scan`) as tasks, which commit findings, ledger and cursor
    table_scan     `scan_table`: durable scans of any DataFrame, each row once by its key and version
    dataframes     `scan_files`, `scan_dataframe`, `scan_stream`: DataFrames of findings that store nothing
    journal_scan   a durable scan of a journal as it grows
    source         the format `strandline`: a journal, a stream, a bucket, a fold or a replica, by its options
    logs           the readers that journals and streams share: positions, ranges, admission control, options, columns
    sink           the sink that journals and streams share: staging, intents, commit and replay
    journals       a journal as a log, and as one DataFrame over Parquet copies of its segments
    streams        a JetStream stream or a bucket as a log
    folds          a fold as a source, and folds that Spark builds and keeps current
    replicas       a table of a replicated SQLite database as a source

**Where Spark is imported.** In this package alone, and only where a job runs: planning a scan that finds nothing to do
imports no PySpark and starts no Java.

**Why the names are imported late.** Spark's worker daemon imports this package before it forks, and libraries that
start threads (pyarrow, numpy) must not be loaded by then. So each name is imported from its module when it is first
used.

**Trade-offs.** Spark's own checkpoint is never the truth for us: a cursor lives with its effects, so that a checkpoint
may be thrown away. SQLite stores serve one machine; past that, PostgreSQL, or etcd for runs and shards.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.extras import require as _require
from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.spark.dataframes import scan_dataframe, scan_files, scan_stream
    from strandline.spark.errors import RecordsMissing, SinkUnsure
    from strandline.spark.folds.artifacts import read_artifact
    from strandline.spark.folds.builder import BuiltFold, fold_build
    from strandline.spark.folds.follower import FoldFollower, keep_current
    from strandline.spark.folds.reader import read_fold
    from strandline.spark.journal_scan.scan import JournalScan, scan_journal
    from strandline.spark.journals.copy_builder import CopiedSegments, copy_segments
    from strandline.spark.journals.dataframe import journal_dataframe
    from strandline.spark.journals.log import read_journal
    from strandline.spark.replicas.reader import read_replica
    from strandline.spark.sessions import session
    from strandline.spark.settings import THROUGHPUT
    from strandline.spark.streams.log import read_stream
    from strandline.spark.streams.options import Target
    from strandline.spark.table_scan import TableScanned, scan_table
    from strandline.spark.workers import SparkWorkers, scan_on_spark

_require("spark", "pyspark")

__all__ = [
    "THROUGHPUT",
    "BuiltFold",
    "CopiedSegments",
    "FoldFollower",
    "JournalScan",
    "RecordsMissing",
    "SinkUnsure",
    "SparkWorkers",
    "TableScanned",
    "Target",
    "copy_segments",
    "fold_build",
    "journal_dataframe",
    "keep_current",
    "read_artifact",
    "read_fold",
    "read_journal",
    "read_replica",
    "read_stream",
    "scan_dataframe",
    "scan_files",
    "scan_journal",
    "scan_on_spark",
    "scan_stream",
    "scan_table",
    "session",
]

# Import a public name from its module when it is first used.
__getattr__ = _lazy_names(
    __name__,
    {
        "table_scan": ("TableScanned", "scan_table"),
        "dataframes": ("scan_dataframe", "scan_files", "scan_stream"),
        "errors": ("RecordsMissing", "SinkUnsure"),
        "folds.artifacts": ("read_artifact",),
        "folds.builder": ("BuiltFold", "fold_build"),
        "folds.follower": ("FoldFollower", "keep_current"),
        "folds.reader": ("read_fold",),
        "journal_scan.scan": ("JournalScan", "scan_journal"),
        "journals.copy_builder": ("CopiedSegments", "copy_segments"),
        "journals.dataframe": ("journal_dataframe",),
        "journals.log": ("read_journal",),
        "replicas.reader": ("read_replica",),
        "sessions": ("session",),
        "settings": ("THROUGHPUT",),
        "streams.log": ("read_stream",),
        "streams.options": ("Target",),
        "workers": ("SparkWorkers", "scan_on_spark"),
    },
)
