"""Shared code of the checks of a queue's storage: put, deliver, use up deliveries, list available messages."""

from collections.abc import Callable, Iterable
from typing import Protocol

from strandline.clock import ManualClock
from strandline.groups import Delivery
from strandline.queue import DeadLetterStorage, Message, QueueStorage

DELIVERIES_MAX = 3
"""The number of deliveries before a message becomes a dead letter, in a storage under check."""
FAR = 20_000
"""An offset beyond any plausible window of acknowledgements."""
VISIBLE_S = 30.0


class CheckedStorage(QueueStorage, DeadLetterStorage, Protocol):
    """The storage under check: messages, groups and dead letters."""


QueueStorageCheck = Callable[[CheckedStorage, ManualClock], None]
"""Takes an empty storage and the clock that it reads."""


def put(storage: CheckedStorage, count: int) -> list[bytes]:
    """Append a number of messages and return their values."""
    values = [b"message %d" % number for number in range(count)]
    storage.append_batch(values)
    return values


def offsets_of(messages: Iterable[Message]) -> list[int]:
    """Return the offsets of messages."""
    return [message.offset for message in messages]


def available(storage: CheckedStorage, group: str = "workers", messages_max: int = FAR) -> list[int]:
    """Return the offsets that are deliverable to a group now."""
    return offsets_of(storage.fetch_available(group, messages_max))


def later(clock: ManualClock, seconds: float = VISIBLE_S) -> int:
    """Return the time in a number of seconds."""
    return clock.now_ns() + int(seconds * 1e9)


def give(storage: CheckedStorage, clock: ManualClock, *offsets: int, group: str = "workers") -> list[Delivery]:
    """Mark messages as in flight, in a group that may be new."""
    storage.fetch_available(group, 0)
    return storage.mark_inflight(group, offsets, later(clock))


def wear(storage: CheckedStorage, clock: ManualClock, offset: int, times: int) -> None:
    """Deliver a message and give it back, a number of times."""
    for _ in range(times):
        (delivery,) = give(storage, clock, offset)
        storage.nack("workers", offset, clock.now_ns(), delivery.epoch)
