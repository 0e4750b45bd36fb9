"""What was delivered and waits for an answer: found by sequence, by the time it runs out, and lowest first.

Invariants: first deliveries rise by sequence, so what is outstanding is kept in the order it was added; a sequence has
at most one deadline; one that is queued to be delivered again has none. Many messages delivered together are one entry
by time. Pure: no clock, no file.
"""

from collections import deque
from heapq import heappop, heappush
from itertools import islice, repeat

from strandline.broker.streams.arrays import Words
from strandline.groups import Scheduled, format_scheduled

SMALL = 256
PASSED_NS = 1
"""The time under which a message is kept that was passed over, and never delivered."""
TOGETHER_NS = 1_000_000
"""Small deliveries this close together run out together, up to so much late."""


class _Batch:
    """Messages that were delivered together; an array where there are many."""

    __slots__ = ("deadline_ns", "sequences")

    def __init__(self, deadline_ns: int, sequences: list[int] | Words) -> None:
        self.deadline_ns = deadline_ns
        self.sequences = sequences

    def numbers(self) -> list[int]:
        return self.sequences if isinstance(self.sequences, list) else self.sequences.tolist()


class Pending:
    """Deliveries that were not answered yet."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        """The consumer sequence of the first delivery, by stream sequence."""
        self.counts: dict[int, int] = {}
        """How often a message was delivered, where that is not once; those that are spent stay here."""
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

    # Coming.

    def add(self, sequences: Words, consumer_seq: int, deadline_ns: int) -> None:
        """Take in first deliveries, above all others; they have consecutive consumer sequences."""
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
        """Take in one message as it was found; called in the order of sequences, before anything else."""
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

    # Going.

    def remove(self, sequences: list[int]) -> list[int]:
        """Let go of messages; return those that were outstanding."""
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
        """Let go of everything up to a sequence; return what was outstanding."""
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
        """Stop waiting for a message that was delivered often enough; how often is remembered."""
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

    # Looking.

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
        """Return the messages that were delivered often enough and not acknowledged."""
        return [sequence for sequence in self.counts if sequence not in self.first]

    def deadlines(self) -> dict[int, int]:
        """Return the deadline of everything outstanding, 0 for what is to be delivered again."""
        first, own, queued = self.first, self._own, self._queued
        found = {
            number: batch.deadline_ns
            for batch in self._batches
            for number in batch.numbers()
            if number in first and number not in own and number not in queued
        }
        return found | own | dict.fromkeys(queued, 0)

    def entries(self) -> list[int]:
        """Return everything outstanding, as a group keeps it."""
        deadlines, counts = self.deadlines(), self.counts
        if 0 in counts.values():
            deadlines |= dict.fromkeys((number for number, count in counts.items() if not count), PASSED_NS)
        count = counts.get
        return [
            format_scheduled(Scheduled(time_ns, number, count(number) or 1)) for number, time_ns in deadlines.items()
        ]

    # Time.

    def next_deadline(self) -> int | None:
        """Return when something may run out next, None if nothing can."""
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
        """Take what has run out off its deadline, and return it by sequence; the caller queues it or lets it go."""
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

    # Again.

    @property
    def queued_count(self) -> int:
        """How many messages wait to be delivered again."""
        return len(self._queued)

    def is_queued(self, sequence: int) -> bool:
        """Tell whether a message waits to be delivered again."""
        return sequence in self._queued

    def queue(self, sequences: list[int]) -> None:
        """Let outstanding messages be delivered again, after those that wait for that already."""
        for sequence in sequences:
            if sequence not in self._queued:
                self._own.pop(sequence, None)
                self._queued.add(sequence)
                self._queue.append(sequence)

    def queued(self, limit: int) -> list[int]:
        """Return the first of those that wait to be delivered again; they stay where they are."""
        queue, queued = self._queue, self._queued
        while queue and queue[0] not in queued:
            queue.popleft()
        if len(queue) > 2 * len(queued) + SMALL:
            self._queue = queue = deque(dict.fromkeys(number for number in queue if number in queued))
        return list(dict.fromkeys(number for number in islice(queue, 2 * limit) if number in queued))[:limit]

    def redelivered(self, sequence: int, deadline_ns: int) -> int:
        """Note that a queued message was delivered once more; return how often it has been now."""
        count = self.counts[sequence] = self.count(sequence) + 1
        if count == 1:
            del self.counts[sequence]
        self.set_deadline(sequence, deadline_ns)
        return count
