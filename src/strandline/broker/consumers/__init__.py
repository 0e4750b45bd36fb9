"""JetStream consumers: position, deliveries and acknowledgements.

**Promise.** A matching message is delivered until it is acknowledged, at most `max_deliver` times; a confirmed
acknowledgement survives SIGKILL and power loss; delivery counts and the number of pending messages are exact.

**How.** A `Cursor` finds the next messages, `Pending` holds the unacknowledged ones, `ConsumerState` stores both in the
files of a group. `Feed` makes batches of messages, whole columns at a time; `PullDelivery` sends them to waiting pulls,
`PushDelivery` to a subject; `AckHandler` applies acknowledgements. `Consumer` runs the turn: input, then deliveries,
then one frame for all changes.

**Trade-offs.**

- Waiting pulls share the available messages in equal parts, not message by message.
- The consumer sequence of a message that was outstanding at a crash is estimated; it can be off where messages were
  redelivered or deleted in between. Only the reported ack floor depends on it.
- An acknowledgement without a reply subject is written at once, and synced within a second.
"""

from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.state import ConsumerState, memory_state, open_state

__all__ = ["Consumer", "ConsumerState", "memory_state", "open_state"]
