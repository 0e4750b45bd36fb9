"""BLAKE3 over columns: the digests of the library, for rows of every length and any number of them."""

import os

import pyarrow as pa
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.blake3_columns import (
    BLOCK_BYTES,
    BLOCKS_MAX,
    FEW_ROWS,
    ROWS_AT_ONCE,
    FixedColumn,
    derive_fixed_rows,
    derive_prefixed_rows,
)
from strandline.protocol.canonical import prefixed

CONTEXT = "strandline/test-of-columns/v1"


def digests(data: bytes) -> list[bytes]:
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def one_by_one(rows: list[bytes], context: str = CONTEXT) -> list[bytes]:
    return [blake3(row, derive_key_context=context).digest() for row in rows]


@pytest.mark.parametrize("length", [1, 4, 63, 64, 65, 127, 128, 129, BLOCKS_MAX * BLOCK_BYTES, 193, 1024, 1025])
@pytest.mark.parametrize("count", [1, FEW_ROWS - 1, FEW_ROWS, FEW_ROWS * BLOCKS_MAX, ROWS_AT_ONCE + 1])
def test_rows_of_one_length_have_the_digests_of_the_library(length: int, count: int) -> None:
    rows = [os.urandom(length) for _ in range(count)]
    assert digests(derive_fixed_rows(CONTEXT, [FixedColumn(b"".join(rows), length)], count)) == one_by_one(rows)


def test_constants_and_columns_are_side_by_side() -> None:
    columns = [[os.urandom(width) for _ in range(2_000)] for width in (32, 8)]
    parts: list[bytes | FixedColumn] = [
        b"begin",
        FixedColumn(b"".join(columns[0]), 32),
        b"\0",
        FixedColumn(b"".join(columns[1]), 8),
    ]
    expected = one_by_one([b"begin" + one + b"\0" + other for one, other in zip(*columns, strict=True)])
    assert digests(derive_fixed_rows(CONTEXT, parts, 2_000)) == expected


@given(st.lists(st.integers(0, 700), min_size=1, max_size=40), st.binary(max_size=80), st.integers(0, 50))
def test_values_of_many_lengths_have_the_digests_of_the_library(sizes: list[int], begin: bytes, skipped: int) -> None:
    values = [os.urandom(size) for size in sizes * (3 * FEW_ROWS // len(sizes) + 1)]
    column = pa.array(values, pa.binary()).slice(skipped)
    expected = one_by_one([begin + prefixed(value) for value in values[skipped:]])
    assert digests(derive_prefixed_rows(CONTEXT, begin, column)) == expected


@pytest.mark.parametrize("count", [0, 1, 10_000])
@pytest.mark.parametrize("length", [0, 9, 57, 58, 185, 186])
def test_values_that_follow_one_another_have_the_digests_of_the_library(count: int, length: int) -> None:
    values = [os.urandom(length) for _ in range(count)]
    found = derive_prefixed_rows(CONTEXT, b"tag", pa.array(values, pa.binary()))
    assert digests(found) == one_by_one([b"tag" + prefixed(value) for value in values])


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_a_context_of_any_length_makes_the_librarys_key(length: int) -> None:
    rows = [os.urandom(32) for _ in range(FEW_ROWS)]
    context = "c" * length
    found = digests(derive_fixed_rows(context, [FixedColumn(b"".join(rows), 32)], FEW_ROWS))
    assert found == one_by_one(rows, context)
