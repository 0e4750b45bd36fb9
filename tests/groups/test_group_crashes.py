"""A durable group on a disk that loses, tears and reorders writes, loses renames, and fails.

After each frame the model is kept. Whatever happens to the machine, what is recovered is the model after some frame:
not before the last one that a caller was told is durable, and never between two.
"""

import errno
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.clock import ManualClock
from strandline.errors import CommitFailed, Conflict, InvalidInput, Poisoned, StaleDelivery, StorageRefused
from strandline.gather import InlineExecutor
from strandline.groups import (
    SYNCED,
    WRITTEN,
    Ack,
    Change,
    Durability,
    Group,
    GroupConfig,
    Nack,
    Result,
    Take,
    inspect_group,
)
from strandline.sim import Fault, SimDisk
from tests.effort import examples
from tests.groups.helpers import FOLDER, NAME, state_of
from tests.groups.model import NaiveGroup, same

S = 1_000_000_000
END = 40
offsets = st.integers(0, END)
many_offsets = st.one_of(
    st.lists(offsets, max_size=12),
    st.builds(range, st.integers(0, 2000), st.integers(0, 2000), st.integers(1, 9)).map(list),
)
spans = st.integers(0, 30).map(lambda seconds: seconds * S)
durabilities = st.sampled_from([SYNCED, WRITTEN])
CONFIG = GroupConfig(compact_bytes_min=1024, compact_age_s=100)
FAULTS = frozenset({"create", "pwritev", "sync", "rename", "sync_folder", "remove"})


