"""Rows are found by source and locator wherever they stand, the last one of an item, and quickly in the same order."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.scan.sources import row_index
from strandline.scan.sources.row_index import Chunk, RowIndex

SCHEMA = pa.schema([("source", pa.int16()), ("locator", pa.binary()), ("value", pa.int64())])
NAMES = st.lists(st.sampled_from([b"%02d" % number for number in range(40)]), max_size=30)


def column(names: list[bytes]) -> pa.Array:
    return pa.array(names, pa.binary())


def table(rows: list[tuple[int, bytes, int]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def chunked(rows: list[tuple[int, bytes, int]], cuts: list[int]) -> list[Chunk]:
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    return [Chunk.of(table(rows[begin:end])) for begin, end in pairwise(bounds)]


def values(index: RowIndex, number: int, names: list[bytes]) -> list[int | None]:
    found = index.rows(number, column(names))
    assert len(found) == len(names)
    assert index.has(number, column(names)).to_pylist() == [row is not None for row in found["value"].to_pylist()]
    return list(found["value"].to_pylist())


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([b"", b"a", b"b", b"cc", b"d"])), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.tuples(st.integers(0, 3), NAMES), max_size=4),
)
def test_the_last_row_of_an_item_is_found(
    keys: list[tuple[int, bytes]], cuts: list[int], asked: list[tuple[int, list[bytes]]]
) -> None:
    rows = [(*key, value) for value, key in enumerate(keys)]
    last = {key: value for value, key in enumerate(keys)}
    index = RowIndex(SCHEMA, chunked(rows, cuts))
    assert len(index) == len(rows)
    for number, names in [*asked, *((number, [b"a", b"d", b"", b"x"]) for number in range(3))]:
        assert values(index, number, names) == [last.get((number, name)) for name in names]


@given(
    st.lists(st.binary(max_size=4), unique=True, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(1, 20),
    st.sets(st.integers(0, 60)),
)
def test_a_listing_with_gaps_and_news_is_found(
    names: list[bytes], cuts: list[int], size: int, changed: set[int]
) -> None:
    now = [b"new" + name if number in changed else name for number, name in enumerate(names)]
    index = RowIndex(SCHEMA, chunked([(0, name, at) for at, name in enumerate(names)], cuts), is_unique=True)
    found = [value for at in range(0, len(now), size) for value in values(index, 0, now[at : at + size])]
    assert found == [None if name not in names else names.index(name) for name in now]


def test_rows_in_the_same_order_need_no_index() -> None:
    rows = [(0, b"%d" % number, number) for number in range(100)]
    index = RowIndex(SCHEMA, chunked(rows, [7, 50, 51]), is_unique=True)
    for at in range(0, 100, 10):
        asked = column([name for _, name, _ in rows[at : at + 10]])
        assert index.rows(0, asked)["value"].to_pylist() == list(range(at, at + 10))
    assert "_index" not in vars(index)


def test_rows_of_equal_hashes_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_index, "_hashes", lambda _, names: np.array([len(one) for one in names.to_pylist()]))
    index = RowIndex(SCHEMA, [Chunk.of(table([(0, b"a", 1), (0, b"bb", 2), (0, b"b", 3)]))])
    assert index.rows(0, column([b"a", b"b", b"bb", b"x"]))["value"].to_pylist() == [None, 3, 2, None]


@pytest.mark.parametrize("what", [None, table([(0, b"a", 1)])])
def test_items_of_a_chunk_that_is_gone_are_unknown(what: pa.Table | None) -> None:
    index = RowIndex(SCHEMA, [Chunk(2, lambda: what), Chunk.of(table([(0, b"c", 3)]))], is_unique=True)
    assert values(index, 0, [b"a", b"b", b"c"]) == [None, None, 3]


def test_few_chunks_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_index, "LOADED_ROWS_MAX", 20)
    rows = [(0, b"%d" % number, number) for number in range(100)]
    index = RowIndex(SCHEMA, chunked(rows, list(range(0, 100, 10))))
    assert values(index, 0, [b"99", b"0", b"55"]) == [99, 0, 55]
    assert sum(map(len, index._loaded.values())) <= 20  # noqa: SLF001
