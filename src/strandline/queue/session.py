"""A client of a served queue: the operations it may ask for, and the deliveries that it has not answered.

Invariants: each operation returns what JSON and bytes can tell, after it is durable; what a session was given is kept
for it until it answers, until the deadline, or until it ends: then it is given back.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from strandline.clock import Clock
from strandline.errors import Conflict, InvalidInput, Unavailable, UnknownOutcome
from strandline.groups import Delivery
from strandline.queue.frames import format_error, format_frame
from strandline.queue.reservations import Reserved, Reserver
from strandline.queue.storage import DeadLetterStorage, GroupStorage, QueueStorage

WAIT_S_MAX = 1.0
"""The longest a request waits for messages, so that a taker that is gone is noticed soon."""
_HELD_MANY = 1024


class ServedStorage(QueueStorage, DeadLetterStorage, GroupStorage, Protocol):
    """What a queue needs of its storage in order to be served."""


class Session:
    """One client, over all its connections. Safe to use from many threads."""

    def __init__(self, name: str, storage: ServedStorage, reserver: Reserver, clock: Clock) -> None:
        self.name = name
        self.connections = 0
        """Kept by the server."""
        self._storage = storage
        self._reserver = reserver
        self._clock = clock
        self._held: dict[tuple[str, int], Delivery] = {}
        self._lock = threading.Lock()
        self._operations: dict[str, Callable[..., object]] = {
            "put": self._put,
            "reserve": self._reserve,
            "mark": self._mark,
            "ack": self._ack,
            "nack": self._nack,
            "extend": self._extend,
            "fetch": storage.fetch_by_offset,
            "available": storage.fetch_available,
            "expired": storage.list_expired,
            "dead_letters": storage.dead_letters,
            "status": storage.status,
            "add_group": self._add_group,
            "remove_group": storage.remove_group,
        }

    def answer(self, operation: str, arguments: dict[str, Any]) -> bytes:
        """Do what was asked, and return the frame of the answer, which may be an error."""
        act = self._operations.get(operation)
        try:
            if act is None:
                hint = "use the same version of Strandline on both sides"
                error = InvalidInput(f"{operation!r} is not an operation", hint=hint)
                return format_frame({"error": format_error(error, operation)})
            return format_frame({"ok": act(**arguments)})
        except Exception as error:  # noqa: BLE001 - the caller is told, and other clients are not disturbed
            return format_frame({"error": format_error(error, operation)})

    def give_back(self) -> None:
        """Make available what was not answered."""
        with self._lock:
            held, self._held = self._held, {}
        for (group, offset), delivery in held.items():
            # Where that cannot be done it need not be: the job is another taker's already, or will be by its deadline.
            with suppress(Conflict, Unavailable, UnknownOutcome, InvalidInput):
                self._storage.nack(group, offset, self._clock.now_ns(), delivery.epoch)
        self._reserver.wake()

    # The operations.

    def _put(self, values: list[bytes], keys: list[bytes] | None, headers: list[bytes] | None) -> list[int]:
        appended = self._storage.append_batch(values, keys=keys, headers=headers)
        self._reserver.wake()
        return [appended.base_offset, appended.count]

    def _reserve(self, group: str, visibility_s: float, wait_s: float, count: int) -> Reserved:
        reserved = self._reserver.reserve(group, visibility_s, min(wait_s, WAIT_S_MAX), count)
        self._hold(group, [delivery for _, delivery in reserved])
        return reserved

    def _mark(self, group: str, offsets: list[int], deadline_ns: int) -> list[Delivery]:
        deliveries = self._storage.mark_inflight(group, offsets, deadline_ns)
        self._hold(group, deliveries)
        return deliveries

    def _ack(self, group: str, offsets: list[int]) -> int:
        news = self._storage.ack(group, offsets)
        self._let_go(group, offsets)
        return news

    def _nack(self, group: str, offset: int, ready_ns: int, epoch: int | None) -> None:
        self._storage.nack(group, offset, ready_ns, epoch)
        self._let_go(group, [offset])
        self._reserver.wake()

    def _extend(self, group: str, offset: int, deadline_ns: int, epoch: int | None) -> Delivery:
        delivery = self._storage.extend(group, offset, deadline_ns, epoch)
        self._hold(group, [delivery])
        return delivery

    def _add_group(self, name: str, *, at_end: bool) -> None:
        self._storage.add_group(name, at_end=at_end)

    def _hold(self, group: str, deliveries: Sequence[Delivery]) -> None:
        """Remember deliveries; those that expired are forgotten when there are many."""
        with self._lock:
            if len(self._held) >= _HELD_MANY:
                now_ns = self._clock.now_ns()
                self._held = {key: held for key, held in self._held.items() if held.deadline_ns > now_ns}
            self._held.update({(group, delivery.offset): delivery for delivery in deliveries})

    def _let_go(self, group: str, offsets: Sequence[int]) -> None:
        """Forget deliveries that were answered."""
        with self._lock:
            for offset in offsets:
                self._held.pop((group, offset), None)
