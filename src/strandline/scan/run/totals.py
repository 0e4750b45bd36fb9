"""Counts of a shard, kept as the token of its cursor: progress is the sum over the shards of a run.

    token    u8 version = 1, then eleven u64, little-endian: see `Totals`, in the order of its fields

Invariants: `parse_totals(format_totals(totals)) == totals`; no token, or one of a later version, counts as nothing
done, so that progress may be behind and work never is.
"""

import struct
from typing import NamedTuple

_TOKEN = struct.Struct("<B11Q")
_VERSION = 1


class Totals(NamedTuple):
    """Counts of a shard: `moved_at` is the fence under which its cursor moved last; `known` items were done already."""

    moved_at: int = 0
    items: int = 0
    bytes: int = 0
    findings: int = 0
    allowed: int = 0
    failed: int = 0
    skipped: int = 0
    known: int = 0
    carried: int = 0
    work_ns: int = 0
    commit_ns: int = 0

    def plus(self, other: "Totals") -> "Totals":
        """Return the sum; `moved_at` is the larger fence."""
        counts = (one + more for one, more in zip(self[1:], other[1:], strict=True))
        return Totals(max(self.moved_at, other.moved_at), *counts)

    def minus(self, before: "Totals") -> "Totals":
        """Return the counts since `before`, with the same `moved_at`."""
        return Totals(self.moved_at, *(now - one for now, one in zip(self[1:], before[1:], strict=True)))


def format_totals(totals: Totals) -> bytes:
    """Return the token of a cursor."""
    return _TOKEN.pack(_VERSION, *totals)


def parse_totals(token: bytes) -> Totals:
    """Return the counts of a token."""
    if len(token) != _TOKEN.size or token[0] != _VERSION:
        return Totals()
    return Totals(*_TOKEN.unpack(token)[1:])
