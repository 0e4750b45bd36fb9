"""Entries by offset and by time: order, stale heap entries, and how many of those there may be."""

from hypothesis import given
from hypothesis import strategies as st

from strandline.groups.schedule import Schedule, Scheduled, format_scheduled, parse_scheduled

times = st.integers(0, 2**63 - 2)
entries = st.builds(Scheduled, times, st.integers(0, 2**63 - 2), st.integers(1, 2**32 - 1))
small = st.builds(Scheduled, st.integers(0, 30), st.integers(0, 12), st.integers(1, 3))


def filled(known: dict[int, Scheduled]) -> Schedule:
    schedule = Schedule()
    for offset, entry in known.items():
        schedule.put(offset, format_scheduled(entry))
    return schedule


def heap_size(schedule: Schedule) -> int:
    return len(schedule._heap)  # noqa: SLF001 - how much is stale is nobody else's business


@given(entries)
def test_an_entry_is_the_same_after_packing(entry: Scheduled) -> None:
    assert parse_scheduled(format_scheduled(entry)) == entry


@given(entries, entries)
def test_packed_entries_order_by_time_then_offset(one: Scheduled, other: Scheduled) -> None:
    assert (format_scheduled(one) < format_scheduled(other)) == (one < other)


@given(st.lists(st.one_of(small, st.integers(0, 12), st.tuples(st.integers(0, 30), st.integers(1, 4)))))
def test_it_behaves_as_a_dict_that_is_searched_by_time(steps: list[Scheduled | int | tuple[int, int]]) -> None:
    schedule = Schedule()
    known: dict[int, Scheduled] = {}
    for step in steps:
        if isinstance(step, Scheduled):
            schedule.put(step.offset, format_scheduled(step))
            known[step.offset] = step
        elif isinstance(step, int):
            removed = schedule.remove(step)
            assert known.pop(step, None) == (None if removed is None else parse_scheduled(removed))
        else:
            now, limit = step
            due = sorted(entry for entry in known.values() if entry.time_ns <= now)[:limit]
            assert [parse_scheduled(entry) for entry in schedule.pop_due(now, limit)] == due
            for entry in due:
                del known[entry.offset]
        assert len(schedule) == len(known)
        assert schedule.next_time() == min((entry.time_ns for entry in known.values()), default=None)


@given(st.dictionaries(st.integers(0, 500), st.integers(0, 100), max_size=200), st.integers(0, 100))
def test_much_or_little_that_is_due_comes_out_by_time(deadlines: dict[int, int], now: int) -> None:
    known = {offset: Scheduled(time, offset, 1) for offset, time in deadlines.items()}
    schedule = filled(known)
    due = [parse_scheduled(entry) for entry in schedule.pop_due(now)]
    assert due == sorted(entry for entry in known.values() if entry.time_ns <= now)
    rest = [parse_scheduled(entry) for entry in schedule.pop_due(1000)]
    assert rest == sorted(entry for entry in known.values() if entry.time_ns > now)


def test_an_entry_that_was_moved_comes_out_once_and_at_its_new_time() -> None:
    schedule = Schedule()
    for time in (50, 10, 90, 10):
        schedule.put(1, format_scheduled(Scheduled(time, 1, 1)))
    assert schedule.next_time() == 10
    assert len(schedule.pop_due(100)) == 1
    assert schedule.pop_due(100) == []


def test_stale_entries_never_outnumber_the_live_ones_by_much() -> None:
    schedule = filled({offset: Scheduled(offset, offset, 1) for offset in range(1000)})
    for turn in range(20):
        for offset in range(1000):
            schedule.put(offset, format_scheduled(Scheduled(10_000 + turn, offset, 1)))
            assert heap_size(schedule) <= 2 * len(schedule) + 64
    for offset in range(1000):
        schedule.remove(offset)
        assert heap_size(schedule) <= 2 * len(schedule) + 64
    assert schedule.next_time() is None
