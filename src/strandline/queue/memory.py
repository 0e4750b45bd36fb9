"""A queue's storage in memory: the twin of the durable one, for tests and for work that may be forgotten.

It keeps the same contract but for durability, with the same `GroupState`, and is safe to use from several threads.
"""

import threading
from collections.abc import Iterable, Sequence

from strandline.clock import Clock, SystemClock
from strandline.errors import InvalidInput, OffsetBeyondEnd, WrongType
from strandline.groups import Captured, Delivery, GroupState, format_group_file
from strandline.journal import Appended
from strandline.queue.config import QueueConfig
from strandline.queue.storage import DeadLetter, Expired, GroupStatus, Message


class MemoryStorage:
    """Messages in a list, and a state per group."""

    def __init__(self, config: QueueConfig | None = None, *, clock: Clock | None = None) -> None:
        self._config = config or QueueConfig()
        self._clock = clock or SystemClock()
        self._messages: list[Message] = []
        self._groups: dict[str, GroupState] = {}
        self._dead: list[DeadLetter] = []
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        """Say how much there is."""
        return f"MemoryStorage(messages={len(self._messages)}, groups={len(self._groups)})"

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes] | None = None,
        headers: Sequence[bytes] | None = None,
    ) -> Appended:
        """Append messages, all or none."""
        made = _column("values", values)
        count = len(made)
        none = [None] * count
        key_column = none if keys is None else _column("keys", keys, count)
        headers_column = none if headers is None else _column("headers", headers, count)
        with self._lock:
            base = len(self._messages)
            rows = zip(range(base, base + count), made, key_column, headers_column, strict=True)
            self._messages += [Message(*row, 0) for row in rows]
            return Appended(base, count)

    def fetch_by_offset(self, offset: int) -> Message:
        """Return one message, with a delivery count of 0."""
        with self._lock:
            if offset < 0:
                raise InvalidInput(f"offsets begin at 0; {offset} is not one")
            if offset >= len(self._messages):
                raise OffsetBeyondEnd(offset, 0, len(self._messages))
            return self._messages[offset]

    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        """Return messages that the group may be given now, and mark nothing."""
        checked_max(messages_max)
        with self._lock:
            self.add_group(group)
            state = self._groups[group]
            state.pop_expired(self._clock.now_ns())
            while True:
                offsets = state.deliverable(self._clock.now_ns(), messages_max, len(self._messages))
                if not self._bury(group, state, offsets):
                    return [self._message(state, offset) for offset in offsets]

    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        """Deliver messages until a deadline: all or none."""
        with self._lock:
            self._check_offsets(offsets)
            return self._group(group).mark_many(offsets, deadline_ns)

    def ack(self, group: str, offsets: Iterable[int]) -> int:
        """Record that messages are done, and return how many of them is news."""
        offsets = list(offsets)
        with self._lock:
            self._check_offsets(offsets)
            return self._group(group).ack_many(offsets)

    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        """Give a message back, available from `ready_ns` on."""
        with self._lock:
            state = self._group(group)
            state.nack(offset, ready_ns, epoch)
            self._bury(group, state, [offset])

    def extend(self, group: str, offset: int, deadline_ns: int, epoch: int | None = None) -> Delivery:
        """Move the deadline of a delivery."""
        with self._lock:
            return self._group(group).extend(offset, deadline_ns, epoch)

    def list_expired(self, now_ns: int) -> list[Expired]:
        """Return the deliveries of all groups that expired by now, and make them available."""
        found: list[Expired] = []
        with self._lock:
            for name, state in self._groups.items():
                offsets = state.pop_expired(now_ns)
                self._bury(name, state, offsets)
                alive = [offset for offset in offsets if not state.is_acked(offset)]
                found += [Expired(name, self._message(state, offset)) for offset in alive]
        return found

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the group's dead letters, oldest first."""
        with self._lock:
            return [letter for letter in self._dead if letter.group == group]

    # Groups.

    def status(self) -> list[GroupStatus]:
        """Return how far each group is, by name."""
        with self._lock:
            end = len(self._messages)
            return [group_status(name, state.capture(), end) for name, state in sorted(self._groups.items())]

    def add_group(self, name: str, *, at_end: bool = False) -> None:
        """Create a group at the first message, or, with `at_end`, after the last; an existing one is left alone."""
        format_group_file(name, "delta")  # refuses what the durable twin refuses
        with self._lock:
            if name not in self._groups:
                state = self._groups[name] = GroupState()
                if at_end:
                    state.ack_below(len(self._messages))

    def remove_group(self, name: str) -> None:
        """Forget a group and what it answered; its dead letters stay."""
        with self._lock:
            self._group(name)
            del self._groups[name]

    def _group(self, name: str) -> GroupState:
        try:
            return self._groups[name]
        except KeyError:
            raise unknown_group(name) from None

    def _check_offsets(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.fetch_by_offset(offset)

    def _message(self, state: GroupState, offset: int) -> Message:
        return self._messages[offset]._replace(deliveries=state.deliveries(offset))

    def _bury(self, group: str, state: GroupState, offsets: Iterable[int]) -> bool:
        """Make dead letters of what was delivered too often; return whether there was any."""
        limit = self._config.deliveries_max
        dead = [offset for offset in offsets if limit is not None and state.deliveries(offset) >= limit]
        for offset in dead:
            message = self._message(state, offset)
            self._dead.append(DeadLetter(group, *message, self._clock.now_ns()))
            state.ack(offset)
        return bool(dead)


def _column(name: str, values: object, count: int | None = None) -> list[bytes]:
    if not isinstance(values, Sequence) or isinstance(values, bytes | str | bytearray):
        raise WrongType(f"{name} must be a sequence of messages, not one", hint="put it in a list")
    column = [bytes(value) for value in values if isinstance(value, bytes | bytearray | memoryview)]
    if len(column) != len(values):
        raise WrongType(f"{name} must be a sequence of bytes", hint="encode text with .encode()")
    if count is not None and len(column) != count:
        raise InvalidInput(f"there are {count} values but {len(column)} {name}")
    return column


def checked_max(messages_max: int) -> None:
    """Refuse to give out less than nothing."""
    if messages_max < 0:
        raise InvalidInput(f"messages_max must not be negative, as {messages_max} is")


def group_status(name: str, captured: Captured, end: int) -> GroupStatus:
    """Return how far a group is when messages end at `end`."""
    acks = captured.acks
    backlog = end - acks.until - acks.count_above()
    return GroupStatus(name, acks.until, len(captured.inflight), len(captured.waiting), backlog)


def unknown_group(name: str) -> InvalidInput:
    """Return the error for a group that was never given anything."""
    return InvalidInput(
        f"there is no group {name!r}", hint="a group begins with its first fetch_available, or add_group"
    )
