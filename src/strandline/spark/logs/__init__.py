"""The readers that journals and streams share: a log is a sequence of records with rising offsets and an identity.

**Promise.** A query sees every record of its range, in order, or fails and says why: records that were removed before
they were read, and a log that was made again or shrank, are refused unless `failOnDataLoss` is false.

**Three doors.** `spark.read` reads a range and `spark.readStream` reads on as the log grows (`readers`); `read_journal`
and `read_stream` yield the same Arrow batches without Spark.

**Parts.** `positions` has the identity and the offset that Spark keeps in its checkpoint; `ranges` decides which range
is read next, and how many records a batch has; `options` and `columns` are those that every log has. A `LogSource` and
its `Log` are the adapter of one kind of log: `journals.log` and `streams.log`.

Only `readers` imports PySpark.
"""

from strandline.spark.logs.columns import Columns
from strandline.spark.logs.options import At, Given, Place, ReadOptions, View
from strandline.spark.logs.positions import Position, PositionFormat
from strandline.spark.logs.ranges import Bounds, Log, Range

__all__ = [
    "At",
    "Bounds",
    "Columns",
    "Given",
    "Log",
    "Place",
    "Position",
    "PositionFormat",
    "Range",
    "ReadOptions",
    "View",
]
