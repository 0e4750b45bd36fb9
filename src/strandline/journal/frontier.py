"""The frontier: how far the journal is written and durable, for readers in other processes.

    0   8 B  magic "STRANDLF"
    8   16 B identity of the journal
    24  u64  first offset
    32  u64  written offset (exclusive)
    40  u64  durable offset (exclusive)
    48  u64  base offset of the active segment
    56  u32  where the written offset ends in the active segment, in units of 8 bytes; 0 where unknown
    60  u32  CRC-32C of bytes 0 to 60

Invariants: it is overwritten in place after each commit and never fsynced, so it may be old, and torn only as far as
the checksum shows; its durable offset is set after the fsync, so it is never ahead of stable storage, and recovery may
take it as proof that something was. A reader looks past the end that it names, so that an old frontier hides nothing.
"""

import struct
from dataclasses import dataclass

from strandline.checksums import crc32c

FRONTIER_NAME = "frontier"
FRONTIER_MAGIC = b"STRANDLF"
FRONTIER_BYTES = 64
_FIELDS = struct.Struct("<8s16sQQQQI")
_CRC = struct.Struct("<I")
_UNIT_BYTES = 8
_UNITS_MAX = (1 << 32) - 1


@dataclass(slots=True)
class Frontier:
    """The readable range."""

    identity: bytes
    first_offset: int
    written_offset: int
    durable_offset: int
    active_base: int
    active_bytes: int = 0
    """How long the active segment is up to the written offset; 0 where that is not told."""


def format_frontier(frontier: Frontier) -> bytes:
    """Return the 64 bytes of a frontier file."""
    units = frontier.active_bytes // _UNIT_BYTES
    packed = _FIELDS.pack(
        FRONTIER_MAGIC,
        frontier.identity,
        frontier.first_offset,
        frontier.written_offset,
        frontier.durable_offset,
        frontier.active_base,
        units if units <= _UNITS_MAX else 0,
    )
    return packed + _CRC.pack(crc32c(packed))


def parse_frontier(data: bytes) -> Frontier | None:
    """Return the frontier in the bytes, or None where they are torn, damaged or something else."""
    if len(data) != FRONTIER_BYTES or data[:8] != FRONTIER_MAGIC:
        return None
    if _CRC.unpack_from(data, 60)[0] != crc32c(data[:60]):
        return None
    _, identity, first, written, durable, active, units = _FIELDS.unpack_from(data)
    if not first <= durable <= written or active > written:
        return None
    return Frontier(identity, first, written, durable, active, units * _UNIT_BYTES)