class GroupMachine(RuleBasedStateMachine):
    """Commits, compactions, crashes and faults, in any order."""

    @initialize()
    def begin(self) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock(S)
        # Models by frame, from the last one that is known to be durable.
        self.possible = [NaiveGroup()]
        self.group = self.open()

    def open(self) -> Group:
        return Group.open(self.disk, FOLDER, NAME, config=CONFIG, clock=self.clock, executor=InlineExecutor())

    @property
    def model(self) -> NaiveGroup:
        return self.possible[-1]

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(limit=st.integers(0, 8), span=spans, durability=durabilities)
    def take(self, limit: int, span: int, durability: Durability) -> None:
        now = self.clock.now_ns()

        def modelled(model: NaiveGroup) -> object:
            return model.take(now, limit, END, now + span)

        def told() -> object:
            given = self.group.take(limit, now + span, END, durability=durability)
            return [(one.offset, (one.deadline_ns, one.deliveries)) for one in given]

        self.commit(told, modelled, durability, maybe_nothing=True)

    @rule(many=many_offsets, durability=durabilities)
    def ack(self, many: list[int], durability: Durability) -> None:
        self.commit(
            lambda: self.group.ack_many(many, durability=durability),
            lambda model: sum([model.ack(offset) for offset in many]),
            durability,
            maybe_nothing=not many,
        )

    @rule(offset=offsets, durability=durabilities)
    def ack_below(self, offset: int, durability: Durability) -> None:
        self.commit(
            lambda: self.group.ack_below(offset, durability=durability),
            lambda model: model.ack_below(offset),
            durability,
            maybe_nothing=offset == 0,
        )

    @rule(offset=offsets, span=spans, durability=durabilities)
    def mark(self, offset: int, span: int, durability: Durability) -> None:
        deadline_ns = self.clock.now_ns() + span
        if not self.model.markable(offset):
            with pytest.raises((Conflict, Poisoned)):
                self.group.mark_inflight(offset, deadline_ns)
            return
        self.commit(
            lambda: self.group.mark_inflight(offset, deadline_ns, durability=durability).deliveries,
            lambda model: model.mark(offset, deadline_ns)[1],
            durability,
        )

    @precondition(lambda self: self.model.inflight)
    @rule(data=st.data(), span=spans, extend=st.booleans(), durability=durabilities)
    def answer(self, data: st.DataObject, span: int, extend: bool, durability: Durability) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model.inflight)))
        time_ns, epoch = self.clock.now_ns() + span, self.model.inflight[offset][1]
        call = self.group.extend if extend else self.group.nack

        def told() -> None:
            call(offset, time_ns, epoch, durability=durability)

        def modelled(model: NaiveGroup) -> None:
            (model.extend if extend else model.nack)(offset, time_ns)

        self.commit(told, modelled, durability)

    @precondition(lambda self: self.model.inflight)
    @rule(data=st.data(), durability=durabilities)
    def several_at_once(self, data: st.DataObject, durability: Durability) -> None:
        now = self.clock.now_ns()
        first, *others = data.draw(st.permutations(sorted(self.model.inflight)))
        changes: list[Change] = [Nack(first, now, None), Ack(others), Take(now, 2, END, now + 9 * S)]

        def told() -> Result:
            return self.group.commit(*changes, durability=durability)[1]

        def modelled(model: NaiveGroup) -> int:
            model.nack(first, now)
            # As in the group, what is given is chosen before the acknowledgements take effect, and not from them.
            before = model.copy()
            given = [offset for offset, _ in before.take(now, 2, END, now + 9 * S) if offset not in others]
            news = sum([model.ack(offset) for offset in others])
            model.pop_expired(now)
            for offset in given:
                model.mark(offset, now + 9 * S)
            return news

        self.commit(told, modelled, durability)

    @rule(offset=offsets)
    def a_stale_answer(self, offset: int) -> None:
        with pytest.raises((StaleDelivery, Poisoned)):
            self.group.nack(offset, 0, epoch=99)
        with pytest.raises((InvalidInput, Poisoned)):
            self.group.commit(Nack(1, 0), Nack(1, 0)) if self.model.current(1, None) else self.group.ack(-1)

    @rule()
    def expire(self) -> None:
        now = self.clock.now_ns()
        assert self.group.pop_expired(now) == self.model.pop_expired(now)

    @rule()
    def compact(self) -> None:
        try:
            self.group.compact()
        except (CommitFailed, Poisoned):
            self.reopen()

    @rule()
    def sync(self) -> None:
        self.commit(self.group.sync, lambda _: None, SYNCED)

    @rule(countdown=st.integers(1, 12), code=st.sampled_from([errno.EIO, errno.ENOSPC]))
    def something_will_fail(self, countdown: int, code: int) -> None:
        self.disk.fault = Fault(FAULTS, countdown, code)

    @rule()
    def close_and_open(self) -> None:
        try:
            self.group.close()
        except CommitFailed:
            self.reopen()
            return
        self.recover()

    @rule()
    def the_process_is_killed(self) -> None:
        self.disk.kill()
        self.reopen()

    @rule(seed=st.integers(0, 2**32))
    def power_is_lost(self, seed: int) -> None:
        durable = self.group.durable_acked_until
        self.disk.crash(Random(seed))
        self.reopen()
        assert self.group.acked_until >= durable

    @rule(seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3), steps=st.integers(1, 9))
    def power_is_lost_again_while_recovering(self, seeds: list[int], steps: int) -> None:
        for seed in seeds:
            self.disk.crash(Random(seed))
            self.disk.fault = Fault(FAULTS, steps, sticky=True)
            try:
                self.open()
            except StorageRefused:
                continue
        self.disk.crash(Random(seeds[0]))
        self.reopen()

    @invariant()
    def nothing_is_known_that_the_model_does_not_know(self) -> None:
        assert same(state_of(self.group), self.model)
        assert self.group.acked_until == self.model.floor
        assert self.group.durable_acked_until >= self.possible[0].floor

    def commit(
        self,
        told: Callable[[], object],
        modelled: Callable[[NaiveGroup], object],
        durability: Durability,
        *,
        maybe_nothing: bool = False,
    ) -> None:
        """Make a change in the group and in a copy of the model, which is then the newest that is possible."""
        after = self.model.copy()
        expected = modelled(after)
        try:
            result = told()
        except CommitFailed:
            self.possible.append(after)
            self.reopen()
        except Poisoned:
            self.reopen()
        else:
            assert result == expected
            # What had nothing to write, such as a take in vain, has nothing to sync.
            unwritten = maybe_nothing and expected in (0, [])
            self.possible = [after] if durability is SYNCED and not unwritten else [*self.possible, after]

    def reopen(self) -> None:
        self.disk.fault = None
        self.recover()

    def recover(self) -> None:
        fault, self.disk.fault = self.disk.fault, None
        report = inspect_group(self.disk, FOLDER, NAME)
        assert report is None or report.problem is None
        self.group = self.open()
        self.disk.fault = fault
        now = self.clock.now_ns()
        self.group.pop_expired(now)
        for model in self.possible:
            model.pop_expired(now)
        state = state_of(self.group)
        found = [model for model in self.possible if same(state, model)]
        assert found, "what was recovered is no state that a frame led to"
        self.possible = [found[-1]]
        assert self.group.durable_acked_until == self.group.acked_until


TestGroupCrashes = GroupMachine.TestCase
TestGroupCrashes.settings = examples(100, stateful_step_count=40)
