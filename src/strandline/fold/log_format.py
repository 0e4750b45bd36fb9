"""The bytes of a snapshot log, written: a batch as records with their checksums, row by row or as columns.

Invariants: both ways write the same bytes. A batch is its puts, its deletes, then its cursor, so that wherever it is
cut the cursor is not ahead. `docs/formats/snapshot-log.md` is the format; `log_scan` reads it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from zlib import crc32

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.files import Buffer
from strandline.fold.batches import Deletes, FoldBatch, PutColumns, Puts
from strandline.fold.columns import Numbers, equal_rows, lengths_of, rows_of_equal_length
from strandline.fold.records import VERSION_PREFIXES
from strandline.kv import NO_CURSOR, WatchCursor
from strandline.wire import binary_spans

MAGIC = b"PGSS"
VERSION = 3
HEADER = MAGIC + struct.pack("<H", VERSION)
OLD_HEADERS = (MAGIC + struct.pack("<H", 2),)
"""Of a log without deadlines, which is read as it is and replaced when it is opened for writing."""
PUT, DELETE, CURSOR = 1, 2, 3
RECORD_BYTES_MIN = 6
KEY_AT = 7
"""Where the key begins in a put or a delete."""
PUT_OVERHEAD_BYTES = 11
"""What a put has before its value, beside its key."""

BLANK = b"\x9d\x0a\xd9\x6d"
"""Four bytes whose checksum is 0: a record that begins with them has the checksum of what follows them."""
_BYTES_AT_ONCE = 1 << 30
"""Arrow's columns of bytes end at 2 GiB."""
_ROWS_PER_CHECK = 1000
"""So few records are still in the processor's cache when their checksums are taken."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A batch as it is appended: parts that follow each other, and how long each put and then each delete is."""

    parts: list[Buffer]
    size: int
    lengths: Numbers


def format_batch(batch: FoldBatch, cursor: WatchCursor) -> LogBatch:
    """Return the records of a batch, the cursor last; `NO_CURSOR` has no record."""
    columns = batch.put_columns
    deletes = _delete_bodies(batch.deletes)
    last = [] if cursor == NO_CURSOR else [bytes((CURSOR, len(cursor))) + cursor]
    if columns is None:
        bodies = [*_put_bodies(batch.puts), *deletes]
        content = _checked([*bodies, *last])
        return LogBatch([content], len(content), lengths_of(bodies) + 4)
    parts, lengths = format_columns(columns)
    tail = _checked([*deletes, *last])
    parts.append(tail)
    return LogBatch(parts, int(lengths.sum()) + len(tail), np.concatenate([lengths, lengths_of(deletes) + 4]))


def format_columns(puts: PutColumns) -> tuple[list[Buffer], Numbers]:
    """Return the records of many puts, and the length of each."""
    keys, values, versions = map(lengths_of, puts)
    lengths = keys + values + versions + (PUT_OVERHEAD_BYTES + 1)
    ends = np.cumsum(lengths)
    parts: list[Buffer] = []
    first = 0
    while first < len(lengths):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + _BYTES_AT_ONCE, "right")))
        parts.append(_records(PutColumns(*(column.slice(first, end - first) for column in puts))))
        first = end
    return parts, lengths


def _records(puts: PutColumns) -> memoryview:
    keys, values, versions = map(lengths_of, puts)
    heads = np.empty(len(keys), [("blank", "V4"), ("kind", "u1"), ("key", "<u2")])
    heads["blank"], heads["kind"], heads["key"] = np.void(BLANK), PUT, keys
    columns = [
        rows_of_equal_length(heads),
        puts.keys,
        rows_of_equal_length(values.astype("<u4")),
        puts.values,
        rows_of_equal_length(versions.astype("u1")),
        puts.versions,
    ]
    if (matrix := equal_rows(columns)) is not None:
        return _checked_rows(matrix)
    joined = pc.binary_join_element_wise(*columns, b"")
    data, offsets = binary_spans(joined)
    sums = np.empty(len(joined), "<u4")
    for first in range(0, len(joined), _ROWS_PER_CHECK):
        rows = joined.slice(first, _ROWS_PER_CHECK).to_numpy(zero_copy_only=False)
        sums[first : first + _ROWS_PER_CHECK] = list(map(crc32, rows))
    octets = np.frombuffer(data, np.uint8)
    octets.flags.writeable = True  # Arrow made it just now, and nothing else refers to it
    np.ndarray((len(octets) - 3,), "<u4", octets.data, 0, (1,))[offsets[:-1]] = sums
    return octets.data[offsets[0] : offsets[-1]]


def _checked_rows(matrix: NDArray[np.uint8]) -> memoryview:
    """Return records of one length, with their checksums in the place of what is blank."""
    bodies = matrix.view(f"V{matrix.shape[1]}").ravel()
    for first in range(0, len(matrix), _ROWS_PER_CHECK):
        sums = np.fromiter(map(crc32, bodies[first : first + _ROWS_PER_CHECK].tolist()), "<u4")
        matrix[first : first + _ROWS_PER_CHECK, : sums.itemsize] = sums.view(np.uint8).reshape(-1, sums.itemsize)
    return matrix.ravel().data


def _checked(bodies: list[bytes]) -> bytes:
    sums = np.fromiter(map(crc32, bodies), "<u4", len(bodies)).view("V4").tolist()
    return b"".join(chain.from_iterable(zip(sums, bodies, strict=True)))


def _put_bodies(puts: Puts) -> list[bytes]:
    keys, values, versions = puts
    key_lengths = _packed_lengths(keys, "<u2")
    value_lengths = _packed_lengths(values, "<u4")
    version_lengths = map(VERSION_PREFIXES.__getitem__, map(len, versions))
    columns = zip(key_lengths, keys, value_lengths, values, version_lengths, versions, strict=True)
    return [b"\x01%b%b%b%b%b%b" % row for row in columns]


def _delete_bodies(deletes: Deletes) -> list[bytes]:
    lengths = map(VERSION_PREFIXES.__getitem__, map(len, deletes.versions))
    columns = zip(_packed_lengths(deletes.keys, "<u2"), deletes.keys, lengths, deletes.versions, strict=True)
    return [b"\x02%b%b%b%b" % row for row in columns]


def _packed_lengths(column: Sequence[bytes], kind: str) -> list[bytes]:
    numbers = np.fromiter(map(len, column), kind, len(column))
    packed: list[bytes] = numbers.view(f"V{numbers.itemsize}").tolist()
    return packed
