"""A NATS client for bulk work: logins and TLS, JetStream requests, and an ordered reader that hands out Arrow columns.

**Promise.** A reader hands out every message of its subjects after its start, once and in order, whatever happens to
connections, consumers and servers meanwhile; or it says that the stream has removed some (`PositionExpired`), is
another one (`StreamReplaced`), was emptied (`StreamPurged`) or is gone (`StreamNotFound`). Every wait has a limit. A
lost answer is never taken for a refusal. No secret is sent to a server that does not encrypt, where encryption was
asked for, and no error or `repr` shows one.

**Invariants.** Nothing here knows of buckets: `strandline.kv.nats` does. Nothing here needs an event loop, but for
`NatsClient`, so threads, command lines and Spark's executors use it alike. Settings and plans pickle; connections and
readers stay in the process that opened them.

**How.** `NatsSettings` and `Login` say where and as whom. `NatsSocket` connects (`handshake`), logs in and receives
into one buffer (`receive_buffer`); `JetStreamApi` sends requests and returns typed answers; a `PushConsumer` is one
consumer with one connection, and ends with the first fault; `OrderedReader` makes the next one and keeps the promise.
A `CancelToken` ends all waits of a reader, from any thread. `requests` is the contract of requests from an event loop,
which `NatsClient` keeps over a socket, and the broker without one.

The stream is looked at before a consumer is made and after: a server starts silently where the stream does. A state
(the last message of each subject) is read in the order of sequences, so that a reader can go on where it broke off.

`FloorGuard` knows up to where nothing is missed. A reader of all subjects checks where the stream begins before it
hands out what follows a skipped sequence, and every ten seconds. A reader of some subjects cannot tell sequences of
others from lost ones of its own, and has a choice (`Overrun`), with these costs:

    SENTINEL    0.5 us and about 160 bytes for each message that others write; exact, at once
    PROBE       1 ms every ten seconds, whatever others write; a stream that turns over within twice that time is
                taken for an overrun, which costs a repair and loses nothing. The default.
    UNWATCHED   nothing; an overrun is noticed when the reader is opened again

**Trade-offs.** Two connections for each reader (three with a sentinel). Columns hold bytes that were copied once, out
of the receive buffer. Messages that come quickly are read by the megabyte in one pass (`wire.find_deliveries`), those
that trickle one by one; while many wait, a reader waits up to two milliseconds for more of them. A removal in the
middle of the stream that leaves its beginning where it was is not seen (`protocol.windows`).
"""

from strandline.nats.cancellation import CancelToken
from strandline.nats.client import NatsClient
from strandline.nats.deliveries import Delivered
from strandline.nats.errors import (
    AccessRefused,
    ConnectionDropped,
    DeliveryBroken,
    JetStreamDisabled,
    LoginRefused,
    NoAnswer,
    PositionExpired,
    ServerRefused,
    StreamFull,
    StreamNotFound,
    StreamPurged,
    StreamReplaced,
    TlsRefused,
    Unreachable,
)
from strandline.nats.floor_guard import FloorGuard
from strandline.nats.jetstream import ConsumerSpec, JetStreamApi, stream_state
from strandline.nats.logins import Login
from strandline.nats.ordered_reader import OrderedReader
from strandline.nats.push_consumer import PushConsumer
from strandline.nats.read_plan import Overrun, ReadPlan
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket, Reply, new_inbox
from strandline.nats.streams import Mirror, StreamState, stream_identity

__all__ = [
    "AccessRefused",
    "CancelToken",
    "ConnectionDropped",
    "ConsumerSpec",
    "Delivered",
    "DeliveryBroken",
    "FloorGuard",
    "JetStreamApi",
    "JetStreamDisabled",
    "Login",
    "LoginRefused",
    "Mirror",
    "NatsClient",
    "NatsSettings",
    "NatsSocket",
    "NoAnswer",
    "OrderedReader",
    "Overrun",
    "PositionExpired",
    "PushConsumer",
    "ReadPlan",
    "Reply",
    "ServerRefused",
    "StreamFull",
    "StreamNotFound",
    "StreamPurged",
    "StreamReplaced",
    "StreamState",
    "TlsRefused",
    "Unreachable",
    "new_inbox",
    "stream_identity",
    "stream_state",
]
