"""Operations: what is written is what is read, and nothing impossible is."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.groups import OFFSET_LIMIT, GroupState, Scheduled
from strandline.groups.operations import (
    ACKED,
    INFLIGHT,
    OPERATION_BYTES,
    RUN_MAX,
    WAITING,
    BadOperation,
    apply_operations,
    format_acked,
    format_counters,
    format_deliveries,
    format_entries,
    parse_operations,
    runs,
)

offsets = st.integers(0, OFFSET_LIMIT - 1)
entries = st.builds(Scheduled, st.integers(0, 2**63 - 2), offsets, st.integers(1, 2**32 - 1))
ack_runs = st.tuples(st.integers(0, 2**62), st.integers(1, RUN_MAX)).map(lambda run: (run[0], run[0] + run[1]))


@given(st.lists(ack_runs, min_size=1))
def test_acknowledged_runs_come_back(written: list[tuple[int, int]]) -> None:
    data = format_acked(written)
    assert len(data) == OPERATION_BYTES * len(written)
    assert parse_operations(data) == [(start, end - start, 0, ACKED) for start, end in written]


@given(st.lists(entries), st.sampled_from([INFLIGHT, WAITING]))
def test_deliveries_come_back(written: list[Scheduled], kind: int) -> None:
    expected = [(entry.offset, entry.time_ns, entry.deliveries, kind) for entry in written]
    assert parse_operations(format_entries(kind, written)) == expected


@given(st.lists(offsets, min_size=1), st.integers(0, 2**63 - 2), st.integers(1, 2**32 - 1))
def test_deliveries_together_come_back(together: list[int], time_ns: int, count: int) -> None:
    data = format_deliveries(INFLIGHT, np.array(together, np.uint64), time_ns, count)
    assert parse_operations(data) == [(offset, time_ns, count, INFLIGHT) for offset in together]


@given(st.dictionaries(offsets, st.integers(0, 2**63 - 2)))
def test_counters_come_back(counters: dict[int, int]) -> None:
    state = GroupState()
    apply_operations(state, parse_operations(format_counters(counters)))
    assert state.counters == counters
    assert GroupState(*state.capture()).counters == counters


@pytest.mark.parametrize(
    "fields",
    [
        (5, 1, 0, 0),
        (5, 1, 1, 4),
        (5, 0, 0, ACKED),
        (5, -1, 0, ACKED),
        (5, 1, 1, ACKED),
        (5, RUN_MAX + 1, 0, ACKED),
        (OFFSET_LIMIT - 1, 2, 0, ACKED),
        (OFFSET_LIMIT, 1, 1, INFLIGHT),
        (2**64 - 1, 1, 1, INFLIGHT),
        (2**64 - 1, 1, 0, ACKED),
        (5, -1, 1, INFLIGHT),
        (5, 1, 0, WAITING),
        (5, 2**63 - 1, 1, WAITING),
    ],
)
def test_an_impossible_operation_is_refused(fields: tuple[int, int, int, int]) -> None:
    good = format_acked([(1, 2)])
    with pytest.raises(BadOperation):
        parse_operations(good + struct.pack("<QqII", *fields) + good)


def test_everything_below_any_offset_is_one_operation() -> None:
    assert parse_operations(format_acked([(0, OFFSET_LIMIT - 1)])) == [(0, OFFSET_LIMIT - 1, 0, ACKED)]


@given(st.lists(st.integers(0, 60)))
def test_runs_are_the_offsets_once_each_and_ascending(many: list[int]) -> None:
    found = runs(many)
    assert [offset for start, end in found for offset in range(start, end)] == sorted(set(many))
    assert all(one[1] < other[0] for one, other in pairwise(found))
    assert runs(iter(many)) == runs(np.array(many, np.int64)) == found


def test_a_range_is_a_run_without_being_walked() -> None:
    assert runs(range(10, 15 + RUN_MAX)) == [(10, 10 + RUN_MAX), (10 + RUN_MAX, 15 + RUN_MAX)]
    assert runs(range(3, 3)) == []
    assert runs(range(0, 6, 2)) == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize(
    "bad", [[-1], [1, -1], [OFFSET_LIMIT], [0, 2**70], range(-1, 3), range(OFFSET_LIMIT - 1, OFFSET_LIMIT + 1)]
)
def test_runs_of_what_is_no_offset_are_refused(bad: list[int]) -> None:
    with pytest.raises(InvalidInput):
        runs(bad)


def test_a_range_too_long_to_be_meant_is_refused() -> None:
    with pytest.raises(InvalidInput, match="longer"):
        runs(range(2**32 + 1))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3)), max_size=30))
def test_applying_operations_twice_changes_nothing(raw: list[tuple[int, int, int, int]]) -> None:
    once, twice = GroupState(), GroupState()
    for operation in raw:
        apply_operations(once, [operation])
        apply_operations(twice, [operation, operation])
    assert once.acked_ranges() == twice.acked_ranges()
    assert once.inflight() == twice.inflight()
    assert once.waiting() == twice.waiting()
