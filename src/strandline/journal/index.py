"""The sparse index of a segment: offset → position, one entry for every 64 KiB of batches; rebuildable.

    0   8 B  magic "STRANDLX"
    8   u16  version, 1
    10  u16  zero
    12  u32  CRC-32C of everything after byte 16, continued over bytes 0 to 12
    16  u64  base offset of the segment
    24  u64  entry count
    32       u64 offsets[n], u64 positions[n], both rising

Invariants: an index is written whole when its segment is sealed and never trusted over the segment; a missing, torn or
foreign one is rebuilt from the segment. Every entry names the beginning of a batch.
"""

import re
import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

from strandline.checksums import crc32c
from strandline.journal.segment import SEGMENT_HEADER_BYTES

INDEX_MAGIC = b"STRANDLX"
INDEX_VERSION = 1
INDEX_STRIDE_BYTES = 64 * 1024
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_COUNT = struct.Struct("<QQ")
_ENTRIES_AT = 32
_NAME = re.compile(r"([0-9]{20})\.index")


def format_index_name(base_offset: int) -> str:
    """Return the file name of the index of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}.index"


def parse_index_name(name: str) -> int | None:
    """Return the base offset in an index's file name, or None where it is another file's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(slots=True)
class Index:
    """Where batches begin, every 64 KiB or so. Grows at its end only, so readers need no lock."""

    base_offset: int
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    positions: "array[int]" = field(default_factory=lambda: array("Q"))

    def note(self, offset: int, position: int) -> None:
        """Add a batch, if the last entry is far enough behind."""
        if not self.positions or position - self.positions[-1] >= INDEX_STRIDE_BYTES:
            self.positions.append(position)
            self.offsets.append(offset)  # last: a reader bisects the offsets

    def find(self, offset: int) -> tuple[int, int]:
        """Return (offset, position) of a batch that begins at or before `offset`."""
        i = bisect_right(self.offsets, offset) - 1
        if i < 0:
            return self.base_offset, SEGMENT_HEADER_BYTES
        return self.offsets[i], self.positions[i]

    def stretch(self, offset: int) -> tuple[int, int, int | None, int | None]:
        """Return (offset, position) of the entry at or before `offset` and of the one after it, None for the last."""
        i = bisect_right(self.offsets, offset)
        base, position = (self.offsets[i - 1], self.positions[i - 1]) if i else (self.base_offset, SEGMENT_HEADER_BYTES)
        if i == len(self.offsets):
            return base, position, None, None
        return base, position, self.offsets[i], self.positions[i]

    def cut(self, end_offset: int) -> None:
        """Forget entries at or above `end_offset`."""
        keep = bisect_right(self.offsets, end_offset - 1) if end_offset else 0
        del self.offsets[keep:], self.positions[keep:]


def format_index(index: Index) -> bytes:
    """Return the bytes of an index file."""
    head = _HEAD.pack(INDEX_MAGIC, INDEX_VERSION, 0)
    counts = _COUNT.pack(index.base_offset, len(index.offsets))
    body = counts + index.offsets.tobytes() + index.positions.tobytes()
    return head + _CRC.pack(crc32c(head, crc32c(body))) + body


def parse_index(data: bytes, base_offset: int) -> Index | None:
    """Return the index of the segment at `base_offset`, or None where the bytes are not it."""
    if len(data) < _ENTRIES_AT or data[: _HEAD.size] != _HEAD.pack(INDEX_MAGIC, INDEX_VERSION, 0):
        return None
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    base, count = _COUNT.unpack_from(data, 16)
    if base != base_offset or len(data) != _ENTRIES_AT + 16 * count:
        return None
    if crc != crc32c(data[: _HEAD.size], crc32c(data[16:])):
        return None
    index = Index(base_offset)
    index.offsets.frombytes(data[_ENTRIES_AT : _ENTRIES_AT + 8 * count])
    index.positions.frombytes(data[_ENTRIES_AT + 8 * count :])
    rising = all(a < b for column in (index.offsets, index.positions) for a, b in pairwise(column))
    return index if rising and (not count or index.offsets[0] >= base_offset) else None
