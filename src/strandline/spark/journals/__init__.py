"""A journal as a log of the format `strandline`: its range reader, and its sink.

**Promise.** A query sees every record of its range, in order, or fails and says why: records that retention or damage
removed, and a journal that was replaced or shrank, are refused unless `failOnDataLoss` is false. Committed rows are in
the journal once, however often Spark replays them and whatever was killed meanwhile.

**Reading.** `log` reads ranges over `JournalReader`: Arrow batches are views over the bytes of the file, cut or joined
to a size that suits Spark, with the columns of the given schema and no others (`columns`). The shared readers are in
`strandline.spark.logs`; a range is cut into as many contiguous parts as there are cores, because a part costs Spark
more than a thousand records do. Offsets have no gaps, and `max(offset) + 1` of a batch is the cursor after it: write it
with the effects, in one durable write, and Spark's checkpoint of a stateless query may be thrown away.

**Parquet copies.** `journal_dataframe` (`dataframe`) reads sealed segments from Parquet copies, and the rest by the
format. `segment_copies` says which copy stands for which segment, `copy_builder` makes and removes them.

**The sink.** `sink` is the adapter of `strandline.spark.sink`: a commit appends under the journal's lock, and its state
(`sink_state`) is a file beside the journal. `records` has the rows; `docs/formats/spark-journal.md` has the formats and
the guarantee, with its limits.

**Limits.** No filters are pushed down: Spark keeps those of one query for the next on the same DataFrame. Nothing is
read beyond the durable end. The journal is a folder, which all executors must see.
"""

from strandline.spark.errors import RecordsMissing, SinkUnsure
from strandline.spark.journals.log import read_journal

__all__ = ["RecordsMissing", "SinkUnsure", "read_journal"]
