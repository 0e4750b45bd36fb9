"""Who reads a stream: one consumer, its place, its deliveries and what was answered to them.

**Promise.** A message that a consumer wants is delivered until it is acknowledged, at most as often as `max_deliver`
says; an acknowledgement that was confirmed holds across SIGKILL and power loss; how often a message was delivered and
how many are left is exact.

**How.** A `Cursor` knows which messages come next, `Pending` which wait for an answer, `ConsumerState` keeps both in
the files of a group. `Feed` makes parcels of messages, whole columns at a time; `Pulling` hands them to those who ask,
`Pushing` to a subject; `Acking` takes the answers. `Consumer` is the turn: everything that came in, then deliveries,
then one frame for all that changed.

**Trade-offs.**

- Waiting pulls share what is there in equal parts, not message by message.
- The consumer sequence of a message that was outstanding at a crash is worked out anew; it can be off where messages
  were redelivered or deleted in between. Only the shown floor depends on it.
- An acknowledgement that nobody waits for is written at once, and synced within a second.
"""

from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.state import ConsumerState, memory_state, open_state, remove_state

__all__ = ["Consumer", "ConsumerState", "memory_state", "open_state", "remove_state"]
