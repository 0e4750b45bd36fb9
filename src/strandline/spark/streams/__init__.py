"""A JetStream stream or a bucket as a Spark format: one range reader with three doors, and a sink that publishes once.

**Promise.** A query sees every message that its range held when it was planned, in order, or fails and says why:
messages that were evicted before they were read, and a stream that was trimmed, purged, shrunk or made again, are
refused unless `failOnDataLoss` is false. What the sink has committed is in the stream once, however often Spark replays
it and whatever was killed meanwhile (`sink` says within which limits).

**Three doors.** `spark.read.format("strandline")` with `stream` or `bucket` reads a range; `spark.readStream` reads on
as it grows; `read_stream` yields the same Arrow batches without Spark. Below all of them is `ranges`, over `fetching`:
one ephemeral pull consumer for each part, its batches asked for two at a time over a socket of our own, and columns all
the way. A range is cut by sequence into as many parts as there are cores.

**Why a consumer.** 600,000 messages of 128 bytes on two cores, thousand messages a second, three rounds each: direct
gets in batches 290 to 530, before the headers they put their sequence, subject and time into are parsed; a push
consumer 580 to 670; a pull consumer 590 to 740. A pull consumer sends nothing behind the end of its part and needs no
flow control, and "no messages" and "none pending" tell its end exactly, also where the last messages of a range were
deleted. Streams with another retention than limits are refused: there a consumer takes messages away from others.

**Views of a bucket.** `latest` has one row for each key that has a value, the default of a bounded read: one task reads
the last message of every key. `changes` has every update that the bucket still keeps, the only view of a stream.

**Positions.** A position is the stream's name, the moment it was made, and the first sequence that was not read
(`offsets`); `docs/formats/spark-stream.md` has it. The first one is a constant of the query, a number or "earliest",
since Spark asks again when it replays the first batch. A batch has at most `maxRecordsPerTrigger` messages also where
most sequences are deleted: the end is then found by counting (`counting`).

**Secrets.** Spark shows the options of a bounded write and of SQL's `OPTIONS` in plans, and hides those whose names
speak of secrets: `credsSecret` and `userSecret`. `creds` and user info in `servers` are for reads and streams, whose
options it does not show; a bounded write refuses them.

**What it does not do.** No filters are pushed down: Spark keeps those of one query for the next on the same DataFrame;
`subjects` and `prefix` are filters of the server. Deletions in the middle of a stream cannot be told from messages that
never were. Nothing waits for a replica: what the leader holds is read.

Only `source` and `writers` import PySpark.
"""

from strandline.spark.errors import RecordsMissing, SinkUnsure
from strandline.spark.streams.options import Target
from strandline.spark.streams.ranges import read_stream

__all__ = ["RecordsMissing", "SinkUnsure", "Target", "read_stream"]
