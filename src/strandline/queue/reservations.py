"""Reservations: which taker of a queue gets which messages, and which takers wait.

Takers of a group look one after another, but mark, which waits for the disk, together: what one of them is about to
mark is claimed meanwhile, so that the others look past it and their marks share one fsync.

Invariants: two takers never mark the same message at once; a taker that waits is woken by whatever is put or given back
through the same object, and looks again every `POLL_S` for deliveries that expired.
"""

import threading
import time
from typing import Protocol

from strandline.clock import Clock
from strandline.errors import Closed, Conflict, InvalidInput
from strandline.groups import Delivery
from strandline.queue.storage import Message, QueueStorage

POLL_S = 0.05
"""How soon a waiting taker notices that a delivery of another taker expired."""
SECONDS_MAX = 100 * 365.25 * 86400
"""A hundred years: what comes later does not fit the nanoseconds of a deadline."""

Reserved = list[tuple[Message, Delivery]]


def deadline_after(clock: Clock, seconds: float) -> int:
    """Return the time so many seconds from now."""
    if not 0 <= seconds <= SECONDS_MAX:
        raise InvalidInput(f"{seconds} is not a number of seconds between 0 and a hundred years")
    return clock.now_ns() + int(seconds * 1e9)


class Reserver(Protocol):
    """Gives messages to takers."""

    def reserve(self, group: str, visibility_s: float, wait_s: float | None, count: int) -> Reserved:
        """Return messages for this taker alone; none where none came in `wait_s` seconds, or it was closed."""
        ...

    def wake(self) -> None:
        """Let takers look again, since something was put or given back."""
        ...

    def stop(self) -> None:
        """End every wait, now and later."""
        ...


class _Claims:
    """What the takers of one group are about to mark, and the turn to look."""

    __slots__ = ("offsets", "turn")

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.offsets: set[int] = set()


class Reservations:
    """The takers of one storage, in one process."""

    def __init__(self, storage: QueueStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._claims: dict[str, _Claims] = {}
        self._changed = threading.Condition()
        self._changes = 0
        self._is_stopped = False

    def reserve(self, group: str, visibility_s: float, wait_s: float | None, count: int) -> Reserved:
        """Return messages for this taker alone; none where none came in `wait_s` seconds, or it was closed."""
        until = None if wait_s is None else time.monotonic() + wait_s
        while not self._is_stopped:
            changes = self._changes
            reserved = self._reserve(group, visibility_s, count)
            if reserved:
                return reserved
            left_s = POLL_S if until is None else until - time.monotonic()
            if left_s <= 0:
                break
            self._wait_for_change(changes, min(left_s, POLL_S))
        return []

    def _reserve(self, group: str, visibility_s: float, count: int) -> Reserved:
        """Take what is available; nothing where there is nothing, or the queue or the group was closed meanwhile."""
        claims = self._claims_of(group)
        try:
            while messages := self._claim(group, claims, count):
                reserved = self._mark(group, claims, messages, visibility_s)
                if reserved:
                    return reserved
        except Closed:
            pass
        return []

    def _mark(self, group: str, claims: _Claims, messages: list[Message], visibility_s: float) -> Reserved:
        """Mark claimed messages; none where one of them was acknowledged late, by a taker that had lost it."""
        offsets = [message.offset for message in messages]
        try:
            self._refuse_if_stopped()
            deliveries = self._storage.mark_inflight(group, offsets, deadline_after(self._clock, visibility_s))
        except Conflict:
            return []
        finally:
            with claims.turn:
                claims.offsets.difference_update(offsets)
        return list(zip(messages, deliveries, strict=True))

    def _claim(self, group: str, claims: _Claims, count: int) -> list[Message]:
        """Return available messages that no other taker here is about to mark, and claim them."""
        with claims.turn:
            self._refuse_if_stopped()
            found = self._storage.fetch_available(group, count + len(claims.offsets))
            messages = [message for message in found if message.offset not in claims.offsets][:count]
            claims.offsets.update(message.offset for message in messages)
            return messages

    def _claims_of(self, group: str) -> _Claims:
        with self._changed:
            return self._claims.setdefault(group, _Claims())

    def _refuse_if_stopped(self) -> None:
        if self._is_stopped:
            raise Closed("the queue")

    def _wait_for_change(self, changes: int, timeout_s: float) -> None:
        """Return when something was put or given back since `changes` was read, or after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != changes, timeout_s)

    def wake(self) -> None:
        """Let takers look again, since something was put or given back."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """End every wait, now and later."""
        self._is_stopped = True
        self.wake()
