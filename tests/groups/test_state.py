"""The pure state, one promise at a time."""

import pytest

from strandline.errors import Conflict, InvalidInput, StaleDelivery
from strandline.groups import OFFSET_LIMIT, Delivery, GroupState

NOW = 1_000


def test_a_new_state_knows_nothing_and_offers_everything() -> None:
    state = GroupState()
    assert state.acked_until == state.lowest_unacked == 0
    assert state.next_expiry() is None
    assert state.next_ready() is None
    assert state.deliverable(NOW, 3, 10) == [0, 1, 2]
    assert state.deliverable(NOW, 30, 4) == [0, 1, 2, 3]


def test_the_frontier_waits_for_the_lowest_and_then_jumps() -> None:
    state = GroupState()
    assert [state.ack(offset) for offset in (3, 1, 2)] == [True] * 3
    assert state.acked_until == 0
    assert state.ack(0)
    assert state.acked_until == 4


def test_acks_far_beyond_the_frontier_are_kept() -> None:
    state = GroupState()
    far = [10**6, 10**12, OFFSET_LIMIT - 1]
    assert state.ack_many(far) == 3
    assert all(map(state.is_acked, far))
    assert state.acked_ranges() == [(offset, offset + 1) for offset in far]


def test_acking_twice_is_harmless_and_no_news() -> None:
    state = GroupState()
    assert state.ack_many([5, 5, 4]) == 2
    assert not state.ack(5)
    assert state.ack_many([4, 5, 6]) == 1


def test_one_bad_offset_among_many_and_nothing_is_acked() -> None:
    state = GroupState()
    with pytest.raises(InvalidInput):
        state.ack_many([1, 2, -3])
    assert state.acked_ranges() == []


@pytest.mark.parametrize("offset", [-1, OFFSET_LIMIT, 2**64])
def test_what_is_no_offset_is_refused(offset: int) -> None:
    state = GroupState()
    for call in (state.ack, state.is_acked, state.is_inflight, state.deliveries, state.ack_below):
        with pytest.raises(InvalidInput):
            call(offset)
    with pytest.raises(InvalidInput):
        state.mark_inflight(offset, NOW)


@pytest.mark.parametrize("time_ns", [-1, 2**63])
def test_what_is_no_time_is_refused_and_changes_nothing(time_ns: int) -> None:
    state = GroupState()
    state.mark_inflight(1, NOW)
    with pytest.raises(InvalidInput):
        state.mark_inflight(0, time_ns)
    with pytest.raises(InvalidInput):
        state.nack(1, time_ns)
    with pytest.raises(InvalidInput):
        state.extend(1, time_ns)
    with pytest.raises(InvalidInput):
        state.take(NOW, 5, 9, time_ns)
    assert [(entry.offset, entry.time_ns) for entry in state.inflight()] == [(1, NOW)]


def test_an_offset_is_given_to_one_caller_at_a_time() -> None:
    state = GroupState()
    assert state.mark_inflight(7, NOW) == Delivery(7, 1, NOW)
    with pytest.raises(Conflict, match="in flight"):
        state.mark_inflight(7, NOW)
    state.ack(7)
    with pytest.raises(Conflict, match="acknowledged"):
        state.mark_inflight(7, NOW)


def test_marking_many_is_all_or_nothing() -> None:
    state = GroupState()
    state.mark_inflight(2, NOW)
    with pytest.raises(Conflict):
        state.mark_many([0, 1, 2], NOW)
    with pytest.raises(InvalidInput, match="twice"):
        state.mark_many([0, 1, 0], NOW)
    assert state.inflight_count == 1
    assert [delivery.offset for delivery in state.mark_many([0, 1, 3], NOW)] == [0, 1, 3]


def test_an_expired_entry_becomes_deliverable_again_and_keeps_its_count() -> None:
    state = GroupState()
    for turn in range(1, 6):
        given = state.take(turn * NOW, 1, 1, (turn + 1) * NOW)
        assert given == [Delivery(0, turn, (turn + 1) * NOW)]
        assert state.deliveries(0) == turn
        assert state.pop_expired((turn + 1) * NOW - 1) == []
        assert state.pop_expired((turn + 1) * NOW) == [0]
        assert not state.is_inflight(0)
        assert state.is_waiting(0)
        assert state.deliveries(0) == turn
        assert state.deliverable((turn + 1) * NOW, 5, 1) == [0]


def test_a_nacked_entry_waits_for_its_time_and_keeps_its_count() -> None:
    state = GroupState()
    first = state.mark_inflight(0, NOW)
    state.nack(0, 5 * NOW, first.epoch)
    assert state.next_ready() == 5 * NOW
    assert state.deliverable(5 * NOW - 1, 5, 1) == []
    assert state.deliverable(5 * NOW, 5, 1) == [0]
    assert state.mark_inflight(0, 9 * NOW).deliveries == 2


def test_a_cleared_entry_is_deliverable_at_once_and_keeps_its_count() -> None:
    state = GroupState()
    state.mark_many([0, 1], NOW)
    state.nack(0, 3)
    state.clear_inflight(1)
    assert state.deliverable(5, 5, 2) == [1, 0]
    assert state.deliveries(1) == 1


