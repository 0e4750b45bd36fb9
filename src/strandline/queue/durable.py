"""The durable storage: messages in a journal, a group's answers in its own two files, dead letters in a second journal.

    <folder>/lock        held by the owner
    <folder>/messages/   a journal
    <folder>/groups/     snapshot and delta of each group
    <folder>/dead/       a journal of dead letters
    <folder>/socket      where the owner serves the queue to other processes, if it does

Invariants: nothing is given out that is not durable, so no group can answer for an offset that a crash takes back; a
dead letter is durable before its message is acknowledged, and is not written twice for one message (a burial that a
crash cut short is finished on opening); segments are removed only when every group has durably acknowledged all they
hold, and failing to remove them fails no acknowledgement.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from strandline.clock import Clock, SystemClock
from strandline.errors import (
    Closed,
    CommitFailed,
    Damaged,
    InvalidInput,
    Locked,
    OffsetBelowRetained,
    OffsetBeyondEnd,
    OffsetsLost,
    Unavailable,
    UnknownOutcome,
)
from strandline.events import Events
from strandline.files import Disk, Lock, OsDisk, storage_errors
from strandline.groups import Delivery, Group, group_names, remove_group
from strandline.journal import Appended, Journal, JournalConfig, Record
from strandline.queue.config import QueueConfig
from strandline.queue.dead_letters import DeadLetters, letters_config
from strandline.queue.events import MessagesSkipped
from strandline.queue.memory import checked_max, group_status, unknown_group
from strandline.queue.record_cache import RecordCache
from strandline.queue.server import format_address
from strandline.queue.storage import DeadLetter, Expired, GroupStatus, Message


class JournalStorage:
    """Messages, groups and dead letters in one folder. Safe to use from many threads; one process at a time."""

    def __init__(self, folder: Path, config: QueueConfig, disk: Disk, clock: Clock, events: Events) -> None:
        """Use `JournalStorage.open`."""
        self._folder = folder
        self._config = config
        self._disk = disk
        self._clock = clock
        self._events = events
        self._groups: dict[str, Group] = {}
        # Guards the set of groups, and keeps segments in place while a group that begins with them is created.
        self._lock = threading.RLock()
        self._burying = threading.Lock()
        self._held = ExitStack()
        self._is_closed = False

    _executor: Executor
    _compactor: Executor
    _messages: Journal
    _cache: RecordCache
    _dead: DeadLetters

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: QueueConfig | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        events: Events | None = None,
    ) -> Self:
        """Open a queue's folder, recovering it, or create it; `Locked` where another process has it."""
        folder = Path(path)
        storage = cls(folder, config or QueueConfig(), disk or OsDisk(), clock or SystemClock(), events or Events())
        with ExitStack() as held:
            storage._open(held, executor)
            storage._held = held.pop_all()
        return storage

    def _open(self, held: ExitStack, executor: Executor | None) -> None:
        disk = self._disk
        with storage_errors(self._folder):
            disk.make_folder(self._folder)
            held.callback(self._lock_folder().release)
            disk.make_folder(self._folder / "groups")
            disk.sync_folder(self._folder / "groups")  # a group that is found removed must not come back
            names = group_names(disk, self._folder / "groups")
        self._executor = executor or held.enter_context(ThreadPoolExecutor(2, "strandline-queue"))
        self._compactor = executor or held.enter_context(ThreadPoolExecutor(1, "strandline-compact"))
        config = self._config.journal
        self._messages = held.enter_context(self._open_journal("messages", config))
        self._cache = RecordCache(self._messages)
        self._dead = DeadLetters(held.enter_context(self._open_journal("dead", letters_config(config))), self._events)
        for name in names:
            self._groups[name] = held.enter_context(self._open_group(name))
            self._check_group(self._groups[name])
        self._finish_burials()

    def _lock_folder(self) -> Lock:
        try:
            return self._disk.lock(self._folder / "lock")
        except Locked as error:
            use = f'use Queue.connect("{format_address(self.socket_path)}")'
            if not self.socket_path.is_socket():
                use = f"let that one serve it, with queue.serve() or `strandline queue serve {self._folder}`, and {use}"
            hint = f"one process owns a queue, and another has it open; {use}"
            raise Locked(str(self._folder), hint=hint) from error

    @property
    def socket_path(self) -> Path:
        """Where the queue is served unless another path is given."""
        return self._folder.absolute() / "socket"

    def __repr__(self) -> str:
        """Say where it is, and how much there is."""
        if self._is_closed:
            return f"JournalStorage({str(self._folder)!r}, closed)"
        first, end = self._messages.first_offset, self._messages.durable_offset
        return f"JournalStorage({str(self._folder)!r}, messages=[{first}, {end}), groups={len(self._groups)})"

    # The contract.

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes] | None = None,
        headers: Sequence[bytes] | None = None,
    ) -> Appended:
        """Append messages, all or none, and return when they are durable."""
        appended = self._messages.append(values, keys=keys, headers=headers)
        self._cache.put(appended.base_offset, values, keys, headers)
        return appended

    def fetch_by_offset(self, offset: int) -> Message:
        """Return one message, with a delivery count of 0; `OffsetError` where there is none."""
        self._refuse_if_closed()
        return _message(self._messages.fetch(offset), 0)

    def fetch_available(self, group: str, messages_max: int) -> list[Message]:
        """Return messages that the group may be given now; nothing is marked. A new group begins at the first one."""
        checked_max(messages_max)
        known = self.add_group(group)
        known.pop_expired(self._clock.now_ns())
        while True:
            offsets = known.deliverable(messages_max, self._messages.durable_offset)
            if self._bury(known, offsets):
                continue
            try:
                messages = self._read(known, offsets)
            except Damaged:
                if len(offsets) == 1:
                    raise
                return self.fetch_available(group, len(offsets) // 2)  # what stands before the damage can be given
            if messages or not offsets:
                return messages

    def mark_inflight(self, group: str, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        """Deliver messages until a deadline: all, or none and `Conflict` if one was delivered meanwhile."""
        self._check_offsets(offsets)
        return self._group(group).mark_many(offsets, deadline_ns)

    def ack(self, group: str, offsets: Iterable[int]) -> int:
        """Record that messages are done, and return how many of them is news once that is durable."""
        offsets = list(offsets)
        self._check_offsets(offsets)
        news = self._group(group).ack_many(offsets)
        self._try_remove_done()
        return news

    def nack(self, group: str, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        """Give a message back, available from `ready_ns` on; `StaleDelivery` unless that delivery is in flight."""
        known = self._group(group)
        known.nack(offset, ready_ns, epoch)
        self._bury(known, [offset])

    def extend(self, group: str, offset: int, deadline_ns: int, epoch: int | None = None) -> Delivery:
        """Move the deadline of a delivery; `StaleDelivery` unless it is in flight."""
        return self._group(group).extend(offset, deadline_ns, epoch)

    def list_expired(self, now_ns: int) -> list[Expired]:
        """Return the deliveries of all groups that expired by now, looking at nothing else, and make them available."""
        found: list[Expired] = []
        for group in self._all_groups():
            offsets = group.pop_expired(now_ns)
            self._bury(group, offsets)
            alive = [offset for offset in offsets if not group.is_acked(offset)]
            found += [Expired(group.name, message) for message in self._read(group, alive)]
        return found

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the group's dead letters, oldest first."""
        self._refuse_if_closed()
        return [letter for letter in self._dead.read() if letter.group == group]

    @property
    def dead_letter_count(self) -> int:
        """How many dead letters there are, of all groups."""
        return self._dead.count

    # Groups.

    def add_group(self, name: str, *, at_end: bool = False) -> Group:
        """Return a group, creating it at the first message, or, with `at_end`, after the last."""
        with self._lock:
            self._refuse_if_closed()
            if name in self._groups:
                return self._groups[name]
            group = self._open_group(name)
            begin = self._messages.durable_offset if at_end else self._messages.first_offset
            if begin:
                group.ack_below(begin)
            self._held.callback(group.close)
            self._groups[name] = group
            return group

    def remove_group(self, name: str) -> None:
        """Forget a group and what it answered; messages that only it was keeping may go, its dead letters stay."""
        with self._lock:
            group = self._group(name)
            with suppress(CommitFailed):  # what could not be written is about to be forgotten
                group.close()
            with storage_errors(self._folder):
                remove_group(self._disk, self._folder / "groups", name, self._clock.now_ns())
            del self._groups[name]
        self._try_remove_done()

    def status(self) -> list[GroupStatus]:
        """Return how far each group is, by name."""
        end = self._messages.durable_offset
        groups = sorted(self._all_groups(), key=lambda group: group.name)
        return [group_status(group.name, group.capture(), end) for group in groups]

    def remove_done(self) -> int:
        """Remove whole segments that every group has durably acknowledged; return how many went."""
        oldest_end = self._messages.oldest_segment_end
        if oldest_end is None:
            return 0
        with self._lock:
            floor = min((group.durable_acked_until for group in self._groups.values()), default=0)
            return self._messages.remove_below(floor) if floor >= oldest_end else 0

    def _try_remove_done(self) -> None:
        # What the caller asked for is durable, whatever happens now; a journal in trouble tells so on the next append.
        with suppress(Unavailable, UnknownOutcome):
            self.remove_done()

    @property
    def messages(self) -> Journal:
        """The journal of messages."""
        return self._messages

    def close(self) -> None:
        """Close groups and journals, and release the folder. Closing twice is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._held.close()

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # Parts.

    def _open_journal(self, name: str, config: JournalConfig) -> Journal:
        return Journal.open(
            self._folder / name,
            config,
            disk=self._disk,
            clock=self._clock,
            executor=self._executor,
            events=self._events,
        )

    def _open_group(self, name: str) -> Group:
        return Group.open(
            self._disk,
            self._folder / "groups",
            name,
            config=self._config.group,
            clock=self._clock,
            executor=self._executor,
            compactor=self._compactor,
            events=self._events,
        )

    def _check_group(self, group: Group) -> None:
        """Refuse a group that answers for messages which are not there: its files are newer than the journal's."""
        acks = group.capture().acks
        end = max((end for _, end in acks.ranges()), default=acks.until)
        if end > self._messages.next_offset:
            raise Damaged(
                str(self._folder),
                f"group {group.name!r} acknowledged up to {end}, but messages end at {self._messages.next_offset}",
                safe="restore messages and groups from the same moment; nothing was changed",
            )

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise Closed(str(self._folder))

    def _group(self, name: str) -> Group:
        with self._lock:
            self._refuse_if_closed()
            if name not in self._groups:
                raise unknown_group(name)
            return self._groups[name]

    def _all_groups(self) -> list[Group]:
        with self._lock:
            self._refuse_if_closed()
            return list(self._groups.values())

    def _check_offsets(self, offsets: Sequence[int]) -> None:
        end = self._messages.durable_offset
        if offsets and max(offsets) >= end:
            raise OffsetBeyondEnd(max(offsets), self._messages.first_offset, end)
        if offsets and min(offsets) < 0:
            raise InvalidInput(f"offsets begin at 0; {min(offsets)} is not one")

    def _read(self, group: Group, offsets: Sequence[int]) -> list[Message]:
        """Return the messages at offsets, in their order; what can never be read is skipped for the group."""
        found: dict[int, Record] = {}
        for start, end in _runs(sorted(offsets)):
            self._read_run(group, start, end, found)
        counts = zip(offsets, group.delivery_counts(offsets), strict=True)
        return [_message(found[offset], count) for offset, count in counts if offset in found]

    def _read_run(self, group: Group, start: int, end: int, found: dict[int, Record]) -> None:
        while start < end:
            try:
                records = self._cache.read(start, end)
                found.update(zip(range(start, start + len(records)), records, strict=True))
                start += len(records)
            except OffsetsLost as lost:
                start = self._skip(group, lost.offset, lost.resume_at)
            except OffsetBelowRetained as gone:
                start = self._skip(group, start, gone.first)

    def _skip(self, group: Group, first: int, end: int) -> int:
        group.ack_many(range(first, end))
        self._events.emit(MessagesSkipped(group.name, first, end))
        return end

    # Dead letters.

    def _bury(self, group: Group, offsets: Sequence[int]) -> bool:
        """Make dead letters of what was delivered too often; return whether there was any."""
        limit = self._config.deliveries_max
        if limit is None or max(group.delivery_counts(offsets), default=0) < limit:
            return False
        with self._burying:
            # No letter for a delivery that a crash could take back, nor from a group that can acknowledge nothing more.
            group.sync()
            # Asked again, in this order: another taker may have taken one meanwhile, for the last time.
            dead = [offset for offset in filter(self._is_worn(group), offsets) if not group.is_inflight(offset)]
            now_ns = self._clock.now_ns()
            self._dead.add([DeadLetter(group.name, *message, now_ns) for message in self._read(group, dead)])
            group.ack_many(dead)
        return bool(dead)

    def _is_worn(self, group: Group) -> Callable[[int], bool]:
        """Return a test of whether a message was delivered as often as allowed."""
        limit = self._config.deliveries_max
        return lambda offset: limit is not None and group.deliveries(offset) >= limit

    def _finish_burials(self) -> None:
        """Acknowledge what became a dead letter just before a crash: its count is still that of the letter."""
        unfinished: defaultdict[str, list[int]] = defaultdict(list)
        for letter in self._dead.read():
            group = self._groups.get(letter.group)
            if group is not None and group.deliveries(letter.offset) == letter.deliveries:
                unfinished[letter.group].append(letter.offset)
        for name, offsets in unfinished.items():
            self._groups[name].ack_many(offsets)


def _message(record: Record, deliveries: int) -> Message:
    offset, value, key, headers, _ = record
    return Message(offset, value, key, headers, deliveries)


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending offsets as (start, exclusive end) of neighbours."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        yield offsets[0], offsets[-1] + 1
        return
    start = end = -1
    for offset in offsets:
        if offset != end:
            if end > start:
                yield start, end
            start = offset
        end = offset + 1
    if end > start:
        yield start, end
