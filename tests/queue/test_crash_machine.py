"""Nothing promised is lost and nothing done comes back, whatever is done and wherever the power goes."""

import errno
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from strandline.groups import GroupConfig
from strandline.queue import QueueConfig
from strandline.sim import Fault
from tests.queue.helpers import CHANGES, SMALL_JOURNAL, power_cut
from tests.queue.model import LIMIT, StorageWithModel

NAMES = st.sampled_from(["a", "b"])
SECONDS = st.sampled_from([0, 1, 5, 30])
SEEDS = st.integers(0, 2**32 - 1)
CODES = st.sampled_from([errno.EIO, errno.ENOSPC])
OPERATIONS = st.sampled_from([CHANGES, *(frozenset({name}) for name in sorted(CHANGES))])


class QueueMachine(RuleBasedStateMachine):
    """A queue with tiny segments and deltas, so that it rolls, forgets and compacts all the time."""

    world: StorageWithModel

    @initialize(compact_age_s=st.sampled_from([None, 1.0]), sizes=st.lists(st.integers(0, 300), max_size=3))
    def begin(self, compact_age_s: float | None, sizes: list[int]) -> None:
        group = GroupConfig(compact_bytes_min=1024, compact_age_s=compact_age_s)
        self.world = StorageWithModel(QueueConfig(deliveries_max=LIMIT, journal=SMALL_JOURNAL, group=group))
        self.world.put(sizes)
        self.world.add_group("a", at_end=False)

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3))
    def put(self, sizes: list[int]) -> None:
        self.world.put(sizes)

    @rule(name=NAMES, count=st.integers(1, 4), seconds=SECONDS)
    def take(self, name: str, count: int, seconds: int) -> None:
        self.world.take(name, count, seconds)

    @rule(name=NAMES, count=st.integers(1, 4), times=st.integers(1, LIMIT + 1))
    def take_and_dawdle(self, name: str, count: int, times: int) -> None:
        for _ in range(times):
            self.world.take(name, count, 1)
            self.world.clock.advance(2)

    @rule(name=NAMES, offsets=st.lists(st.integers(0, 40), max_size=8))
    def ack(self, name: str, offsets: list[int]) -> None:
        self.world.ack(name, offsets)

    @rule(name=NAMES, count=st.integers(1, 20))
    def ack_the_lowest(self, name: str, count: int) -> None:
        known = self.world.known(name)
        if known is not None:
            self.world.ack(name, sorted(set(range(self.world.promised)) - known.acked)[:count])

    @rule(name=NAMES, pick=st.integers(0, 9), seconds=SECONDS, stale=st.booleans())
    def nack(self, name: str, pick: int, seconds: int, stale: bool) -> None:
        self.world.nack(name, pick, seconds, stale=stale)

    @rule(name=NAMES, pick=st.integers(0, 9), seconds=SECONDS)
    def extend(self, name: str, pick: int, seconds: int) -> None:
        self.world.extend(name, pick, seconds)

    @rule()
    def list_expired(self) -> None:
        self.world.list_expired()

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule(name=NAMES, at_end=st.booleans())
    def add_group(self, name: str, at_end: bool) -> None:
        self.world.add_group(name, at_end=at_end)

    @rule(name=NAMES)
    def remove_group(self, name: str) -> None:
        self.world.remove_group(name)

    @rule(operations=OPERATIONS, countdown=st.integers(1, 20), code=CODES)
    def an_operation_will_fail(self, operations: frozenset[str], countdown: int, code: int) -> None:
        self.world.fail_soon(Fault(operations, countdown, code))

    @rule(changes=st.integers(1, 20))
    def the_power_will_fail(self, changes: int) -> None:
        self.world.fail_soon(power_cut(changes))

    @rule()
    def close_and_reopen(self) -> None:
        self.world.close()

    @rule()
    def kill_and_reopen(self) -> None:
        self.world.kill()

    @rule(seed=SEEDS)
    def crash_and_reopen(self, seed: int) -> None:
        self.world.crash(Random(seed))

    @rule(seed=SEEDS, changes=st.integers(1, 25))
    def crash_while_reopening(self, seed: int, changes: int) -> None:
        self.world.crash_while_opening(Random(seed), changes)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.crash(Random(0))
            self.world.drain()


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(stateful_step_count=40)
