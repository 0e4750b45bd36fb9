"""Buckets and streams read in bulk: a blocking connection of our own, and columns instead of messages.

**Promise.** A reader hands out every message of its subjects after its start, once and in order, whatever happens to
connections, consumers and servers meanwhile; or it says that the stream has removed some (`CursorExpired`), is another
one (`BucketReplaced`), was emptied (`BucketPurged`) or is gone (`BucketNotFound`). Every wait has a limit. Nothing here
needs an event loop, so threads, command lines and executors elsewhere use it alike: settings and plans pickle, while
connections and readers stay in the process that opened them.

**Parts.** `BulkSocket` connects, logs in and receives into one buffer (`inbound`); `JetStreamApi` asks; an
`Attachment` is one consumer with one connection, and ends with the first thing that is wrong; `OrderedReader` makes the
next one and keeps the promise; `BucketReader` tells messages as updates. A `Hangup` ends all waits of a reader, from
any thread, those for a connection that is being made too.

**Order.** The stream is looked at before a consumer is made and after: a server starts silently where the stream does.
A state of each subject's last message is told in the order of revisions, so that it can go on where it broke off.

**Guards.** `FloorGuard` knows up to where nothing is missed. A reader of all subjects looks at the stream's beginning
before it hands out what follows a skipped revision, and every ten seconds. A reader of some subjects cannot tell
revisions of others from lost ones of its own, and has a choice (`Overrun`), with these costs:

    SENTINEL    0.5 us and about 160 bytes for each message that others write; exact, at once
    PROBE       1 ms every ten seconds, whatever others write; a stream that turns over within twice that time is
                taken for an overrun, which costs a repair and loses nothing. The default.
    UNWATCHED   nothing; an overrun is noticed when the reader is opened anew

**Trade-offs.** Two connections for each reader (three with a sentinel). What is handed out was copied once, out of the
receive buffer. Messages that come quickly are read by the megabyte in one pass (`wire.find_deliveries`), those that
trickle one by one; while many wait, a reader waits up to two milliseconds for more of them. A removal in the middle of
the stream that leaves its beginning where it was is not seen (`protocol.windows`).
"""

from strandline.kv.nats.bulk.api import ConsumerSpec, JetStreamApi, stream_state
from strandline.kv.nats.bulk.buckets import (
    BucketReader,
    bucket_plan,
    kinds_of,
    read_keys,
    scan_bucket,
    update_batch,
)
from strandline.kv.nats.bulk.deliveries import Delivered
from strandline.kv.nats.bulk.guards import FloorGuard
from strandline.kv.nats.bulk.hangups import Hangup
from strandline.kv.nats.bulk.ordered import OrderedReader
from strandline.kv.nats.bulk.plans import ReadPlan
from strandline.kv.nats.bulk.socket import BulkSocket, Reply
from strandline.kv.nats.streams import StreamState, stream_identity

__all__ = [
    "BucketReader",
    "BulkSocket",
    "ConsumerSpec",
    "Delivered",
    "FloorGuard",
    "Hangup",
    "JetStreamApi",
    "OrderedReader",
    "ReadPlan",
    "Reply",
    "StreamState",
    "bucket_plan",
    "kinds_of",
    "read_keys",
    "scan_bucket",
    "stream_identity",
    "stream_state",
    "update_batch",
]
