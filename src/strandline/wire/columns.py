"""Pieces of a buffer as columns: gathered bytes, and decimal numbers read for many rows at once.

Invariants: no function loops over rows in Python. Numbers are read eight digits at a time, as one 64-bit word each.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow._compute import TakeOptions, call_function

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Spans = NDArray[np.int64] | NDArray[np.int32]

_WORD_BYTES = 8
_ZEROS = np.uint64(0x3030303030303030)
_ABOVE = np.uint64(0x4646464646464646)
_TOPS = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_QUADS = np.uint64(0x0000FFFF0000FFFF)
_HALF = np.uint64(0xFFFFFFFF)
_TEN, _HUNDRED, _MYRIAD, _EIGHT_DIGITS = (np.uint64(number) for number in (10, 100, 10_000, 100_000_000))
DIGITS_MAX = 19
_UNIT = np.uint64(1)
_UNCHECKED = TakeOptions(boundscheck=False)

# By how many of a word's eight bytes are digits: which to keep, and zeros in place of the others.
_MASKS = np.array([(2**64 - 1) << 8 * (8 - length) & 2**64 - 1 for length in range(9)], np.uint64)
_FILLS = _ZEROS & ~_MASKS


def words_at(data: bytes, dtype: str, positions: Ints) -> NDArray[np.unsignedinteger]:
    """Return the unaligned little-endian word at each position; every one has to lie within the data."""
    size = np.dtype(dtype).itemsize
    words: NDArray[np.unsignedinteger] = np.ndarray((len(data) - size + 1,), dtype, data, 0, (1,))
    return words[positions]


def gather(data: bytes | bytearray | memoryview, starts: Spans, ends: Spans) -> pa.BinaryArray:
    """Return the bytes between each start and end, copied together; the spans ascend and do not overlap."""
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if count else 0
    spans = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return take_rows(spans, np.arange(0, 2 * count, 2, dtype=np.int32))


def take_rows(array: pa.BinaryArray, rows: Spans) -> pa.BinaryArray:
    """Return some rows of a column, in any order; every number has to be one of its rows."""
    kind = pa.int32() if rows.dtype.itemsize == np.dtype(np.int32).itemsize else pa.int64()
    numbers = pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)])
    # `Array.take` imports all of `pyarrow.compute`, and `pa.array` of an ndarray pandas: a loop stands still for both.
    taken = call_function("take", [array, numbers], _UNCHECKED)
    assert isinstance(taken, pa.BinaryArray)  # noqa: S101 - as the column is
    return taken


def binary_array(values: Sequence[bytes]) -> pa.BinaryArray:
    """Return bytes as an Arrow column; unlike `pa.array`, it does not look for pandas first."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    array: pa.BinaryArray = pa.Array.from_buffers(pa.binary(), len(values), buffers)
    return array


def gathered_view(array: pa.BinaryArray) -> memoryview:
    """Return a view of the values of a gathered array, one after the other."""
    return memoryview(array.buffers()[2]) if len(array) else memoryview(b"")


def gathered_bytes(array: pa.BinaryArray) -> bytes:
    """Return the values of a gathered array, one after the other."""
    data: bytes = array.buffers()[2].to_pybytes() if len(array) else b""
    return data


def binary_spans(array: pa.BinaryArray) -> tuple[memoryview, NDArray[np.int32]]:
    """Return the bytes under an Arrow column, and where its rows begin in them and the last ends; nothing is copied."""
    count = len(array)
    _, offsets, data = array.buffers()
    if offsets is None or not count:
        return memoryview(b""), np.zeros(1, np.int32)
    edges = np.frombuffer(offsets, np.int32, count + 1, array.offset * 4)
    return memoryview(b"" if data is None else data), edges


def binary_list(array: pa.BinaryArray) -> list[bytes]:
    """Return the rows of an Arrow column as bytes, much faster than its `to_pylist`; the column has no nulls."""
    data, edges = binary_spans(array)
    first, last, count = int(edges[0]), int(edges[-1]), len(array)
    text = bytes(data[first:last])
    length = len(text) // count if count else 0
    if length and length * count == len(text) and (np.diff(edges) == length).all():
        rows: list[bytes] = np.frombuffer(text, f"V{length}").tolist()
        return rows
    stops = (edges - first).tolist()
    return [text[start:stop] for start, stop in pairwise(stops)]


def positions_of(octets: NDArray[np.uint8], wanted: int) -> Ints:
    """Return where a byte is; eight bytes at a time, because most words have none."""
    hits = octets == wanted
    whole = len(hits) // _WORD_BYTES * _WORD_BYTES
    words = hits[:whole].view(np.uint64)
    places = np.flatnonzero(words != 0)
    found = words[places]
    places <<= 3
    # Each hit is the lowest bit of its byte: below the first one, all bits are those of bytes before it.
    first = places + (np.bitwise_count(found - _UNIT) >> 3)
    more = np.flatnonzero(found & (found - _UNIT))
    if len(more):
        within = np.flatnonzero(hits[:whole].reshape(-1, _WORD_BYTES)[places[more] >> 3])
        others = places[more][within >> 3] + (within & 7)
        first = np.sort(np.concatenate((np.delete(first, more), others)), kind="stable")
    rest = np.flatnonzero(hits[whole:])
    return np.concatenate((first, whole + rest)) if len(rest) else first


def decimals(data: bytes, ends: Ints, lengths: Ints) -> tuple[Words, Flags]:
    """Return the number whose digits stand before each end, and whether it is one of 1 to `DIGITS_MAX` digits.

    The arrays may have any shape; ends lie within the data. A row that is not a number is 0. Digits within the first
    eight bytes of the data cannot be read as a word, and are not known.
    """
    # As numbers without sign, lengths below 1 are far above the limit.
    known: Flags = (lengths - 1).view(np.uint64) < DIGITS_MAX
    longest = int(np.maximum.reduce(lengths, axis=None, where=known, initial=0))
    if len(data) < _WORD_BYTES or not longest:
        return np.zeros(ends.shape, np.uint64), np.zeros(ends.shape, np.bool_)
    words: Words = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data, 0, (1,))
    left = np.maximum(lengths, 0)
    numbers = _eight_digits(words, ends - _WORD_BYTES, np.minimum(left, _WORD_BYTES), known)
    scale = _EIGHT_DIGITS
    for done in range(_WORD_BYTES, longest, _WORD_BYTES):
        there = np.minimum(np.maximum(left - done, 0), _WORD_BYTES)
        numbers += _eight_digits(words, ends - done - _WORD_BYTES, there, known) * scale
        scale = _EIGHT_DIGITS * _EIGHT_DIGITS
    numbers *= known
    return numbers, known


def _eight_digits(words: Words, positions: Ints, lengths: Ints, known: Flags) -> Words:
    """Return the number in the last `lengths` of the eight bytes at each position; what is none is no longer known."""
    known &= (positions >= 0) | (lengths == 0)
    word: Words = words[np.maximum(positions, 0)]
    word &= _MASKS[lengths]
    word |= _FILLS[lengths]
    known &= ((word + _ABOVE) | (word - _ZEROS)) & _TOPS == 0
    word &= _LOW
    word = (word * _TEN + (word >> np.uint64(8))) & _PAIRS
    word = (word * _HUNDRED + (word >> np.uint64(16))) & _QUADS
    return (word * _MYRIAD + (word >> np.uint64(32))) & _HALF
