"""The set of acknowledged offsets: any order, any distance, and no end that is off by one."""

import random
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from strandline.groups.acks import PAGE_BITS, Acks, runs_of

EDGES = [0, 1, PAGE_BITS - 1, PAGE_BITS, PAGE_BITS + 1, 2 * PAGE_BITS, 3 * PAGE_BITS - 1]
offsets = st.one_of(st.integers(0, 20), st.sampled_from(EDGES), st.integers(0, 4 * PAGE_BITS))
far_offsets = st.one_of(offsets, st.integers(2**40, 2**40 + 3), st.just(2**63 - 2))
runs = st.tuples(offsets, st.integers(0, 3 * PAGE_BITS)).map(lambda run: (run[0], run[0] + run[1]))


def frontier_of(known: set[int]) -> int:
    return next(offset for offset in range(len(known) + 1) if offset not in known)


def content(acks: Acks) -> set[int]:
    above = {offset for start, end in acks.ranges() for offset in range(start, end)}
    return set(range(acks.until)) | above


@given(st.lists(far_offsets))
def test_offsets_may_come_in_any_order_and_from_any_distance(order: list[int]) -> None:
    acks = Acks()
    known: set[int] = set()
    for offset in order:
        assert acks.add(offset) == (offset not in known)
        known.add(offset)
        assert offset in acks
    assert acks.until == frontier_of(known)
    assert content(acks) == known
    assert acks.count_above() == sum(offset >= acks.until for offset in known)


@given(st.lists(st.one_of(runs, offsets.map(lambda offset: (offset, offset + 1)))), st.lists(offsets))
def test_runs_and_single_offsets_give_the_same_set(pieces: list[tuple[int, int]], singles: list[int]) -> None:
    acks = Acks()
    known: set[int] = set()
    for start, end in pieces:
        new = set(range(start, end)) - known
        assert acks.add_range(start, end) == len(new)
        known |= new
    for offset in singles:
        acks.add(offset)
        known.add(offset)
    assert acks.until == frontier_of(known)
    assert content(acks) == known
    assert all((offset in acks) == (offset in known) for offset in range(5 * PAGE_BITS))


@given(st.sets(far_offsets))
def test_ranges_are_ascending_apart_exclusive_and_give_the_set_back(known: set[int]) -> None:
    acks = Acks()
    for offset in known:
        acks.add(offset)
    ranges = list(acks.ranges())
    edges = [acks.until, *(edge for pair in ranges for edge in pair)]
    assert edges == sorted(set(edges))
    rebuilt = Acks(acks.until)
    for start, end in ranges:
        rebuilt.add_range(start, end)
    assert rebuilt.until == acks.until
    assert list(rebuilt.ranges()) == ranges


@given(st.sets(offsets), offsets, st.integers(0, 5 * PAGE_BITS))
def test_gaps_are_what_is_missing(known: set[int], start: int, end: int) -> None:
    acks = Acks()
    for offset in known:
        acks.add(offset)
    missing = [offset for a, b in acks.gaps(start, end) for offset in range(a, b)]
    assert missing == [offset for offset in range(start, end) if offset not in known]


def test_a_run_that_joins_many_pages_becomes_one_range() -> None:
    acks = Acks()
    acks.add_range(1, 1000 * PAGE_BITS + 7)
    assert list(acks.ranges()) == [(1, 1000 * PAGE_BITS + 7)]
    assert acks.add(0)
    assert acks.until == 1000 * PAGE_BITS + 7
    assert not list(acks.ranges())


def test_a_jump_of_the_frontier_costs_no_walk_over_what_it_skips() -> None:
    acks = Acks()
    acks.add(2**50)
    acks.add(2**61)
    assert acks.add_range(0, 2**60) == 2**60 - 1
    assert acks.until == 2**60
    assert list(acks.ranges()) == [(2**61, 2**61 + 1)]


def test_a_copy_does_not_change_with_the_original() -> None:
    acks = Acks()
    acks.add_range(5, 2000)
    twin = acks.copy()
    acks.add_range(0, 5)
    acks.add(9999)
    assert twin.until == 0
    assert list(twin.ranges()) == [(5, 2000)]


def test_no_offsets_make_no_runs() -> None:
    assert not len(runs_of(Acks().range_array()[:, 0]))


def memory_per_offset(order: list[int]) -> float:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    acks = Acks()
    for offset in order:
        acks.add(offset)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(order)


def test_scattered_offsets_are_small_and_far_apart_ones_are_bounded() -> None:
    rng = random.Random(7)
    assert memory_per_offset(rng.sample(range(1, 100_000), 50_000)) < 2
    assert memory_per_offset(list(range(1, 50_000))) < 1
    assert memory_per_offset([rng.randrange(2**50) for _ in range(10_000)]) < 200
