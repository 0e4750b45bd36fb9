"""A queue's storage beside a model that says what it must hold, so that a machine can crash it anywhere.

While nothing fails the model knows exactly what every call returns. After a failure it knows bounds: what a caller was
told is certain, what a caller was not told may have happened or not. Reopening must land within the bounds, and what is
found then is what is known exactly from there on.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from strandline.clock import ManualClock
from strandline.errors import Closed, Poisoned, StaleDelivery, StrandlineError
from strandline.groups import Group
from strandline.groups.schedule import parse_scheduled
from strandline.queue import DeadLetter, JournalStorage, QueueConfig
from strandline.sim import Fault, SimDisk
from tests import tally
from tests.queue.helpers import later, open_sim, power_cut

T = TypeVar("T")
LIMIT = 3
"""How many deliveries are allowed."""
ALL = 10_000


class Failed(Exception):
    """A call failed, as it may after trouble with the disk."""


@dataclass
class Known:
    """What is known of one group."""

    acked: set[int] = field(default_factory=set)
    """Acknowledged for certain: by callers, by a beginning after the first message, or by a letter."""
    acked_maybe: set[int] = field(default_factory=set)
    settled: set[int] | None = None
    """What was acknowledged before the trouble began; None without trouble."""
    counts: dict[int, int] = field(default_factory=dict)
    """Deliveries that somebody was told of."""
    counts_maybe: dict[int, int] = field(default_factory=dict)
    """Deliveries that may have been recorded besides."""
    inflight: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    letters: list[int] = field(default_factory=list)
    """Of this life of the group."""
    letters_before: int = 0
    """Of earlier lives of a group with this name."""
    is_sure: bool = True
    """Whether the group is there for certain."""

    def count_max(self, offset: int) -> int:
        """Return how many deliveries may have been recorded."""
        return self.counts.get(offset, 0) + self.counts_maybe.get(offset, 0)

    def expire(self, now_ns: int) -> list[int]:
        """Let what expired wait; return it."""
        due = sorted((deadline, offset) for offset, deadline in self.inflight.items() if deadline <= now_ns)
        for deadline, offset in due:
            del self.inflight[offset]
            self.waiting[offset] = deadline
        return [offset for _, offset in due]

    def ready(self, now_ns: int, end: int) -> set[int]:
        """Return what may be given now or is to be buried."""
        fresh = set(range(end)) - self.acked - self.inflight.keys() - self.waiting.keys()
        return fresh | {offset for offset, ready_ns in self.waiting.items() if ready_ns <= now_ns}

    def is_worn(self, offset: int) -> bool:
        """Whether a message was delivered as often as allowed."""
        return self.counts.get(offset, 0) >= LIMIT

    def ack(self, offset: int) -> bool:
        """Acknowledge; return whether that is news."""
        news = offset not in self.acked
        self.acked.add(offset)
        self.inflight.pop(offset, None)
        self.waiting.pop(offset, None)
        return news


class StorageWithModel:
    """A simulated disk, the storage on it, and what is known of it."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.storage: JournalStorage = open_sim(self.disk, self.clock, config)
        self.troubled = False
        self.sent: list[bytes] = []
        self.promised = 0
        self.ends = {0}
        self.groups: dict[str, Known] = {}
        self._number = 0

    # What is done to it.

    def put(self, sizes: list[int]) -> None:
        values = []
        for size in sizes:
            self._number += 1
            values.append(f"{self._number}:".encode().ljust(size, b"."))
        base = len(self.sent)
        try:
            appended = self._call(lambda: self.storage.append_batch(values))
        except Failed as failed:
            if isinstance(failed.__cause__, Poisoned | Closed):
                return
            self.sent += values
            self.ends.add(len(self.sent))
            return
        assert (appended.base_offset, appended.count) == (base, len(values))
        self.sent += values
        self.ends.add(len(self.sent))
        self.promised = len(self.sent)

    def take(self, name: str, count: int, visibility_s: float) -> None:
        known = self.known(name)
        if known is None:
            return
        try:
            messages = self._call(lambda: self.storage.fetch_available(name, count))
        except Failed:
            return
        if not self.troubled:
            known.expire(self.clock.now_ns())
            self.note_letters(name)
            ready = known.ready(self.clock.now_ns(), self.promised)
            offsets = {message.offset for message in messages}
            assert offsets <= ready
            assert len(offsets) == len(messages) == min(count, len([at for at in ready if not known.is_worn(at)]))
        for message in messages:
            assert message.offset not in known.acked, "an acknowledged message is given again"
            assert message.value == self.sent[message.offset]
            assert known.counts.get(message.offset, 0) <= message.deliveries <= known.count_max(message.offset)
            assert message.deliveries < LIMIT
        picked = [message.offset for message in messages]
        deadline_ns = later(self.clock, visibility_s)
        try:
            given = self._call(lambda: self.storage.mark_inflight(name, picked, deadline_ns))
        except Failed:
            for offset in picked:
                known.counts_maybe[offset] = known.counts_maybe.get(offset, 0) + 1
            return
        for message, delivery in zip(messages, given, strict=True):
            assert delivery == (message.offset, message.deliveries + 1, deadline_ns)
            known.counts[message.offset] = delivery.deliveries
            known.waiting.pop(message.offset, None)
            known.inflight[message.offset] = deadline_ns

    def ack(self, name: str, offsets: list[int]) -> None:
        known = self.known(name)
        if known is None:
            return
        offsets = [offset for offset in offsets if offset < self.promised]
        try:
            news = self._call(lambda: self.storage.ack(name, offsets))
        except Failed:
            known.acked_maybe.update(offsets)
            return
        expected = sum([known.ack(offset) for offset in set(offsets)])
        if not self.troubled:
            assert news == expected

    def nack(self, name: str, pick: int, delay_s: float, *, stale: bool) -> None:
        known = self.known(name)
        if known is None or not known.inflight:
            return
        offset = sorted(known.inflight)[pick % len(known.inflight)]
        epoch = known.counts[offset] - stale
        ready_ns = later(self.clock, delay_s)
        try:
            self._call(lambda: self.storage.nack(name, offset, ready_ns, epoch), StaleDelivery)
        except StaleDelivery:
            assert stale or self.troubled
            return
        except Failed:
            return
        assert not stale
        del known.inflight[offset]
        known.waiting[offset] = ready_ns
        if not self.troubled:
            self.note_letters(name)
            assert (offset in known.acked) == known.is_worn(offset)

    def extend(self, name: str, pick: int, visibility_s: float) -> None:
        known = self.known(name)
        if known is None or not known.inflight:
            return
        offset = sorted(known.inflight)[pick % len(known.inflight)]
        deadline_ns = later(self.clock, visibility_s)
        try:
            self._call(lambda: self.storage.extend(name, offset, deadline_ns), StaleDelivery)
        except (Failed, StaleDelivery):
            assert self.troubled
            return
        known.inflight[offset] = deadline_ns

    def list_expired(self) -> None:
        now_ns = self.clock.now_ns()
        try:
            found = self._call(lambda: self.storage.list_expired(now_ns))
        except Failed:
            return
        if self.troubled:
            return
        expected = set()
        for name, known in self.groups.items():
            due = known.expire(now_ns)
            self.note_letters(name)
            assert {offset for offset in due if known.is_worn(offset)} <= set(known.letters)
            expected |= {(name, offset, known.counts[offset]) for offset in due if not known.is_worn(offset)}
        assert {(group, message.offset, message.deliveries) for group, message in found} == expected

    def add_group(self, name: str, *, at_end: bool) -> None:
        if name in self.groups:
            return
        before = self._letters_of(name)
        begin = self.storage.messages.durable_offset if at_end else self.storage.messages.first_offset
        known = Known(letters_before=before)
        self.groups[name] = known
        try:
            self._call(lambda: self.storage.add_group(name, at_end=at_end))
        except Failed:
            known.is_sure = False
            known.acked_maybe.update(range(begin))
            return
        known.acked.update(range(begin))

    def remove_group(self, name: str) -> None:
        known = self.groups.get(name)
        if known is None or not known.is_sure:
            return
        try:
            self._call(lambda: self.storage.remove_group(name))
        except Failed:
            known.is_sure = False
            return
        del self.groups[name]

    def fail_soon(self, fault: Fault) -> None:
        self.disk.fault = fault
        if not self.troubled:
            for known in self.groups.values():
                known.settled = set(known.acked)
        self.troubled = True

    # The ends of it, and what must hold then.

    def close(self) -> None:
        with suppress(Failed):
            self._call(self.storage.close)
        self.disk.kill()
        self.reopen()

    def kill(self) -> None:
        self.disk.kill()
        self.reopen()

    def crash(self, random: Random) -> None:
        tally.count(tally.POWER_LOSSES)
        self.disk.crash(random)
        self.reopen()

    def crash_while_opening(self, random: Random, changes: int) -> None:
        self.disk.crash(random)
        self.disk.fault = power_cut(changes)
        with suppress(StrandlineError):
            open_sim(self.disk, self.clock, self.config)
        self.crash(random)

    def reopen(self) -> None:
        """Open after whatever happened: it must work, and land within what is known."""
        self.disk.fault = None
        self.troubled = False
        self.storage = storage = open_sim(self.disk, self.clock, self.config)
        self._check_messages()
        there = {status.group for status in storage.status()}
        for name in [name for name in self.groups if name not in there]:
            assert not self.groups.pop(name).is_sure, f"group {name} is gone"
        assert there == set(self.groups)
        for name, known in self.groups.items():
            self._check_group(name, known, storage.add_group(name))

    def drain(self) -> None:
        """Take everything: each message that no caller and no letter answered for must come, and then nothing."""
        self.clock.advance(10_000)
        for name, known in self.groups.items():
            given = {message.offset for message in self.storage.fetch_available(name, ALL)}
            known.expire(self.clock.now_ns())
            self.note_letters(name)
            assert given == set(range(self.promised)) - known.acked
            self.storage.ack(name, given)
            known.acked |= given
            assert self.storage.fetch_available(name, ALL) == []
        for status in self.storage.status():
            assert (status.acked_until, status.backlog) == (self.promised, 0)

    def _check_messages(self) -> None:
        journal = self.storage.messages
        end = journal.next_offset
        assert self.promised <= end <= len(self.sent), "an acknowledged put is gone"
        assert end in self.ends, "half of a put is there"
        del self.sent[end:]
        self.ends = {known for known in self.ends if known <= end}
        self.promised = end
        for offset in range(journal.first_offset, end):
            assert self.storage.fetch_by_offset(offset).value == self.sent[offset]

    def _check_group(self, name: str, known: Known, group: Group) -> None:
        captured = group.capture()
        end = self.promised
        assert captured.acks.until <= end
        acked = {offset for offset in range(end) if offset in captured.acks}
        letters = self._letters(name)
        self._check_letters(known, letters, acked)
        # A letter of an earlier life of the group, with the same count, may stand for one of this life.
        dead = {letter.offset for letter in self.storage.dead_letters(name)}
        if known.is_sure:
            assert known.acked <= acked, "an acknowledgement is gone"
            assert captured.acks.until >= self.storage.messages.first_offset, "messages went that a group needs"
        assert acked <= known.acked | known.acked_maybe | dead, "a message was lost"
        inflight = {entry.offset: entry for entry in map(parse_scheduled, captured.inflight)}
        waiting = {entry.offset: entry for entry in map(parse_scheduled, captured.waiting)}
        for offset in set(range(end)) - acked:
            entry = inflight.get(offset) or waiting.get(offset)
            count = entry.deliveries if entry else 0
            if known.is_sure:
                assert known.counts.get(offset, 0) <= count <= known.count_max(offset), "a delivery count is wrong"
        if captured.acks.until < self.storage.messages.first_offset:  # half made, and nobody was told
            group.ack_below(self.storage.messages.first_offset)
            acked |= set(range(self.storage.messages.first_offset))
        counts = {offset: entry.deliveries for offset, entry in (inflight | waiting).items()}
        self.groups[name] = Known(
            acked=acked,
            counts=counts,
            inflight={offset: entry.time_ns for offset, entry in inflight.items() if offset not in acked},
            waiting={offset: entry.time_ns for offset, entry in waiting.items() if offset not in acked},
            letters=[letter.offset for letter in letters],
            letters_before=known.letters_before,
        )

    def _check_letters(self, known: Known, letters: list[DeadLetter], acked: set[int]) -> None:
        offsets = [letter.offset for letter in letters]
        assert len(set(offsets)) == len(offsets), "a letter was written twice"
        assert offsets[: len(known.letters)] == known.letters, "a letter is gone"
        for letter in letters:
            assert letter.value == self.sent[letter.offset]
            assert letter.offset in acked, "a dead message is still alive"
        for letter in letters[len(known.letters) :]:
            assert known.count_max(letter.offset) >= letter.deliveries >= LIMIT, "a message died too early"
            assert letter.offset not in (known.acked if known.settled is None else known.settled), "a message died done"

    def note_letters(self, name: str) -> None:
        """Believe new letters, if they are of messages that were delivered as often as allowed."""
        known = self.groups[name]
        offsets = [letter.offset for letter in self._letters(name)]
        assert offsets[: len(known.letters)] == known.letters
        for offset in offsets[len(known.letters) :]:
            assert known.is_worn(offset), "a message died too early"
            assert offset not in known.acked, "a message died that was done"
            assert offset not in known.inflight, "a message died that somebody has"
            known.letters.append(offset)
            known.ack(offset)

    def known(self, name: str) -> Known | None:
        """Return what is known of a group, if the storage surely has it open."""
        known = self.groups.get(name)
        return known if known is not None and known.is_sure else None

    def _letters(self, name: str) -> list[DeadLetter]:
        return self.storage.dead_letters(name)[self.groups[name].letters_before :]

    def _letters_of(self, name: str) -> int:
        return len(self.storage.dead_letters(name))

    def _call(self, call: Callable[[], T], *expected: type[StrandlineError]) -> T:
        """Call; what a disk in trouble makes of it is `Failed`, and anything else untyped or untimely is a bug."""
        try:
            return call()
        except expected:
            raise
        except StrandlineError as error:
            if not self.troubled:
                raise
            raise Failed from error
