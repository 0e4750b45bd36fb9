"""Whatever is done and wherever the power goes, no cursor is ahead of its data and nothing acknowledged is lost."""

from random import Random
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.fold import AppendLogStore, append_log
from strandline.journal import SYNCED, WRITTEN, Durability
from strandline.sim import SimDisk
from tests.effort import Part, examples, parts
from tests.fold.model import CHANGES, PLACE, Rows, StoreModel

KEYS = st.sampled_from([b"a", b"b", b"c", b"d.e", b"d.f"])
VALUES = st.one_of(st.none(), st.integers(0, 900).map(lambda size: b"v" * size))
ROWS = st.lists(st.tuples(KEYS, VALUES), max_size=6)
SEEDS = st.integers(0, 2**32 - 1)
MODES = st.sampled_from([SYNCED, SYNCED, WRITTEN])
SIZES = st.sampled_from([1, 2000, 10**7])
INDEX_SIZES = st.sampled_from([0, append_log.INDEX_BYTES_MIN])
"""Every log has an index beside it, or none has."""


class AppendLogMachine(RuleBasedStateMachine):
    """An append log that is compacted now and then."""

    world: StoreModel

    @initialize(sync=MODES, compact_bytes=SIZES, index_bytes_min=INDEX_SIZES)
    def begin(self, sync: Durability, compact_bytes: int, index_bytes_min: int) -> None:
        self.patch = patch.object(append_log, "INDEX_BYTES_MIN", index_bytes_min)
        self.patch.start()
        self.world = StoreModel()
        assert self.world.open(sync, compact_bytes)

    def teardown(self) -> None:
        self.patch.stop()

    def is_open(self) -> bool:
        return self.world.store is not None

    @precondition(is_open)
    @rule(rows=ROWS, with_cursor=st.sampled_from([True, True, True, False]))
    def apply(self, rows: Rows, with_cursor: bool) -> None:
        self.world.apply(rows, with_cursor=with_cursor)

    @precondition(is_open)
    @rule()
    def settle(self) -> None:
        self.world.settle()

    @precondition(is_open)
    @rule(countdown=st.integers(1, 8), name=st.sampled_from([None, *sorted(CHANGES)]))
    def an_operation_will_fail(self, countdown: int, name: str | None) -> None:
        self.world.fail(countdown, CHANGES if name is None else frozenset({name}))

    @precondition(is_open)
    @rule(sync=MODES, compact_bytes=SIZES)
    def close_and_reopen(self, sync: Durability, compact_bytes: int) -> None:
        self.world.close()
        self.reopen(sync, compact_bytes)

    @precondition(is_open)
    @rule(sync=MODES, compact_bytes=SIZES)
    def kill_and_reopen(self, sync: Durability, compact_bytes: int) -> None:
        self.world.kill()
        self.reopen(sync, compact_bytes)

    @precondition(is_open)
    @rule(sync=MODES, compact_bytes=SIZES, seed=SEEDS)
    def crash_and_reopen(self, sync: Durability, compact_bytes: int, seed: int) -> None:
        self.world.crash(Random(seed))
        self.reopen(sync, compact_bytes)

    @precondition(is_open)
    @rule(countdown=st.integers(1, 12), sync=MODES, seed=SEEDS)
    def opening_fails_and_the_power_goes(self, countdown: int, sync: Durability, seed: int) -> None:
        self.world.kill()
        self.world.fail(countdown)
        self.world.open(sync, 2000)
        self.world.crash(Random(seed))
        self.reopen(SYNCED, 2000)

    def reopen(self, sync: Durability, compact_bytes: int) -> None:
        self.world.disk.fault = None
        assert self.world.open(sync, compact_bytes)
        self.world.look(self.world.acknowledged)

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        world = self.world
        if world.store is not None:
            step = world.steps[world.acknowledged]
            assert world.store.cursor() == step.cursor
            assert world.store.range() == [step.state[key] for key in sorted(step.state)]


TestAppendLogMachine = AppendLogMachine.TestCase
TestAppendLogMachine.settings = examples(100, stateful_step_count=25)


def live(random: Random) -> StoreModel:
    """Let a log go through thirty things that a machine of rules comes to too rarely."""
    world = StoreModel()
    assert world.open(random.choice([SYNCED, WRITTEN]), 2000)
    for _ in range(30):
        chance = random.random()
        if chance < 0.6:
            rows: Rows = [
                (b"key %d" % random.randrange(9), random.choice([None, b"v" * random.randrange(600)]))
                for _ in range(random.randrange(6))
            ]
            world.apply(rows, with_cursor=random.random() < 0.9)
            continue
        if chance < 0.7:
            world.fail(random.randrange(1, 6), frozenset({random.choice(sorted(CHANGES))}))
            continue
        if chance < 0.75:
            world.settle()
            continue
        if chance < 0.8:
            world.close()
        elif chance < 0.9:
            world.kill()
        else:
            world.crash(random)
        world.disk.fault = None
        assert world.open(random.choice([SYNCED, WRITTEN]), random.choice([1, 2000, 10**7]))
        world.look(world.acknowledged)
    world.crash(random)
    assert world.open(SYNCED, 2000)
    world.look(world.acknowledged)
    return world


@parts(8)
def test_many_lives_end_where_they_may(part: Part) -> None:
    for seed in part.of(range(800)):
        index_bytes_min = 0 if seed % 2 else append_log.INDEX_BYTES_MIN
        try:
            with patch.object(append_log, "INDEX_BYTES_MIN", index_bytes_min):
                live(Random(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_the_mark_of_a_proper_close_is_gone_for_good_once_the_log_is_open() -> None:
    name = PLACE.name + ".clean"
    for seed in range(20):
        disk = SimDisk()
        AppendLogStore.open(PLACE, disk=disk).close()
        assert name in disk.names(PLACE.parent)
        AppendLogStore.open(PLACE, disk=disk)
        assert name not in disk.names(PLACE.parent)
        disk.crash(Random(seed))
        assert name not in disk.names(PLACE.parent)
