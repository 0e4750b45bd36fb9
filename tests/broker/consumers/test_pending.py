"""What waits for an answer, against a model that does everything the slow way."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from strandline.broker.consumers.pending import TOGETHER_NS, Pending
from strandline.groups import Scheduled, format_scheduled
from tests.effort import examples

WAIT_NS = 1_000 * TOGETHER_NS


@dataclass
class Slow:
    """The same, one message at a time."""

    first: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    deadlines: dict[int, int] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)

    def forget(self, sequence: int) -> None:
        self.first.pop(sequence, None)
        self.deadlines.pop(sequence, None)
        if sequence in self.queue:
            self.queue.remove(sequence)

    def expire(self, now_ns: int) -> list[int]:
        expired = sorted(n for n, time_ns in self.deadlines.items() if time_ns <= now_ns)
        for sequence in expired:
            del self.deadlines[sequence]
        return expired


class Pair:
    """Both of them, and what must be the same."""

    def __init__(self) -> None:
        self.quick, self.slow = Pending(), Slow()
        self.now_ns = WAIT_NS
        self.next_seq = self.next_own = 1

    def add(self, gaps: list[int], after_ns: int) -> None:
        sequences = (self.next_seq + np.cumsum(gaps)).astype(np.uint64)
        self.now_ns += after_ns
        self.quick.add(sequences, self.next_own, self.now_ns + WAIT_NS)
        for sequence in sequences.tolist():
            self.slow.first[sequence] = self.next_own
            self.slow.deadlines[sequence] = self.now_ns + WAIT_NS
            self.next_own += 1
        self.next_seq = int(sequences[-1]) + 1

    def remove(self, sequences: list[int]) -> None:
        known = [sequence for sequence in dict.fromkeys(sequences) if sequence in self.slow.first]
        assert self.quick.remove(sequences) == known
        for sequence in sequences:
            self.slow.forget(sequence)
            self.slow.counts.pop(sequence, None)

    def remove_through(self, sequence: int) -> None:
        known = [n for n in self.slow.first if n <= sequence]
        assert self.quick.remove_through(sequence) == known
        for number in known + [n for n in self.slow.counts if n <= sequence]:
            self.slow.forget(number)
            self.slow.counts.pop(number, None)

    def set_deadline(self, sequence: int, time_ns: int) -> None:
        if sequence in self.slow.first:
            self.quick.set_deadline(sequence, time_ns)
            self.slow.deadlines[sequence] = time_ns
            if sequence in self.slow.queue:
                self.slow.queue.remove(sequence)

    def queue(self, sequence: int) -> None:
        if sequence in self.slow.first:
            self.quick.queue([sequence])
            if sequence not in self.slow.queue:
                self.slow.queue.append(sequence)
            self.slow.deadlines.pop(sequence, None)

    def redeliver(self) -> None:
        for sequence in self.quick.queued(2):
            count = self.quick.redelivered(sequence, self.now_ns + WAIT_NS)
            self.slow.counts[sequence] = self.slow.counts.get(sequence, 1) + 1
            assert count == self.slow.counts[sequence]
            self.slow.queue.remove(sequence)
            self.slow.deadlines[sequence] = self.now_ns + WAIT_NS

    def spend(self, sequence: int) -> None:
        if sequence in self.slow.first:
            self.quick.spend(sequence)
            self.slow.forget(sequence)
            self.slow.counts[sequence] = self.slow.counts.get(sequence, 1)

    def expire(self, after_ns: int) -> None:
        self.now_ns += after_ns
        expired = self.quick.expire(self.now_ns)
        assert expired == self.slow.expire(self.now_ns)
        for sequence in expired:
            self.queue(sequence)

    def check(self) -> None:
        quick, slow = self.quick, self.slow
        assert quick.first == slow.first
        assert quick.counts == slow.counts
        assert quick.lowest() == min(slow.first, default=None)
        assert quick.queued_count == len(slow.queue)
        assert sorted(quick.queued(1_000)) == sorted(slow.queue)
        assert set(quick.spent()) == set(slow.counts) - set(slow.first)
        due_ns, expected_ns = quick.next_deadline(), min(slow.deadlines.values(), default=None)
        assert expected_ns is None or (due_ns is not None and due_ns <= expected_ns)
        entries = {n: slow.deadlines.get(n, 0) for n in slow.first}
        packed = [format_scheduled(Scheduled(time_ns, n, slow.counts.get(n, 1))) for n, time_ns in entries.items()]
        assert sorted(quick.entries()) == sorted(packed)


@examples(100)
@given(st.data())
def test_whatever_happens_both_know_the_same(data: st.DataObject) -> None:
    pair = Pair()
    moves = ["add", "remove", "through", "deadline", "queue", "again", "spend", "expire"]
    for _ in range(data.draw(st.integers(1, 25))):
        any_sequence = st.sampled_from([*pair.slow.first, *pair.slow.counts, 1, 7])
        match data.draw(st.sampled_from(moves)):
            case "add":
                # At once, and then run out together, or so late that they do not.
                after_ns = data.draw(st.sampled_from([0, 2 * TOGETHER_NS]))
                pair.add(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)), after_ns)
            case "remove":
                pair.remove(data.draw(st.lists(any_sequence, max_size=6)))
            case "through":
                pair.remove_through(data.draw(any_sequence))
            case "deadline":
                pair.set_deadline(data.draw(any_sequence), pair.now_ns + data.draw(st.integers(1, 2 * WAIT_NS)))
            case "queue":
                pair.queue(data.draw(any_sequence))
            case "again":
                pair.redeliver()
            case "spend":
                pair.spend(data.draw(any_sequence))
            case _:
                pair.expire(data.draw(st.sampled_from([0, WAIT_NS // 2, 2 * WAIT_NS])))
        pair.check()


def test_what_is_answered_in_order_is_forgotten_as_it_goes() -> None:
    pending = Pending()
    for at in range(0, 100_000, 1_000):
        pending.add(np.arange(at, at + 1_000, dtype=np.uint64), at, WAIT_NS + at * TOGETHER_NS)
        pending.remove(list(range(at, at + 999)))
        pending.remove([at - 1])
        assert pending.next_deadline() is not None

    assert len(pending) == 1
    assert pending.lowest() == 99_999
