"""The durable state of a consumer: delivered and acknowledged sequences, and outstanding deliveries.

Invariants: the ack floor is below every outstanding message and moves back only by a reset; it moves when the lowest
message is acknowledged, as in nats-server. Changes are noted for the recorder, if there is one, and become one frame
when `write` is called. Deliveries and acknowledgements are written at once and synced within a second; a confirmed one
is synced before its reply.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from strandline.broker.consumers.pending import PASSED_NS, Pending
from strandline.broker.streams.arrays import Words
from strandline.clock import Clock
from strandline.files import Disk
from strandline.groups import (
    INFLIGHT,
    SYNCED,
    WAITING,
    WRITTEN,
    Captured,
    Durability,
    GroupState,
    Recorder,
    Scheduled,
    acks_but,
    format_acked,
    format_counters,
    format_deliveries,
    format_scheduled,
    runs,
)

GROUP = "state"
"""The name of the group in a consumer's folder."""

DELIVERED_CONSUMER, DELIVERED_STREAM, FLOOR_CONSUMER, FLOOR_STREAM, RESUME, IS_SET = range(6)
"""The numbers of the counters."""
NEVER_NS = 2**63 - 2
"""The deadline of a message that reached `max_deliver`."""


class SavedPosition(NamedTuple):
    """The position of a consumer: consumer and stream sequences, and outstanding messages.

    Each outstanding message has its consumer sequence, its deadline, and its delivery count.
    """

    delivered: tuple[int, int]
    floor: tuple[int, int]
    pending: dict[int, tuple[int, int, int]]


