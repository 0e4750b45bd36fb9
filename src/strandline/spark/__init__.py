"""All of it as DataFrames: the scan pipeline on Spark; journals, streams and buckets as sources and sinks; folds.

**Promise.** A scan is exactly once in effect, whatever Spark does: tasks that are retried, run twice or come back from
the dead, executors and drivers that are killed, a second driver on the same run. What is done is not done again.

**How.** Spark distributes; the pipeline's stores hold the truth.

    workers     the workers of a scan (`strandline.scan`) as tasks, which commit findings, ledger and cursor themselves
    source      the format `strandline`: a journal, a stream, a bucket or a fold, by its options
    journals    a journal: one range reader with three doors, and a sink
    streams     a JetStream stream or a bucket, the same way
    folds       a fold as a source, and folds that are built and kept current
    frames      `scan_files`, `scan_dataframe`, `scan_stream`: DataFrames of findings that store nothing
    session     a tuned session for the command line and the tests; library functions take any `spark`

**Where Spark is imported.** In this package alone, and only where a job runs: planning a scan that finds nothing to do
imports no PySpark and starts no Java.

**Trade-offs.** Spark's own checkpoint is never the truth for us: a cursor lives with its effects, so that a checkpoint
may be thrown away. SQLite stores serve one machine; past that, PostgreSQL, or etcd for runs and shards. This list has
the session alone: Spark's worker daemon imports the package before it forks, and what starts threads (pyarrow, numpy)
must wait; everything else is imported from its module.
"""

from strandline.extras import require as _require
from strandline.spark.session import session

_require("spark", "pyspark")

__all__ = ["session"]
