"""Nothing acknowledged is lost and nothing else is half there, whatever is done and wherever the power goes."""

import errno
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.journal import SYNCED, WRITTEN, Durability, JournalConfig
from tests.journal.model import CHANGES, JournalWithModel, fault_at

SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=4)
SHAPES = st.sampled_from([0, 0, 1, 3, 4, 7])
DURABILITIES = st.sampled_from([SYNCED, SYNCED, WRITTEN])
SEEDS = st.integers(0, 2**32 - 1)
CODES = st.sampled_from([errno.EIO, errno.ENOSPC])


class JournalMachine(RuleBasedStateMachine):
    """A journal with tiny segments, so that it rolls, checkpoints and forgets all the time."""

    world: JournalWithModel

    @initialize(
        reserve=st.sampled_from([0, 0, 700, 65536]),
        retain=st.sampled_from([None, None, 0, 2500]),
        age_s=st.sampled_from([None, 10.0]),
        later=st.booleans(),
    )
    def begin(self, reserve: int, retain: int | None, age_s: float | None, later: bool) -> None:
        config = JournalConfig(
            segment_bytes_max=1024, reserve_bytes_max=reserve, retain_bytes=retain, segment_age_max_s=age_s
        )
        self.world = JournalWithModel(config, later=later)
        self.world.reopen()

    def is_open(self) -> bool:
        return self.world.journal is not None

    @precondition(is_open)
    @rule(sizes=SIZES, shape=SHAPES, durability=DURABILITIES)
    def append(self, sizes: list[int], shape: int, durability: Durability) -> None:
        self.world.append(sizes, shape, durability)

    @precondition(lambda self: self.is_open() and self.world.later is not None)
    @rule(appends=st.lists(st.tuples(SIZES, SHAPES, DURABILITIES), min_size=1, max_size=5))
    def append_later(self, appends: list[tuple[list[int], int, Durability]]) -> None:
        for sizes, shape, durability in appends:
            self.world.append_later(sizes, shape, durability)

    @precondition(lambda self: self.is_open() and self.world.later is not None)
    @rule(times=st.sampled_from([None, 1, 2]))
    def run_what_waits(self, times: int | None) -> None:
        self.world.run_later(times)

    @precondition(is_open)
    @rule()
    def sync(self) -> None:
        self.world.sync()

    @precondition(is_open)
    @rule(back=st.integers(0, 12))
    def remove_below(self, back: int) -> None:
        self.world.remove_below(max(0, len(self.world.expected.records) - back))

    @precondition(is_open)
    @rule(countdown=st.integers(1, 25), code=CODES, name=st.sampled_from([None, *sorted(CHANGES)]))
    def an_operation_will_fail(self, countdown: int, code: int, name: str | None) -> None:
        self.world.disk.fault = fault_at(countdown, CHANGES if name is None else frozenset({name}), code)

    @precondition(is_open)
    @rule(changes=st.integers(0, 25))
    def the_power_will_fail(self, changes: int) -> None:
        self.world.cut.left = changes

    @rule(seconds=st.sampled_from([1, 20]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @precondition(is_open)
    @rule()
    def close_and_reopen(self) -> None:
        self.world.close()
        self.world.kill()
        self.world.reopen()

    @precondition(is_open)
    @rule()
    def kill_and_reopen(self) -> None:
        self.world.kill()
        self.world.reopen()

    @precondition(is_open)
    @rule(seed=SEEDS)
    def crash_and_reopen(self, seed: int) -> None:
        self.world.crash(Random(seed))
        self.world.reopen()

    @precondition(is_open)
    @rule(seed=SEEDS, changes=st.integers(0, 30))
    def crash_while_reopening(self, seed: int, changes: int) -> None:
        random = Random(seed)
        self.world.crash(random)
        self.world.cut.left = changes
        self.world.open()
        self.world.crash(random)
        self.world.reopen()

    @precondition(is_open)
    @rule(seed=SEEDS)
    def crash_twice(self, seed: int) -> None:
        random = Random(seed)
        self.world.crash(random)
        self.world.reopen()
        self.world.check_certain(random)

    @invariant()
    def everything_is_there(self) -> None:
        world = self.world
        if world.journal is None or world.disk.fault or world.cut.left is not None or world.later:
            return
        if not world.is_poisoned(world.journal):
            world.check()


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(stateful_step_count=40)
