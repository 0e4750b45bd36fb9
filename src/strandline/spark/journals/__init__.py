"""A journal as a Spark format: one range reader with three doors, and a sink that appends every row once.

**Promise.** A query sees every record of its range, in order, once per replay, or fails and says why: records that
retention or damage took, and a journal that was replaced or shrunk, are refused unless `failOnDataLoss` is false. What
the sink has committed is in the journal once, however often Spark replays it and whatever was killed meanwhile.

**Three doors.** `spark.read.format("strandline")` reads a range; `spark.readStream` reads on as the journal grows;
`read_journal` yields the same Arrow batches without Spark. Below all of them is `ranges`, over `JournalReader`: Arrow
batches are views over the bytes of the file, cut or joined to a size that suits Spark, with the columns that the given
schema asks for and no others. A range is cut into as many contiguous parts as there are cores, since a part costs Spark
more than a thousand records do.

**Positions.** A position is the journal's identity and an offset (`offsets`). The first one is a constant of the query,
as Spark asks for it again when it replays the first batch: a number, or the word "earliest"; "latest" is refused.
`stream` decides how a query goes on. Offsets have no gaps, and `max(offset) + 1` of a batch is the cursor after it:
write it with the effects, in one durable write, and Spark's checkpoint of a stateless query may be thrown away.

**The sink.** Tasks stage Arrow files (`staging`), and the commit appends them under the journal's lock (`sink`) with an
intent before and a note after (`sink_state`); `docs/formats/spark-journal.md` has the formats and the guarantee, with
its limits.

**What it does not do.** No filters are pushed down: Spark keeps those of one query for the next on the same DataFrame.
Nothing is read beyond what is durable. The journal is a folder, which all executors must see.

Only `source` and `writers` import PySpark.
"""

from strandline.spark.errors import RecordsMissing, SinkUnsure
from strandline.spark.journals.ranges import read_journal

__all__ = ["RecordsMissing", "SinkUnsure", "read_journal"]
