"""BLAKE3 in its key derivation mode over many short rows at once: the steps of one row as operations on columns.

A call of the library takes longer than the compression of a row that is shorter than two blocks. Here each operation of
the compression is one of numpy over some thousand rows.

Invariants: the digests are those of `blake3(row, derive_key_context=context)`, whatever the number and lengths of rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from blake3 import blake3

from strandline.protocol.canonical import u32

Bytes2D = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

BLOCK_BYTES = 64
BLOCKS_MAX = 3
"""Longer rows are hashed one by one: the library is as fast."""
FEW_ROWS = 1_024
"""Fewer rows for each block are hashed one by one, sooner than some three hundred operations begin."""
DIGEST_BYTES = 32
ROWS_AT_ONCE = 4_096
"""Rows whose columns of the state, and of a block, fit the cache of a core."""
_IV = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint32
)
_PERMUTATION = np.array([2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8])
_ROUNDS = 7
_CHUNK_START, _CHUNK_END, _ROOT, _CONTEXT, _MATERIAL = 1, 2, 8, 32, 64


def _schedule() -> list[npt.NDArray[np.int64]]:
    """Return the words of a block that each quarter of each round takes: columns, then diagonals, two words each."""
    found, order = [], np.arange(16)
    for _ in range(_ROUNDS):
        found += [order[0:8:2], order[1:8:2], order[8::2], order[9::2]]
        order = order[_PERMUTATION]
    return found


_SCHEDULE = _schedule()
_LEFT = [np.roll(np.arange(4), -by) for by in range(4)]
"""The places of four words, turned left."""


@dataclass(frozen=True, slots=True)
class FixedColumn:
    """Values of one width, one after another."""

    data: bytes | memoryview
    width: int

    def __len__(self) -> int:
        """Return the number of values; values of no width are not counted."""
        return len(self.data) // self.width if self.width else 0


def derive_fixed_rows(context: str, parts: Sequence[bytes | FixedColumn], count: int) -> bytes:
    """Return the derivations of so many rows made of constants and columns, one after another."""
    widths = [part.width if isinstance(part, FixedColumn) else len(part) for part in parts]
    length, ends = sum(widths), np.cumsum(widths).tolist()
    rows = np.zeros((count, _padded(length)), np.uint8)
    for part, width, end in zip(parts, widths, ends, strict=True):
        data = np.frombuffer(part.data if isinstance(part, FixedColumn) else part, np.uint8)
        rows[:, end - width : end] = data.reshape(-1, width) if width else 0
    blocks = rows.shape[1] // BLOCK_BYTES
    if count < FEW_ROWS * blocks or blocks > BLOCKS_MAX:
        return _one_by_one(context, (row[:length].tobytes() for row in rows))
    return _derived(context, rows, length).tobytes()


def derive_prefixed_rows(context: str, begin: bytes, values: pa.Array) -> bytes:
    """Return the derivations of values behind the same beginning and their lengths, one after another.

    Values of several lengths are hashed one by one: to pad them takes as long.
    """
    if not len(values):
        return b""
    column = values.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(offsets)
    length = int(sizes[0])
    if len(values) < FEW_ROWS or (sizes != length).any():
        heads = {size: begin + u32(size) for size in np.unique(sizes).tolist()}
        return _one_by_one(context, [heads[len(value)] + value for value in values.to_pylist()])
    data = FixedColumn(memoryview(column.buffers()[2] or b"")[offsets[0] : offsets[-1]], length)
    return derive_fixed_rows(context, [begin + u32(length), data], len(values))


def _one_by_one(context: str, rows: Iterable[bytes]) -> bytes:
    begin = blake3(derive_key_context=context).copy
    return b"".join([begin().update(row).digest() for row in rows])


def _derived(context: str, rows: Bytes2D, length: int) -> Bytes2D:
    """Return the derivations of rows, which are as wide as some blocks and zero behind their length.

    Every row reaches into the last block.
    """
    key = np.frombuffer(_context_key(context), "<u4")
    found = np.empty((len(rows), DIGEST_BYTES), np.uint8)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        here = slice(at, at + ROWS_AT_ONCE)
        words = _hashed(key, _MATERIAL, rows[here], length)
        found[here] = np.ascontiguousarray(words.T.astype("<u4")).view(np.uint8)
    return found


@lru_cache(maxsize=64)
def _context_key(context: str) -> bytes:
    data = context.encode()
    row = np.frombuffer(data.ljust(_padded(len(data)), b"\0"), np.uint8)[None, :]
    return _hashed(_IV, _CONTEXT, row, len(data))[:, 0].astype("<u4").tobytes()


def _padded(length: int) -> int:
    """Return the width of the blocks of a row."""
    return max(1, -(-length // BLOCK_BYTES)) * BLOCK_BYTES


def _hashed(key: Words, mode: int, rows: Bytes2D, length: int) -> Words:
    """Return the first eight words of the hash of each row, as columns."""
    blocks = rows.shape[1] // BLOCK_BYTES
    chain = np.repeat(key.astype(np.uint32)[:, None], len(rows), axis=1)
    words = np.ascontiguousarray(rows).view("<u4")
    for number in range(blocks):
        is_last = number == blocks - 1
        block = np.ascontiguousarray(words[:, number * 16 : (number + 1) * 16].T, np.uint32)
        flags = mode | (_CHUNK_START if number == 0 else 0) | (_CHUNK_END | _ROOT if is_last else 0)
        chain = _compressed(chain, block, length - number * BLOCK_BYTES if is_last else BLOCK_BYTES, flags)
    return chain


def _compressed(chain: Words, block: Words, length: int, flags: int) -> Words:
    """Return the next chaining value of each row."""
    count = chain.shape[1]
    a, b = chain[:4].copy(), chain[4:].copy()
    c = np.repeat(_IV[:4, None], count, axis=1)
    d = np.zeros((4, count), np.uint32)
    d[2], d[3] = length, flags
    spare, first, second = (np.empty((4, count), np.uint32) for _ in range(3))
    for half, (one, two) in enumerate(zip(_SCHEDULE[0::2], _SCHEDULE[1::2], strict=True)):
        _mix(a, b, c, d, np.take(block, one, 0, first), np.take(block, two, 0, second), spare)
        # The diagonals are columns of rows that are turned, and turned back after them.
        by = (1, 2, 3) if half % 2 == 0 else (3, 2, 1)
        b, c, d = b[_LEFT[by[0]]], c[_LEFT[by[1]]], d[_LEFT[by[2]]]
    return np.concatenate([a ^ c, b ^ d])


def _mix(a: Words, b: Words, c: Words, d: Words, first: Words, second: Words, spare: Words) -> None:
    """Mix four columns of the state of each row."""
    for words, turn_d, turn_b in ((first, 16, 12), (second, 8, 7)):
        a += b
        a += words
        d ^= a
        _turn_right(d, turn_d, spare)
        c += d
        b ^= c
        _turn_right(b, turn_b, spare)


def _turn_right(words: Words, bits: int, spare: Words) -> None:
    np.right_shift(words, bits, out=spare)
    np.left_shift(words, 32 - bits, out=words)
    np.bitwise_or(words, spare, out=words)