def test_an_ack_is_taken_after_expiry_and_after_redelivery() -> None:
    state = GroupState()
    state.mark_many([0, 1], NOW)
    state.pop_expired(NOW)
    assert state.ack(0)
    state.mark_inflight(1, 2 * NOW)
    assert state.ack(1)
    assert state.acked_until == 2
    assert state.inflight_count == state.waiting_count == 0
    assert state.deliveries(0) == state.deliveries(1) == 0


def test_answers_other_than_an_ack_need_the_delivery_to_be_current() -> None:
    state = GroupState()
    old = state.mark_inflight(0, NOW)
    state.pop_expired(NOW)
    for answer in (state.nack, state.extend):
        with pytest.raises(StaleDelivery):
            answer(0, 9 * NOW, old.epoch)
    new = state.mark_inflight(0, 2 * NOW)
    for answer in (state.nack, state.extend):
        with pytest.raises(StaleDelivery) as caught:
            answer(0, 9 * NOW, old.epoch)
        assert (caught.value.offset, caught.value.epoch) == (0, old.epoch)
    with pytest.raises(StaleDelivery):
        state.clear_inflight(0, old.epoch)
    assert state.extend(0, 3 * NOW, new.epoch) == Delivery(0, 2, 3 * NOW)
    state.nack(0, 3 * NOW, new.epoch)
    state.ack(0)
    with pytest.raises(StaleDelivery):
        state.nack(0, NOW)


def test_an_extended_deadline_is_the_only_one_that_counts() -> None:
    state = GroupState()
    state.mark_many([0, 1], NOW)
    state.extend(0, 3 * NOW)
    state.extend(1, NOW // 2)
    assert state.next_expiry() == NOW // 2
    assert state.pop_expired(2 * NOW) == [1]
    assert state.next_expiry() == 3 * NOW
    assert state.pop_expired(3 * NOW) == [0]


def test_what_waits_comes_by_the_time_it_became_ready_and_before_what_is_fresh() -> None:
    state = GroupState()
    state.mark_many([0, 1, 2, 3], NOW)
    state.nack(2, 10)
    state.nack(0, 30)
    state.nack(3, 20)
    assert state.deliverable(25, 10, 6) == [2, 3, 4, 5]
    assert state.deliverable(30, 2, 6) == [2, 3]
    assert [delivery.offset for delivery in state.take(NOW, 10, 6, 9 * NOW)] == [2, 3, 0, 1, 4, 5]


def test_looking_at_what_is_deliverable_changes_nothing() -> None:
    state = GroupState()
    state.mark_many([3, 0, 9], NOW)
    state.pop_expired(NOW)
    assert state.deliverable(NOW, 6, 12) == state.deliverable(NOW, 6, 12) == [0, 3, 9, 1, 2, 4]


def test_nothing_at_or_beyond_the_end_is_deliverable() -> None:
    state = GroupState()
    state.mark_many([5, 1, 8], NOW)
    state.pop_expired(NOW)
    assert state.deliverable(NOW, 10, 5) == [1, 0, 2, 3, 4]
    assert [delivery.offset for delivery in state.take(NOW, 2, 5, 9 * NOW)] == [1, 0]
    assert state.is_waiting(5)
    assert state.is_waiting(8)


def test_the_frontier_can_be_moved_over_everything_below_an_offset() -> None:
    state = GroupState()
    state.mark_many([1, 5, 20], NOW)
    state.ack_many([3, 11, 10])
    assert state.ack_below(10) == 9
    assert state.acked_until == 12
    assert state.ack_below(4) == 0
    assert [entry.offset for entry in state.inflight()] == [20]
    assert state.deliverable(NOW, 3, 100) == [12, 13, 14]


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(InvalidInput):
        GroupState().deliverable(NOW, -1, 10)
    with pytest.raises(InvalidInput):
        GroupState().take(NOW, -1, 10, NOW)


def test_popping_looks_only_at_what_expired() -> None:
    looked_at: list[object] = []

    class Watched(dict[int, int]):
        def get(self, offset: int, default: object = None) -> object:  # type: ignore[override]
            looked_at.append(offset)
            return super().get(offset, default)

        def values(self) -> object:  # type: ignore[override]
            looked_at.append("everything")
            return super().values()

    state = GroupState()
    state.mark_many(range(100_000), 5 * NOW)
    state.mark_many([100_000, 100_001], NOW)
    schedule = state._inflight  # noqa: SLF001 - only the dict itself can tell who looks at it
    schedule.live = Watched(schedule.live)
    assert state.pop_expired(NOW) == [100_000, 100_001]
    assert looked_at == [100_000, 100_001]
    assert state.inflight_count == 100_000


def test_delivering_does_not_walk_over_what_was_given_before() -> None:
    looked_at: list[object] = []

    class Watched(dict[int, int]):
        def __contains__(self, offset: object) -> bool:
            looked_at.append(offset)
            return super().__contains__(offset)

    state = GroupState()
    state.take(NOW, 50_000, 50_000, 9 * NOW)
    schedule = state._inflight  # noqa: SLF001 - only the dict itself can tell who looks at it
    schedule.live = Watched(schedule.live)
    for turn in range(100):
        assert len(state.take(NOW, 10, 60_000, 9 * NOW)) == 10
        assert len(looked_at) <= 40 * (turn + 1)
