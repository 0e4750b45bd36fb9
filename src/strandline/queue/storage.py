"""The storage contract of a queue: what is written once, and what each group has done with it.

Invariants that every implementation keeps, and that `strandline.testing.check_queue_storage` checks:

- an appended message is there under its offset for ever, or until every group has acknowledged it;
- a message is available to a group unless that group has acknowledged it, has it in flight, has put it off, or has
  given up on it; groups do not see one another;
- a message in flight whose deadline passed is available again, whether or not `list_expired` was called, and its
  delivery count goes on from where it was;
- a message that was delivered as often as allowed without being acknowledged becomes a dead letter: recorded as such
  first, acknowledged after, never both lost.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from strandline.groups import Delivery
from strandline.journal import Appended


class Message(NamedTuple):
    """A message as a group sees it."""

    offset: int
    value: bytes
    key: bytes | None
    headers: bytes | None
    deliveries: int
    """How often the group was given it so far."""


class Expired(NamedTuple):
    """A delivery whose deadline passed; the message is available to the group again."""

    group: str
    message: Message


class DeadLetter(NamedTuple):
    """A message that a group gave up on."""

    group: str
    offset: int
    value: bytes
    key: bytes | None
    headers: bytes | None
    deliveries: int
    dead_ns: int


class GroupStatus(NamedTuple):
    """How far a group is."""

    group: str
    acked_until: int
    in_flight: int
    waiting: int
    backlog: int
    """Messages that are not acknowledged."""


class QueueStorage(Protocol):
    """Messages and groups. Times are nanoseconds since 1970, as the storage's clock tells them."""

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes] | None = None,
        headers: Sequence[bytes] | None = None,
    ) -> Appended:
        """Append messages, all or none, and return when they are durable."""
        ...

    def fetch_by_offset(self, offset: int) -> Message:
        """Return one message, with a delivery count of 0; `OffsetError` where there is none."""
        ...

    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        """Return messages that the group may be given now; nothing is marked. A new group begins at the first one.

        Messages that were never given come by offset; where those stand that were given before is the storage's choice.
        """
        ...

    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        """Deliver messages until a deadline: all, or none and `Conflict` if one was delivered meanwhile."""
        ...

    def ack(self, group: str, offsets: Iterable[int]) -> int:
        """Record that messages are done, and return how many of them is news once that is durable."""
        ...

    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        """Give a message back, available from `ready_ns` on; `StaleDelivery` unless that delivery is in flight."""
        ...

    def extend(self, group: str, offset: int, deadline_ns: int, epoch: int | None = None) -> Delivery:
        """Move the deadline of a delivery; `StaleDelivery` unless it is in flight."""
        ...

    def list_expired(self, now_ns: int) -> list[Expired]:
        """Return the deliveries of all groups that expired by now, looking at nothing else, and make them available.

        Each is listed once at most; one that `fetch_available` noticed first need not be.
        """
        ...


class DeadLetterStorage(Protocol):
    """Where messages go that a group gave up on."""

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the group's dead letters, oldest first."""
        ...


@runtime_checkable
class GroupStorage(Protocol):
    """What manages the groups of a queue, and tells how far they are."""

    def status(self) -> list[GroupStatus]:
        """Return how far each group is, by name."""
        ...

    def add_group(self, name: str, *, at_end: bool = False) -> object:
        """Create a group at the first message, or, with `at_end`, after the last; an existing one is left alone."""
        ...

    def remove_group(self, name: str) -> None:
        """Forget a group and what it answered; `InvalidInput` where there is none."""
        ...
