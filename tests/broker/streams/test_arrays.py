"""Columns that grow and shrink together, and take no more than their rows need."""

import tracemalloc

from strandline.broker.streams.arrays import CAPACITY_MIN
from strandline.broker.streams.rows import Rows


def test_what_is_there_stays_when_columns_grow_and_shrink() -> None:
    rows = Rows()
    rows.sequence[:] = range(CAPACITY_MIN)
    rows.reserve(10 * CAPACITY_MIN)
    rows.sequence_at[CAPACITY_MIN] = 7
    rows.shrink(CAPACITY_MIN + 1)
    assert rows.capacity == len(rows.sequence) == len(rows.sequence_at) == CAPACITY_MIN + 1
    assert rows.sequence.tolist() == [*range(CAPACITY_MIN), 7]


def test_growing_and_shrinking_for_ever_takes_no_memory() -> None:
    rows = Rows()

    def breathe(times: int) -> None:
        for number in range(times):
            rows.shrink(CAPACITY_MIN + number % 5)

    tracemalloc.start()
    try:
        breathe(10)
        before, _ = tracemalloc.get_traced_memory()
        breathe(500)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2_000
