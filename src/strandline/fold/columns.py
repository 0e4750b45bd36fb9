"""Columns of bytes for a fold: of equal length made from numbers, of revisions, and their rows told apart by hashes.

Invariants: no function loops over rows in Python. Rows that are equal have equal hashes; what a hash decides is only
whether it is worth to look closer.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.fold.records import STORED_VERSION_BYTES_MAX
from strandline.wire import binary_spans, gather

Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Column: TypeAlias = Sequence[bytes] | pa.BinaryArray

_WORD_BYTES = 8
_HASHED_BYTES = 64
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(_WORD_BYTES + 1)], np.uint64)


def lengths_of(column: Column) -> Numbers:
    """Return how many bytes each row has."""
    if isinstance(column, pa.BinaryArray):
        return np.diff(binary_spans(column)[1]).astype(np.int64)
    return np.fromiter(map(len, column), np.int64, len(column))


def rows_of_equal_length(rows: NDArray[np.generic]) -> pa.BinaryArray:
    """Return the items of a contiguous array as rows of bytes; they share its memory."""
    offsets = np.arange(0, rows.itemsize * (len(rows) + 1), rows.itemsize, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def equal_rows(columns: Sequence[pa.BinaryArray]) -> NDArray[np.uint8] | None:
    """Return what each row has in all columns, side by side in one matrix; None where rows differ in a length.

    Faster than joining rows of any length. Rows that have nothing in a column count as different.
    """
    fields = [_fixed(column) for column in columns]
    if any(field is None for field in fields):
        return None
    rows = np.empty(len(columns[0]), [(f"f{at}", field.dtype) for at, field in enumerate(fields)])  # type: ignore[union-attr]
    for at, field in enumerate(fields):
        rows[f"f{at}"] = field
    return rows.view(np.uint8).reshape(len(rows), rows.itemsize)


def _fixed(column: pa.BinaryArray) -> NDArray[np.void] | None:
    """Return the rows of a column as items of one size; None if they have none."""
    data, offsets = binary_spans(column)
    size, rest = divmod(int(offsets[-1] - offsets[0]), max(1, len(column)))
    if rest or not size or (np.diff(offsets) != size).any():
        return None
    return np.frombuffer(data, f"V{size}", len(column), int(offsets[0]))


def version_column(revisions: NDArray[np.uint64], expires_ns: NDArray[np.uint64] | None = None) -> pa.BinaryArray:
    """Return revisions as versions to store, the empty one for 0; where a row expires, its deadline is behind it."""
    if expires_ns is not None:
        known = np.column_stack([revisions != 0, (revisions != 0) & (expires_ns != 0)])
        offsets = np.zeros(len(revisions) + 1, np.int32)
        np.cumsum(known.sum(axis=1) * _WORD_BYTES, out=offsets[1:])
        words = pa.py_buffer(np.column_stack([revisions, expires_ns])[known].astype(">u8"))
        return pa.Array.from_buffers(pa.binary(), len(revisions), [None, pa.py_buffer(offsets), words])
    tokens = rows_of_equal_length(revisions.astype(">u8"))
    known = revisions != 0
    if known.all():
        return tokens
    offsets = np.zeros(len(revisions) + 1, np.int32)
    np.cumsum(known * _WORD_BYTES, out=offsets[1:])
    packed = pa.py_buffer(revisions[known].astype(">u8"))
    return pa.Array.from_buffers(pa.binary(), len(revisions), [None, pa.py_buffer(offsets), packed])


def tokens_of(versions: pa.BinaryArray) -> pa.BinaryArray:
    """Return stored versions as version tokens, without deadlines."""
    lengths = lengths_of(versions)
    if not (lengths == STORED_VERSION_BYTES_MAX).any():
        return versions
    data, offsets = binary_spans(versions)
    ends = np.where(lengths == STORED_VERSION_BYTES_MAX, offsets[:-1] + _WORD_BYTES, offsets[1:])
    return gather(data, offsets[:-1].astype(np.int64), ends.astype(np.int64))


def numbers_of(versions: pa.BinaryArray) -> tuple[Hashes, Hashes]:
    """Return the revisions and the deadlines of stored versions, 0 where they are unknown or never."""
    data, offsets = binary_spans(versions)
    lengths = np.diff(offsets)
    padded = b"".join((data[offsets[0] : offsets[-1]], bytes(STORED_VERSION_BYTES_MAX)))
    words: Hashes = np.ndarray((len(padded) - _WORD_BYTES + 1,), ">u8", padded, 0, (1,))
    starts = offsets[:-1].astype(np.int64) - int(offsets[0])
    is_timed = lengths == STORED_VERSION_BYTES_MAX
    revisions = np.where((lengths == _WORD_BYTES) | is_timed, words[starts], 0).astype(np.uint64)
    return revisions, np.where(is_timed, words[starts + _WORD_BYTES], 0).astype(np.uint64)


def hash_rows(column: pa.BinaryArray) -> Hashes:
    """Return a number for each row, of its length, its first 64 bytes and its last 8; none of them is secret.

    A row has the same number in every batch, whatever is beside it. The numbers are not kept: they may change with the
    version.
    """
    data, offsets = binary_spans(column)
    edge = bytes(_WORD_BYTES)
    padded = b"".join((edge, data[offsets[0] : offsets[-1]], edge))
    words: Hashes = np.ndarray((len(padded) - _WORD_BYTES + 1,), "<u8", padded, 0, (1,))
    starts = offsets[:-1].astype(np.int64) + (_WORD_BYTES - int(offsets[0]))
    lengths = np.diff(offsets)
    last = starts + np.maximum(lengths - _WORD_BYTES, 0)
    hashes = _mixed(lengths.astype(np.uint64))  # a length is small, like a short word: mixed first, they cannot cancel
    hashes ^= words[last] & _MASKS[np.minimum(lengths, _WORD_BYTES)]
    shortest = int(lengths.min(initial=_HASHED_BYTES + _WORD_BYTES))
    for done in range(0, min(int(lengths.max(initial=0)) - _WORD_BYTES, _HASHED_BYTES), _WORD_BYTES):
        mixed = _mixed(hashes)
        mixed += words[np.minimum(starts + done, last)] & _MASKS[np.minimum(lengths, _WORD_BYTES)]
        hashes = mixed if done < shortest - _WORD_BYTES else np.where(done < lengths - _WORD_BYTES, mixed, hashes)
    return _mixed(hashes)


def _mixed(numbers: Hashes) -> Hashes:
    mixed: Hashes = numbers * _FACTOR
    mixed ^= mixed >> _SHIFT
    return mixed


def are_distinct(hashes: Hashes) -> bool:
    """Tell whether no two hashes are the same, and so no two rows."""
    ordered = np.sort(hashes)
    return not (ordered[1:] == ordered[:-1]).any()