class ConsumerState:
    """The state of a consumer; without a recorder it is lost with the process."""

    def __init__(
        self,
        recorder: Recorder | None = None,
        post: Callable[[Callable[[], None]], None] | None = None,
        durability: Durability = SYNCED,
    ) -> None:
        self.pending = Pending()
        self.delivered_consumer = 0
        self.delivered_stream = 0
        self.floor_consumer = 0
        self.floor_stream = 0
        self.resume = 0
        """Up to which sequence only the last message of each subject is wanted."""
        self.passed: set[int] = set()
        """Removed messages that later deliveries have passed; they are delivered if they come back."""
        self.begins = (0, 0)
        """Start sequence and `resume`, stored by the owner until the first write; 0 if unknown."""
        self.is_new = True
        self._recorder = recorder
        self._post = post or _call
        self._durability = durability
        self._notes: list[bytes] = []
        self._moved = False
        if recorder is not None:
            self._restore(recorder.take_state())

    @property
    def is_durable(self) -> bool:
        """Whether it is stored on disk."""
        return self._recorder is not None

    @property
    def decided(self) -> int:
        """The sequence up to which every delivered message is acknowledged."""
        kept = (*self.pending.first, *self.pending.counts, *self.passed)
        lowest = min(kept, default=self.delivered_stream + 1)
        return min(self.delivered_stream, lowest - 1)

    # Starting.

    def begin(self, position: int, resume: int = 0) -> None:
        """Start at a stream sequence and forget everything else; durable, except for the first time."""
        self.pending = Pending()
        self.passed.clear()
        self.delivered_consumer = self.floor_consumer = 0
        self.delivered_stream = self.floor_stream = position - 1
        self.resume = resume
        was_new, self.is_new = self.is_new, False
        self._notes.clear()
        self._moved = False
        if self._recorder is not None and not was_new:
            self._recorder.replace(self._capture())

    def adopt(self, saved: "SavedPosition") -> None:
        """Start at a saved position."""
        self.begin(1)
        self.delivered_consumer, self.delivered_stream = saved.delivered
        self.floor_consumer, self.floor_stream = saved.floor
        for sequence, (consumer_seq, deadline_ns, deliveries) in sorted(saved.pending.items()):
            self.pending.restore(sequence, consumer_seq, deadline_ns, deliveries)
        if self._recorder is not None:
            self._recorder.replace(self._capture())

    def fall_back(self, last_seq: int) -> None:
        """Forget deliveries beyond the end of a stream that has lost its last messages."""
        self.pending.remove([sequence for sequence in self.pending.first if sequence > last_seq])
        for sequence in [sequence for sequence in self.pending.counts if sequence > last_seq]:
            del self.pending.counts[sequence]
        self.passed = {sequence for sequence in self.passed if sequence <= last_seq}
        self.delivered_stream = min(self.delivered_stream, last_seq)
        self.floor_stream = min(self.floor_stream, last_seq)
        if self._recorder is not None:
            self._recorder.replace(self._capture())

    def _restore(self, found: GroupState) -> None:
        counters = found.counters
        if not counters.get(IS_SET):
            return
        self.is_new = False
        self.delivered_consumer = counters.get(DELIVERED_CONSUMER, 0)
        self.delivered_stream = counters.get(DELIVERED_STREAM, 0)
        self.floor_consumer = counters.get(FLOOR_CONSUMER, 0)
        self.floor_stream = counters.get(FLOOR_STREAM, 0)
        self.resume = counters.get(RESUME, 0)
        known = found.inflight() + found.waiting()
        self._hold(sorted((entry.offset, entry.time_ns, entry.deliveries) for entry in known))

    def _hold(self, entries: list[tuple[int, int, int]]) -> None:
        """Restore outstanding and given-up messages: ascending sequences, deadlines, delivery counts."""
        outstanding = [entry for entry in entries if entry[1] != NEVER_NS]
        if outstanding:
            self.floor_stream = min(self.floor_stream, outstanding[0][0] - 1)
        # Consumer sequences are not stored. This estimate is right unless a message was delivered twice.
        after = self.floor_consumer + 1
        for at, (sequence, time_ns, deliveries) in enumerate(outstanding):
            highest = self.delivered_consumer - (len(outstanding) - 1 - at)
            guess = self.floor_consumer + (sequence - self.floor_stream)
            consumer_seq = max(after, min(guess, highest))
            self.pending.restore(sequence, consumer_seq, time_ns, deliveries)
            after = consumer_seq + 1
        self.pending.counts.update({sequence: count for sequence, time_ns, count in entries if time_ns == NEVER_NS})

    # Delivering.

    def deliver(self, sequences: Words, deadline_ns: int | None) -> None:
        """Note ascending first deliveries; without a deadline they need no acknowledgement."""
        count = len(sequences)
        consumer_seq = self.delivered_consumer + 1
        self.delivered_consumer += count
        self.delivered_stream = int(sequences[-1])
        self._moved = True
        if deadline_ns is None:
            self.floor_consumer, self.floor_stream = self.delivered_consumer, self.delivered_stream
            return
        self.pending.add(sequences, consumer_seq, deadline_ns)
        if self._recorder is not None:
            self._notes.append(format_deliveries(INFLIGHT, sequences, deadline_ns, 1))

    def pass_over(self, sequences: list[int]) -> None:
        """Note removed messages before the next deliveries, whose removal is not durable yet."""
        if sequences:
            self.passed.update(sequences)
            if self._recorder is not None:
                self._notes.append(format_deliveries(WAITING, np.array(sequences, np.uint64), PASSED_NS, 1))

    def drop_passed(self, sequences: list[int]) -> None:
        """Note that the removal of skipped messages is durable."""
        gone = self.passed.intersection(sequences)
        if gone:
            self.passed -= gone
            self._note_acked(list(gone))

    def take_back(self) -> None:
        """Queue skipped messages for delivery after all, because their removal may have failed."""
        if not self.passed:
            return
        pending, self.pending = self.pending, Pending()
        entries = [(sequence, time_ns, pending.count(sequence)) for sequence, time_ns in pending.deadlines().items()]
        entries += [(sequence, NEVER_NS, pending.counts[sequence]) for sequence in pending.spent()]
        entries += [(sequence, PASSED_NS, 1) for sequence in self.passed]
        self.passed = set()
        self._hold(sorted(entries))
        self._moved = True

    def redeliver(self, sequence: int, deadline_ns: int) -> None:
        """Note a redelivery."""
        self.delivered_consumer += 1
        self._moved = True
        self.pending.redelivered(sequence, deadline_ns)
        self._note(INFLIGHT, sequence, deadline_ns)

    def extend(self, sequence: int, deadline_ns: int) -> None:
        """Set a new deadline of an outstanding message."""
        self.pending.set_deadline(sequence, deadline_ns)
        self._note(INFLIGHT, sequence, deadline_ns)

    def give_back(self, sequence: int, ready_ns: int | None) -> None:
        """Queue an outstanding message for redelivery, at a time or now."""
        if ready_ns is None:
            self.pending.queue([sequence])
        else:
            self.pending.set_deadline(sequence, ready_ns)
        self._note(WAITING, sequence, ready_ns or 0)

    def spend(self, sequence: int) -> None:
        """Give up on a message that reached `max_deliver`; message and floor stay."""
        self.pending.spend(sequence)
        self._note(WAITING, sequence, NEVER_NS)

    def skip_to(self, position: int) -> None:
        """Move to a sequence before which no message is left; outstanding messages are beyond it."""
        self.delivered_stream = max(self.delivered_stream, position - 1)
        if not len(self.pending):
            self.floor_consumer, self.floor_stream = self.delivered_consumer, self.delivered_stream
        self._moved = True

    # Acknowledging.

    def acknowledge(self, sequences: list[int]) -> list[int]:
        """Acknowledge messages; return those that were outstanding."""
        if not sequences:
            return []
        pending = self.pending
        lowest = pending.lowest()
        was_lowest = pending.first[lowest] if lowest is not None else 0
        known = bool(pending.counts)
        found = pending.remove(sequences)
        if found or known:
            self._note_acked(sequences if known else found)
        if found and lowest not in pending.first:
            self._raise_floor(was_lowest, lowest or 0)
        return found

    def acknowledge_through(self, sequence: int, consumer_seq: int) -> list[int]:
        """Acknowledge everything up to a message; return what was outstanding."""
        if consumer_seq <= self.floor_consumer or sequence <= self.floor_stream:
            return []
        found = self.pending.remove_through(sequence)
        self.passed = {number for number in self.passed if number > sequence}
        self.floor_consumer, self.floor_stream = consumer_seq, sequence
        self._moved = True
        if self._recorder is not None:
            self._notes.append(format_acked([(0, sequence + 1)]))
        return found

    def _raise_floor(self, consumer_seq: int, sequence: int) -> None:
        """Move the ack floor after its lowest message was acknowledged or given up."""
        lowest = self.pending.lowest()
        if lowest is None:
            self.floor_consumer, self.floor_stream = self.delivered_consumer, self.delivered_stream
        elif consumer_seq == self.floor_consumer + 1 or lowest > sequence:
            self.floor_consumer, self.floor_stream = self.pending.first[lowest] - 1, lowest - 1
        self._moved = True

    # Writing.

    def _note(self, kind: int, sequence: int, time_ns: int) -> None:
        if self._recorder is not None:
            numbers = np.array([sequence], np.uint64)
            self._notes.append(format_deliveries(kind, numbers, time_ns, self.pending.count(sequence)))

    def _note_acked(self, sequences: list[int]) -> None:
        if self._recorder is None:
            return
        first, last = min(sequences), max(sequences)
        # They are nearly always consecutive.
        together = last - first + 1 == len(sequences) and len(set(sequences)) == len(sequences)
        self._notes.append(format_acked([(first, last + 1)] if together else runs(sequences)))

    def _counters(self) -> dict[int, int]:
        return {
            DELIVERED_CONSUMER: self.delivered_consumer,
            DELIVERED_STREAM: self.delivered_stream,
            FLOOR_CONSUMER: self.floor_consumer,
            FLOOR_STREAM: self.floor_stream,
            RESUME: self.resume,
            IS_SET: 1,
        }

    def write(self) -> None:
        """Write the changes since the last call as one frame; it becomes durable later."""
        recorder = self._recorder
        if recorder is None or not (self._notes or self._moved):
            return
        self._notes.append(format_counters(self._counters()))
        recorder.record(self._notes)
        self._notes = []
        self._moved = False
        if recorder.is_large:
            recorder.compact_soon(self._capture())

    def when_synced(self, done: Callable[[], None]) -> None:
        """Call `done`, at once or by `post`, when everything written is as durable as configured; never on failure."""
        if self._recorder is None or (self._durability is WRITTEN and self._recorder.is_written):
            done()
            return
        post = self._post
        self._recorder.sync_soon(lambda failure: post(done) if failure is None else None)

    def sync_if_due(self, now_ns: int) -> None:
        """Start syncing frames written more than a second ago."""
        if self._recorder is not None:
            self._recorder.sync_if_due(now_ns)

    def next_sync_ns(self) -> int | None:
        """Return when `sync_if_due` is due."""
        return None if self._recorder is None else self._recorder.next_sync_ns

    def _capture(self) -> Captured:
        pending = self.pending
        spent = pending.spent()
        kept = np.array(sorted([*pending.first, *spent, *self.passed]), np.int64)
        acks = acks_but(kept, self.delivered_stream + 1)
        given_up = [format_scheduled(Scheduled(NEVER_NS, sequence, pending.counts[sequence])) for sequence in spent]
        passed = [format_scheduled(Scheduled(PASSED_NS, sequence, 1)) for sequence in self.passed]
        return Captured(acks, pending.entries(), given_up + passed, self._counters())

    def settle(self) -> None:
        """Write and sync everything."""
        if self._recorder is not None:
            self.write()
            self._recorder.sync()

    def abandon(self) -> None:
        """Close the files without writing pending changes."""
        if self._recorder is not None:
            self._recorder.close()

    def close(self) -> None:
        """Write and sync everything, and close the files."""
        if self._recorder is not None:
            try:
                self.write()
            finally:
                self._recorder.close()


def _call(done: Callable[[], None]) -> None:
    done()


def memory_state() -> ConsumerState:
    """Return a state in memory."""
    return ConsumerState()


def open_state(
    disk: Disk,
    folder: Path,
    *,
    clock: Clock,
    executor: Executor,
    post: Callable[[Callable[[], None]], None],
    durability: Durability = SYNCED,
) -> ConsumerState:
    """Return the state stored in a folder, a new one if there is none."""
    return ConsumerState(Recorder.open(disk, folder, GROUP, clock=clock, executor=executor), post, durability)
