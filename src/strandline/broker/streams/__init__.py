"""One stream: its messages in a journal or in memory, and its index beside them.

**Invariant.** `Stream` does the I/O; everything else is a function of its arguments. Publishing and replaying go
through the same state, so a crash is only a replay that stops early.

**How.** `Publisher` decides about a batch of messages. `WriteBatch` gathers its records and applies them to the `State`
(the `Index` of rows and subjects, the duplicate window, times to live), and the log (`storage`) keeps them. `Replay`
does the same from the log. `Compaction` moves live messages out of the oldest part of the log, so that the part can be
removed. `StreamStore` appends, compacts and writes the index, and `StreamCheckpoint` is the state where the log begins.
"""

from strandline.broker.streams.copier import Claim, Copied, OriginBatch, part_of
from strandline.broker.streams.files import remove_stream, stream_exists
from strandline.broker.streams.messages import Message, Messages, Reply
from strandline.broker.streams.records import Position
from strandline.broker.streams.state import Removed
from strandline.broker.streams.storage import Ticket
from strandline.broker.streams.stream import Stream
from strandline.broker.streams.subjects import Filter
from strandline.broker.streams.write_batch import PublishBatch, Published, Republish

__all__ = [
    "Claim",
    "Copied",
    "Filter",
    "Message",
    "Messages",
    "OriginBatch",
    "Position",
    "PublishBatch",
    "Published",
    "Removed",
    "Reply",
    "Republish",
    "Stream",
    "Ticket",
    "part_of",
    "remove_stream",
    "stream_exists",
]
