"""Records in memory, and those that are read ahead: what is read is what was appended."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.streams.entries import Entries, Entry
from strandline.broker.streams.storage import AHEAD_READERS, JournalLog
from strandline.clock import ManualClock
from strandline.gather import InlineExecutor
from strandline.journal import SYNCED
from strandline.sim import SimDisk
from tests.effort import examples


def entry(first: int, count: int, *, headers: bool) -> Entry:
    numbers = [b"%d" % number for number in range(first, first + count)]
    return Entry(numbers, [b"v" + number for number in numbers], [b"h"] * count if headers else None, [], 10 * count)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1), st.data())
def test_what_is_read_is_what_was_added(sizes: list[tuple[int, bool]], data: st.DataObject) -> None:
    entries = Entries(100)
    has_headers: list[bool] = []
    for count, headers in sizes:
        entries.add(entry(entries.end, count, headers=headers))
        has_headers += [headers] * count
    for _ in range(data.draw(st.integers(0, len(sizes) - 1))):
        entries.drop_oldest()
    places = sorted(data.draw(st.sets(st.integers(entries.first, entries.end - 1))))

    found = entries.read(np.array(places, np.int64))

    assert found.keys == [b"%d" % place for place in places]
    assert found.values == [b"v%d" % place for place in places]
    assert found.headers == [b"h" if has_headers[place - 100] else b"" for place in places]


def test_what_is_dropped_costs_nothing() -> None:
    entries = Entries(0)
    for _ in range(5_000):
        entries.add(entry(entries.end, 1, headers=False))
    for _ in range(4_999):
        entries.drop_oldest()

    assert (len(entries), entries.first, entries.end) == (1, 4_999, 5_000)
    assert entries.cost == entry(0, 1, headers=False).cost
    assert entries.read(np.array([4_999])).keys == [b"4999"]


@examples(20)
@given(st.data())
def test_readers_that_go_on_and_on_all_read_what_is_there(data: st.DataObject) -> None:
    disk = SimDisk()
    log = JournalLog.open(Path("/sim/j"), disk, ManualClock(), SYNCED, InlineExecutor())
    for number in range(40):
        appended = entry(25 * number, 25, headers=number % 2 == 0)
        log.append(Entry(appended.keys, appended.values, appended.headers, [1] * 25, 1 << 20))
    readers = [0] * (AHEAD_READERS + 2)
    while min(readers) < 900:
        reader = data.draw(st.integers(0, len(readers) - 1)) if max(readers) < 200 else int(np.argmin(readers))
        start = readers[reader]
        step = data.draw(st.sampled_from([1, 2])) if start < 200 else 1
        places = np.arange(start, min(1_000, start + 90), step)
        found = log.read(places)
        assert found.values == [b"v%d" % place for place in places.tolist()]
        assert found.headers == [b"" if place // 25 % 2 else b"h" for place in places.tolist()]
        readers[reader] = int(places[-1]) + 1
