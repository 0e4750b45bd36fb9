"""A durable consumer that is asked, answered, killed and unplugged in any order: nothing is lost, nothing done twice.

A seed decides everything that happens; it is in the test's name.
"""

from random import Random

import pytest

from strandline.broker.api.consumer_config import AckPolicy
from strandline.groups import GroupConfig
from tests import tally
from tests.broker.consumers.helpers import SECOND, Sent, StreamWithConsumers

SMALL = GroupConfig(compact_bytes_min=1024)
WAIT = 5


class Simulation:
    """One consumer and what must hold of it."""

    def __init__(self, seed: int) -> None:
        tally.count(tally.SEEDS)
        self.random = Random(seed)
        self.world = StreamWithConsumers(on_disk=True)
        self.filter = self.random.choice(["", "s.a", "s.*"])
        self.world.consumer(
            state=self.world.state("C", SMALL),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=WAIT * SECOND,
            filter_subject=self.filter,
            max_ack_pending=self.random.choice([-1, 7]),
        )
        self.wanted: set[int] = set()
        self.outstanding: dict[int, Sent] = {}
        self.counts: dict[int, int] = {}
        """How often each message that is not done was delivered."""
        self.confirmed: set[int] = set()
        self.acked: set[int] = set()
        """What was acknowledged in this life, or is known to have survived."""
        self.ready: set[int] = set()
        """What may be delivered again at once."""
        self.given_ns: dict[int, int] = {}
        """When each message was delivered, or a little before."""
        self.before_ns = self.world.now_ns

    def run(self, steps: int) -> None:
        moves = [self.publish, self.pull, self.pull, self.answer, self.answer, self.give_back, self.wait, self.die]
        for _ in range(steps):
            self.before_ns = self.world.now_ns
            self.random.choice(moves)()
            self.check()
        self.finish()

    def publish(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            subject = self.random.choice(["s.a", "s.b", "s.c.d"])
            self.world.publish((subject, "x"))
            if not self.filter or (subject != "s.c.d" and self.filter == "s.*") or subject == self.filter:
                self.wanted.add(self.world.stream.last_seq)

    def pull(self) -> None:
        payload = f'{{"batch": {self.random.randrange(1, 9)}, "no_wait": true}}'
        self.see(self.world.pull(self.world.consumers["C"], payload))

    def see(self, sent: list[Sent]) -> None:
        """Take what was sent: a pull may still have waited for room."""
        for one in sent:
            if one.reply:
                self.took(one)

    def took(self, one: Sent) -> None:
        count, sequence, _, left = one.numbers
        assert sequence in self.wanted
        assert sequence not in self.acked, "an acknowledged message was delivered again"
        early = self.world.now_ns - self.given_ns.get(sequence, 0) < WAIT * SECOND and sequence not in self.ready
        assert sequence not in self.outstanding or not early, "a message was delivered too early"
        assert count == self.counts.get(sequence, 0) + 1
        self.counts[sequence] = count
        self.outstanding[sequence] = one
        self.given_ns[sequence] = self.before_ns
        self.ready.discard(sequence)
        assert left == sum(sequence not in self.counts and sequence not in self.acked for sequence in self.wanted)

    def answer(self) -> None:
        if not self.outstanding:
            return
        chosen = self.random.sample(sorted(self.outstanding), self.random.randrange(1, len(self.outstanding) + 1))
        reply = self.random.choice(["", "_INBOX.ack"])
        sent = [self.outstanding.pop(sequence) for sequence in chosen]
        payload = self.random.choice(["+ACK", "", "+TERM"])
        answers = self.world.answer(self.world.consumers["C"], *sent, payload=payload, reply=reply)
        self.acked.update(chosen)
        self.ready.difference_update(chosen)
        for sequence in chosen:
            self.counts.pop(sequence, None)
        if reply:
            assert sum(one.to == reply for one in answers) == len(chosen)
            self.confirmed.update(self.acked)
        self.see(answers)

    def give_back(self) -> None:
        if self.outstanding:
            sequence = self.random.choice(sorted(self.outstanding))
            self.ready.add(sequence)
            self.see(self.world.answer(self.world.consumers["C"], self.outstanding[sequence], payload="-NAK"))

    def wait(self) -> None:
        seconds = self.random.choice([0.5, 2, WAIT + 1])
        self.world.wait(seconds)
        if seconds > 1:
            self.confirmed.update(self.acked)  # synced within a second
        self.see(self.world.routes.take())

    def die(self) -> None:
        if self.random.random() < 0.5:
            self.world.reopen()
        else:
            self.world.reopen(self.random)
            self.recover()

    def recover(self) -> None:
        """Learn what a power loss took: deliveries and answers that nobody was promised."""
        state = self.world.consumers["C"].state
        pending = state.pending
        done = {n for n in self.wanted if n <= state.delivered_stream and n not in pending}
        assert self.confirmed <= done, "a confirmed acknowledgement is gone"
        assert done <= self.acked, "a message that nobody acknowledged counts as done"
        self.acked = done
        self.counts = {sequence: pending.count(sequence) for sequence in pending.first}
        self.outstanding = {n: one for n, one in self.outstanding.items() if n in pending}
        self.ready = set(pending.first)

    def check(self) -> None:
        info = self.world.consumers["C"].info(self.world.now_ns)
        assert info.num_ack_pending == len(self.counts)
        assert info.num_redelivered == sum(count > 1 for count in self.counts.values())
        assert info.num_pending == sum(n not in self.counts and n not in self.acked for n in self.wanted)
        floor = info.ack_floor.stream_seq
        assert all(sequence > floor for sequence in self.counts)

    def finish(self) -> None:
        """Acknowledge everything that is left; then everything was delivered and acknowledged."""
        for _ in range(1000):
            self.world.wait(WAIT + 1)
            self.pull()
            while self.outstanding:
                self.answer()
            if self.acked == self.wanted:
                break
        assert self.acked == self.wanted
        info = self.world.consumers["C"].info(0)
        assert (info.num_ack_pending, info.num_pending, info.num_redelivered) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_is_done_twice(seed: int) -> None:
    Simulation(seed).run(80)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_nothing_is_lost_and_nothing_is_done_twice_in_many_runs(seed: int) -> None:
    Simulation(seed).run(200)
