"""A fold as a Spark source, and folds built and kept current by Spark.

**Promise.** A DataFrame over a fold is its state at one cursor, whatever is applied to it meanwhile. `fold_build` makes
a fold that holds exactly what a watch over the same bucket would have applied up to its cursor, or nothing at all under
its name. `keep_current` applies a stream batch by batch, data and cursor in one step, so that replays change nothing.

**The source.** `spark.read.format("strandline").option("fold", path)` reads a fold of any backend, which it tells by
what is there, without its lock: one task, since a store answers one question at one moment, and a moment cannot be
shared by processes.

**Building.** Tasks read ranges of the stream (`strandline.spark.streams`), keep the last write of each key by columns
and cut what is left by a hash of the key (`merging`); the driver merges one such cut after the other and applies it.
Nothing is a Spark aggregation or Spark state: a columnar fold in the task is several times faster. What is staged, and
the fold until it is whole, stand beside its path; the last step is a rename. The cursor is a `FoldCursor` of the
revision that the stream ended with when the build was planned, so that `watch_applied` goes on from there.

**Trade-offs.** The driver must see the folder that tasks stage in. The append log holds the fold in memory; SQLite and
RocksDB do not, and a build needs memory for one cut, not for the fold.

Only `source` and the functions that are given a session import PySpark.
"""

from strandline.spark.folds.builder import BuiltFold, fold_build
from strandline.spark.folds.follower import keep_current
from strandline.spark.folds.reader import read_fold

__all__ = ["BuiltFold", "fold_build", "keep_current", "read_fold"]
