"""Outstanding deliveries: indexed by sequence, by ack deadline, and by lowest sequence.

Invariants: first deliveries ascend by sequence, so outstanding messages keep their order of addition; a sequence has
at most one deadline; one queued for redelivery has none. Messages delivered together share one deadline entry. Pure.
"""

from collections import deque
from heapq import heappop, heappush
from itertools import islice, repeat

from strandline.broker.streams.arrays import Words
from strandline.groups import Scheduled, format_scheduled

SMALL = 256
PASSED_NS = 1
"""The deadline under which a skipped message, never delivered, is stored."""
TOGETHER_NS = 1_000_000
"""Small deliveries this close together expire together, late by at most this."""


class _Batch:
    """Messages delivered together; an array if there are many."""

    __slots__ = ("deadline_ns", "sequences")

    def __init__(self, deadline_ns: int, sequences: list[int] | Words) -> None:
        self.deadline_ns = deadline_ns
        self.sequences = sequences

    def numbers(self) -> list[int]:
        return self.sequences if isinstance(self.sequences, list) else self.sequences.tolist()


class Pending:
    """The unacknowledged deliveries of a consumer."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        """The consumer sequence of the first delivery, by stream sequence."""
        self.counts: dict[int, int] = {}
        """Delivery counts other than one; those of exhausted messages stay here."""
        self._order: deque[_Batch] = deque()
        self._lowest: list[int] = []
        self._lowest_at = 0
        self._batches: deque[_Batch] = deque()
        self._own: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._queue: deque[int] = deque()
        self._queued: set[int] = set()

    def __len__(self) -> int:
        return len(self.first)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self.first

    def count(self, sequence: int) -> int:
        """Return how often a message was delivered."""
        return self.counts.get(sequence, 1)

    # Adding.

    def add(self, sequences: Words, consumer_seq: int, deadline_ns: int) -> None:
        """Add first deliveries, above all others; they have consecutive consumer sequences."""
        numbers = sequences.tolist()
        self.first.update(zip(numbers, range(consumer_seq, consumer_seq + len(numbers)), strict=True))
        last = self._batches[-1] if self._batches else None
        if last is not None and deadline_ns < last.deadline_ns:
            for number in numbers:
                self.set_deadline(number, deadline_ns)
            self._order.append(_Batch(deadline_ns, numbers))
            return
        if (
            last is not None
            and isinstance(last.sequences, list)
            and len(last.sequences) + len(numbers) <= SMALL
            and deadline_ns - last.deadline_ns < TOGETHER_NS
            and self._order
            and self._order[-1] is last
        ):
            last.sequences += numbers
            return
        batch = _Batch(deadline_ns, numbers if len(numbers) <= SMALL else sequences)
        self._batches.append(batch)
        self._order.append(batch)

    def restore(self, sequence: int, consumer_seq: int, deadline_ns: int, deliveries: int) -> None:
        """Add one message from stored state; called in ascending order, before anything else."""
        self.first[sequence] = consumer_seq
        if deadline_ns == PASSED_NS:
            self.counts[sequence] = 0
        elif deliveries > 1:
            self.counts[sequence] = deliveries
        self.set_deadline(sequence, deadline_ns)
        self._lowest.append(sequence)

    def set_deadline(self, sequence: int, deadline_ns: int) -> None:
        """Give an outstanding message a deadline of its own."""
        self._queued.discard(sequence)
        self._own[sequence] = deadline_ns
        heappush(self._heap, (deadline_ns, sequence))

    # Removing.

    def remove(self, sequences: list[int]) -> list[int]:
        """Remove messages; return those that were outstanding."""
        popped = list(map(self.first.pop, sequences, repeat(None)))
        found = sequences
        if None in popped:
            found = [sequence for sequence, one in zip(sequences, popped, strict=True) if one is not None]
        if self.counts:
            for sequence in sequences:
                self.counts.pop(sequence, None)
        self._forget(found)
        return found

    def remove_through(self, sequence: int) -> list[int]:
        """Remove everything up to a sequence; return what was outstanding."""
        found = []
        first = self.first
        while (lowest := self.lowest()) is not None and lowest <= sequence:
            del first[lowest]
            found.append(lowest)
        if self.counts:
            for number in [number for number in self.counts if number <= sequence]:
                del self.counts[number]
        self._forget(found)
        return found

    def spend(self, sequence: int) -> None:
        """Give up on a message that reached `max_deliver`; its count is kept."""
        self.counts[sequence] = self.count(sequence)
        self.first.pop(sequence, None)
        self._forget([sequence])

    def _forget(self, sequences: list[int]) -> None:
        if self._own:
            for sequence in sequences:
                self._own.pop(sequence, None)
            if not self._own:
                self._heap.clear()
        if self._queued:
            self._queued.difference_update(sequences)
        if not self.first:
            self._order.clear()
            self._batches.clear()
            self._queue.clear()
            self._lowest, self._lowest_at = [], 0

    # Queries.

    def lowest(self) -> int | None:
        """Return the lowest outstanding sequence."""
        first = self.first
        if not first:
            return None
        while True:
            numbers, at = self._lowest, self._lowest_at
            while at < len(numbers):
                if numbers[at] in first:
                    self._lowest_at = at
                    return numbers[at]
                at += 1
            batch = self._order.popleft()
            self._lowest, self._lowest_at = list(batch.numbers()), 0

    def spent(self) -> list[int]:
        """Return the messages that reached `max_deliver` without an acknowledgement."""
        return [sequence for sequence in self.counts if sequence not in self.first]

    def deadlines(self) -> dict[int, int]:
        """Return the deadlines of all outstanding messages, 0 for those queued for redelivery."""
        first, own, queued = self.first, self._own, self._queued
        found = {
            number: batch.deadline_ns
            for batch in self._batches
            for number in batch.numbers()
            if number in first and number not in own and number not in queued
        }
        return found | own | dict.fromkeys(queued, 0)

    def entries(self) -> list[int]:
        """Return all outstanding messages as entries of a group."""
        deadlines, counts = self.deadlines(), self.counts
        if 0 in counts.values():
            deadlines |= dict.fromkeys((number for number, count in counts.items() if not count), PASSED_NS)
        count = counts.get
        return [
            format_scheduled(Scheduled(time_ns, number, count(number) or 1)) for number, time_ns in deadlines.items()
        ]

    # Deadlines.

    def next_deadline(self) -> int | None:
        """Return the earliest deadline, None if there is none."""
        batches, first = self._batches, self.first
        while batches and len(batches[0].sequences) and int(batches[0].sequences[-1]) < (self.lowest() or 0):
            batches.popleft()
        if not first:
            return None
        heap = self._heap
        while heap and self._own.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        due = [batches[0].deadline_ns] if batches else []
        if heap:
            due.append(heap[0][0])
        return min(due, default=None)

    def expire(self, now_ns: int) -> list[int]:
        """Take the expired messages off their deadlines; the caller queues or drops them."""
        expired: list[int] = []
        first, own, queued = self.first, self._own, self._queued
        while self._batches and self._batches[0].deadline_ns <= now_ns:
            batch = self._batches.popleft()
            expired += [n for n in batch.numbers() if n in first and n not in own and n not in queued]
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            deadline_ns, sequence = heappop(heap)
            if own.get(sequence) == deadline_ns:
                del own[sequence]
                expired.append(sequence)
        expired.sort()
        return expired

    # Redelivery.

    @property
    def queued_count(self) -> int:
        """How many messages are queued for redelivery."""
        return len(self._queued)

    def is_queued(self, sequence: int) -> bool:
        """Tell whether a message is queued for redelivery."""
        return sequence in self._queued

    def queue(self, sequences: list[int]) -> None:
        """Queue outstanding messages for redelivery, at the end of the queue."""
        for sequence in sequences:
            if sequence not in self._queued:
                self._own.pop(sequence, None)
                self._queued.add(sequence)
                self._queue.append(sequence)

    def queued(self, limit: int) -> list[int]:
        """Return the first messages queued for redelivery; they stay in the queue."""
        queue, queued = self._queue, self._queued
        while queue and queue[0] not in queued:
            queue.popleft()
        if len(queue) > 2 * len(queued) + SMALL:
            self._queue = queue = deque(dict.fromkeys(number for number in queue if number in queued))
        return list(dict.fromkeys(number for number in islice(queue, 2 * limit) if number in queued))[:limit]

    def redelivered(self, sequence: int, deadline_ns: int) -> int:
        """Note a redelivery of a queued message; return its delivery count."""
        count = self.counts[sequence] = self.count(sequence) + 1
        if count == 1:
            del self.counts[sequence]
        self.set_deadline(sequence, deadline_ns)
        return count
