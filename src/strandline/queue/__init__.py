"""A durable work queue: a journal of messages, and groups that each get every message once they can.

**Promise.** What `put` returned is durable. A job is with one taker of a group at a time; it is given again until it
is acknowledged or, after `deliveries_max` deliveries, becomes a dead letter; what was acknowledged never comes back.
That is at-least-once delivery: a taker that is killed after its work and before its `ack` will see the job again.

**Invariants.** A group is never given a message that is not durable, so it cannot answer for work that a crash takes
back. The dead letter is durable before the message is acknowledged. A segment of messages is removed only when every
group has durably acknowledged all of it: the slowest group keeps what it needs, and a group that is not used should
be removed.

**Parts.** `QueueStorage` is the contract, small enough to implement over something else, and
`strandline.testing.check_queue_storage` tells whether that was done right. `JournalStorage` is the durable one,
`MemoryStorage` its twin, `RemoteStorage` the one of another process, and `Queue` what people use.

**Trade-offs.** Every `take` and every `ack` is one fsync, shared with those of other threads; `prefetch` and
`ack_many` pay it once for many. Order is by offset for first deliveries and by time for repeated ones; there is no
strict order per key. A message that waits in a taker's `prefetch` counts as delivered. Dead letters are kept for ever,
with a copy of their message. One process owns the folder; it can `serve` the queue at a socket, and others `connect`.
"""

from strandline.queue.config import QueueConfig
from strandline.queue.durable import JournalStorage
from strandline.queue.events import DeadLettersLost, MessagesSkipped
from strandline.queue.memory import MemoryStorage
from strandline.queue.queue import Job, Queue
from strandline.queue.remote import RemoteStorage
from strandline.queue.server import QueueServer, format_address
from strandline.queue.storage import (
    DeadLetter,
    DeadLetterStorage,
    Expired,
    GroupStatus,
    GroupStorage,
    Message,
    QueueStorage,
)

__all__ = [
    "DeadLetter",
    "DeadLetterStorage",
    "DeadLettersLost",
    "Expired",
    "GroupStatus",
    "GroupStorage",
    "Job",
    "JournalStorage",
    "MemoryStorage",
    "Message",
    "MessagesSkipped",
    "Queue",
    "QueueConfig",
    "QueueServer",
    "QueueStorage",
    "RemoteStorage",
    "format_address",
]
