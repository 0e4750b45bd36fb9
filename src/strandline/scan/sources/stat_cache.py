"""The stat cache: versions of files by their stat data, so that unchanged files are not read again.

    stat data    u64 device, u64 inode, i64 size, i64 mtime, i64 ctime (ns), little-endian

Git's rule for racy timestamps: a file system's clock moves in ticks, so a file can be written again after it was read
and keep its timestamps. Stat data therefore vouch for a read only if both timestamps are older than the time of the
read by `RACY_MARGIN_NS`, which is more than the coarsest tick (two seconds, FAT). `ctime` is compared too:
`mtime` can be set.

Invariants: stat data that were racy when a file was read are never kept, so that they do not count later, when their
timestamps have grown old; nothing here reads a file.
"""

import os
import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

RACY_MARGIN_NS = 2_000_000_000
_STAT = struct.Struct("<QQqqq")
_TIMES = struct.Struct("<qq")
_TIMES_AT = _STAT.size - _TIMES.size
_U64 = 2**64 - 1
_parts = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")

Lookup: TypeAlias = Callable[[int, pa.Array], pa.Table]
VOUCHED = pa.schema(
    [
        pa.field("source", pa.int16(), nullable=False),
        pa.field("locator", pa.binary(), nullable=False),
        pa.field("stat", pa.binary(), nullable=False),
        pa.field("version", pa.binary(), nullable=False),
        pa.field("ovid", pa.binary(32), nullable=False),
    ]
)
"""An item that was read: its source (counted from 0), its version, its ledger key, and the stat data that vouch for
them."""


def format_stat(found: os.stat_result) -> bytes:
    """Return the stat data that change when content does, packed."""
    try:
        return _STAT.pack(*_parts(found))
    except struct.error:  # some systems have device and inode numbers below zero
        device, inode, *rest = _parts(found)
        return _STAT.pack(device & _U64, inode & _U64, *rest)


def vouching(stat: bytes, looked_at_ns: int) -> bytes | None:
    """Return the stat data of a file after its read, if they vouch for the read; None if the file is too fresh."""
    mtime_ns, ctime_ns = _TIMES.unpack_from(stat, _TIMES_AT)
    latest_ns = looked_at_ns - RACY_MARGIN_NS
    return stat if mtime_ns < latest_ns and ctime_ns < latest_ns else None


class StatCache:
    """The versions of items by the stat data that vouch for them.

    Each lookup returns rows of `VOUCHED` for items of a source, all null for unknown items; the last lookup that has
    an item counts.
    """

    def __init__(self, lookups: Sequence[Lookup]) -> None:
        self._lookups = lookups

    def known(self, number: int, locators: pa.Array, stats: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the versions of items of a source and their ledger keys, null if only reading gives them."""
        found = self.vouched(number, locators)
        is_same = pc.equal(found["stat"], stats)
        versions, ovids = (
            pc.if_else(is_same, found[name], pa.scalar(None, found[name].type)) for name in ("version", "ovid")
        )
        return versions, ovids

    def vouched(self, number: int, locators: pa.Array) -> pa.RecordBatch:
        """Return the rows of items of a source, whatever their stat data now; all null for an item without a row."""
        columns = [pa.nulls(len(locators), kind) for kind in VOUCHED.types]
        for lookup in self._lookups:
            rows = lookup(number, locators)
            columns = [pc.coalesce(*pair) for pair in zip(map(_whole, rows.columns), columns, strict=True)]
        return pa.record_batch(columns, VOUCHED.names)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of few rows as one array."""
    together = column.combine_chunks()
    return together if isinstance(together, pa.Array) else pa.concat_arrays(together.chunks)
