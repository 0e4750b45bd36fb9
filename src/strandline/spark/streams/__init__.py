"""A JetStream stream or a bucket as a log of the format `strandline`: its range reader, and its sink.

**Promise.** A query sees every message that its range held when it was planned, in order, or fails and says why:
messages that were evicted before they were read, and a stream that was trimmed, purged, shrunk or made again, are
refused unless `failOnDataLoss` is false. Committed rows are in the stream once, however often Spark replays them and
whatever was killed meanwhile (`sink` states the limits).

**Reading.** `log` reads ranges over `pull_consumer`: one ephemeral consumer for each part, two requests for batches in
flight over a socket of our own, and columns all the way (`columns`). The shared readers are in `strandline.spark.logs`;
a range is cut by sequence into as many parts as there are cores. A batch has at most `maxRecordsPerTrigger` messages
also where most sequences are deleted: its end is then found by counting.

**Why a pull consumer.** 600,000 messages of 128 bytes on two cores, thousand messages a second, three rounds each:
direct gets in batches 290 to 530, before their headers (sequence, subject, time) are parsed; a push consumer 580 to
670; a pull consumer 590 to 740. A pull consumer sends nothing behind the end of its part and needs no flow control, and
"no messages" and "none pending" mark its end exactly, also where the last messages of a range were deleted. Streams
with another retention than limits are refused: there a consumer takes messages away from others.

**Views of a bucket.** `latest` has one row for each key that has a value, and is the default of a bounded read: one
task reads the last message of every key. `changes` has every update that the bucket still keeps; a stream has no other
view.

**The sink.** `sink` is the adapter of `strandline.spark.sink`: a commit publishes in windows (`publisher`), and its
state is an entry in a bucket of the same server (`sink_state`). `messages` has the rows;
`docs/formats/spark-stream.md` has the formats and the guarantee.

**Secrets.** Spark shows the options of a bounded write and of SQL's `OPTIONS` in plans, and hides options whose names
contain "secret": `credsSecret` and `userSecret`. `creds` and user info in `servers` are for reads and streams, whose
options Spark does not show; a bounded write refuses them.

**Limits.** No filters are pushed down: Spark keeps those of one query for the next on the same DataFrame; `subjects`
and `prefix` are filters of the server. Deleted messages in the middle of a stream look like messages that never were.
Nothing waits for a replica: the leader's messages are read.
"""

from strandline.spark.errors import RecordsMissing, SinkUnsure
from strandline.spark.streams.log import read_stream
from strandline.spark.streams.options import Target

__all__ = ["RecordsMissing", "SinkUnsure", "Target", "read_stream"]
