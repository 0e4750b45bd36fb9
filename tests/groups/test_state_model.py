"""The pure state against a model that looks at everything every time."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.errors import Conflict, InvalidInput, StaleDelivery
from strandline.groups import GroupState
from strandline.groups.acks import PAGE_BITS
from tests.groups.model import NaiveGroup, same

END = 3 * PAGE_BITS
offsets = st.one_of(st.integers(0, 12), st.integers(PAGE_BITS - 3, PAGE_BITS + 3), st.integers(0, END))
far_offsets = st.one_of(offsets, st.integers(2**40, 2**40 + 2))
spans = st.integers(0, 30)
epochs = st.one_of(st.none(), st.integers(1, 3))


class GroupStateMachine(RuleBasedStateMachine):
    """Every operation, in any order, while time moves."""

    @initialize()
    def begin(self) -> None:
        self.state = GroupState()
        self.model = NaiveGroup()
        self.now = 100

    @rule(seconds=st.integers(0, 20))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(offset=far_offsets, span=spans)
    def mark(self, offset: int, span: int) -> None:
        if self.model.markable(offset):
            delivery = self.state.mark_inflight(offset, self.now + span)
            assert (delivery.deadline_ns, delivery.epoch) == self.model.mark(offset, self.now + span)
        else:
            with pytest.raises(Conflict):
                self.state.mark_inflight(offset, self.now + span)

    @rule(many=st.lists(offsets, max_size=8), span=spans)
    def mark_many(self, many: list[int], span: int) -> None:
        if len(set(many)) != len(many) or not all(map(self.model.markable, many)):
            with pytest.raises((Conflict, InvalidInput)):
                self.state.mark_many(many, self.now + span)
            return
        deliveries = self.state.mark_many(many, self.now + span)
        expected = [(offset, *self.model.mark(offset, self.now + span)) for offset in many]
        assert [(one.offset, one.deadline_ns, one.deliveries) for one in deliveries] == expected

    @rule(limit=st.integers(0, 8), end=st.integers(0, END), span=spans)
    def take(self, limit: int, end: int, span: int) -> None:
        given = self.state.take(self.now, limit, end, self.now + span)
        expected = self.model.take(self.now, limit, end, self.now + span)
        assert [(one.offset, (one.deadline_ns, one.deliveries)) for one in given] == expected

    @rule(limit=st.integers(0, 8), end=st.integers(0, END))
    def look(self, limit: int, end: int) -> None:
        assert self.state.deliverable(self.now, limit, end) == self.model.deliverable(self.now, limit, end)

    @rule(offset=far_offsets)
    def ack(self, offset: int) -> None:
        assert self.state.ack(offset) == self.model.ack(offset)

    @rule(many=st.lists(far_offsets, max_size=20))
    def ack_many(self, many: list[int]) -> None:
        assert self.state.ack_many(many) == sum([self.model.ack(offset) for offset in many])

    @rule(start=offsets, count=st.integers(0, PAGE_BITS + 2))
    def ack_range(self, start: int, count: int) -> None:
        expected = sum([self.model.ack(offset) for offset in range(start, start + count)])
        assert self.state.ack_range(start, start + count) == expected

    @rule(offset=offsets)
    def ack_below(self, offset: int) -> None:
        assert self.state.ack_below(offset) == self.model.ack_below(offset)

    @rule(offset=offsets, span=spans, epoch=epochs)
    def nack(self, offset: int, span: int, epoch: int | None) -> None:
        self._answer(offset, epoch, self.state.nack, self.model.nack, self.now + span)

    @rule(offset=offsets, span=spans, epoch=epochs)
    def extend(self, offset: int, span: int, epoch: int | None) -> None:
        self._answer(offset, epoch, self.state.extend, self.model.extend, self.now + span)

    @precondition(lambda self: self.model.inflight)
    @rule(data=st.data(), span=spans, nack=st.booleans())
    def answer_something_in_flight(self, data: st.DataObject, span: int, nack: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model.inflight)))
        epoch = self.model.inflight[offset][1]
        if nack:
            self._answer(offset, epoch, self.state.nack, self.model.nack, self.now + span)
        else:
            self._answer(offset, epoch, self.state.extend, self.model.extend, self.now + span)

    @rule(offset=offsets)
    def clear(self, offset: int) -> None:
        if self.model.current(offset, None):
            self.state.clear_inflight(offset)
            self.model.nack(offset, 0)
        else:
            with pytest.raises(StaleDelivery):
                self.state.clear_inflight(offset)

    @rule()
    def pop_expired(self) -> None:
        assert self.state.pop_expired(self.now) == self.model.pop_expired(self.now)

    @rule()
    def start_again_from_what_was_captured(self) -> None:
        self.state = GroupState(*self.state.capture())

    @invariant()
    def both_know_the_same(self) -> None:
        assert same(self.state, self.model)
        assert self.state.next_expiry() == min((timed[0] for timed in self.model.inflight.values()), default=None)
        assert self.state.next_ready() == min((timed[0] for timed in self.model.waiting.values()), default=None)
        for offset, (_, deliveries) in (self.model.inflight | self.model.waiting).items():
            assert self.state.deliveries(offset) == deliveries
            assert self.state.is_inflight(offset) == (offset in self.model.inflight)
        assert self.state.is_acked(self.model.floor) is False

    def _answer(
        self,
        offset: int,
        epoch: int | None,
        answer: Callable[[int, int, int | None], object],
        modelled: Callable[[int, int], None],
        time_ns: int,
    ) -> None:
        if self.model.current(offset, epoch):
            answer(offset, time_ns, epoch)
            modelled(offset, time_ns)
        else:
            with pytest.raises(StaleDelivery):
                answer(offset, time_ns, epoch)


TestGroupState = GroupStateMachine.TestCase
TestGroupState.settings = settings(stateful_step_count=50)
