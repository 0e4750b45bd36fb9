"""The index of a write-ahead log (`-shm`), as pure code over its memory: the end of the log, and the frames of pages.

    block 0     header, 48 bytes, twice | checkpoint state, 40 bytes | page numbers of frames 1 to 4062 | hash table
    block n     page numbers of the next 4096 frames | hash table: 8192 slots of u16

Integers have the byte order of the machine, but the salts, which are copied from the log. A slot has the number of a
frame within its block, counted from 1; a page's first slot is its number times 383, and the next ones follow.

Invariants: both headers are equal and their checksum holds, or the index is not to be trusted; an entry of a frame is
complete before a header names that frame; the second header is written before the first.
"""

import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from strandline.replica.wal import wal_checksum

BLOCK_BYTES = 32_768
FRAMES, FRAMES_FIRST = 4096, 4062
READ_MARKS = 5
READ_MARK_UNUSED = 0xFFFFFFFF
_SLOTS = 8192
_HEADER = struct.Struct("=3I2BH4I8s2I")
_HEADER_BYTES = 48
_SUMMED_BYTES = 40
BACKFILLED = 96
_READ_MARKS = 100
_ATTEMPTED = 128
_FIRST_NUMBERS = 136
_NUMBERS_BYTES = 16_384
_HASH_PRIME = 383
_VERSION = 3_007_000
_PAGE_BYTES_MAX = 65536

Block = memoryview
Blocks = Callable[[int], Block]


class IndexHeader(NamedTuple):
    """The end of a log: `last` is its last committed frame, `pages` the size of the database after it."""

    change: int
    is_big_endian: bool
    page_size: int
    last: int
    pages: int
    checksum: tuple[int, int]
    salts: tuple[int, int]


def format_index_header(header: IndexHeader) -> bytes:
    """Return the bytes of a header."""
    size = (header.page_size & 0xFF00) | (header.page_size >> 16)
    salts = struct.pack(">2I", *header.salts)
    change = header.change & 0xFFFFFFFF
    fields = (_VERSION, 0, change, 1, header.is_big_endian, size, header.last, header.pages, *header.checksum, salts)
    body = _HEADER.pack(*fields, 0, 0)[:_SUMMED_BYTES]
    return body + struct.pack("=2I", *wal_checksum(body, (0, 0), is_big_endian=sys.byteorder == "big"))


def parse_index_header(block: Block) -> IndexHeader | None:
    """Return the header of the first block; None where a writer was interrupted, or there is none yet."""
    data = bytes(block[:_HEADER_BYTES])
    if data != bytes(block[_HEADER_BYTES : 2 * _HEADER_BYTES]):
        return None
    version, _, change, is_ready, is_big_endian, size, last, pages, one, other, salts, *checksum = _HEADER.unpack(data)
    expected = wal_checksum(data[:_SUMMED_BYTES], (0, 0), is_big_endian=sys.byteorder == "big")
    if not is_ready or version != _VERSION or expected != tuple(checksum):
        return None
    page_size = (size & 0xFE00) + ((size & 1) << 16)
    first, second = struct.unpack(">2I", salts)
    return IndexHeader(change, bool(is_big_endian), page_size, last, pages, (one, other), (first, second))


def write_index_header(block: Block, header: IndexHeader, barrier: Callable[[], None]) -> None:
    """Publish a header: readers begin with the first copy, and believe it where the second is equal."""
    data = format_index_header(header)
    block[_HEADER_BYTES : 2 * _HEADER_BYTES] = data
    barrier()
    block[:_HEADER_BYTES] = data


def backfilled(block: Block) -> int:
    """Return how many frames are in the database file."""
    return int(struct.unpack_from("=I", block, BACKFILLED)[0])


def forget_backfilled(block: Block) -> None:
    """Say that no frame is in the database file; the caller holds the lock of checkpoints."""
    struct.pack_into("=I", block, BACKFILLED, 0)


def reset_checkpoint_state(block: Block) -> None:
    """Write the checkpoint state of a log that begins anew; the caller holds the read locks, all but the first."""
    forget_backfilled(block)
    struct.pack_into("=I", block, _ATTEMPTED, 0)
    struct.pack_into(f"={READ_MARKS - 1}I", block, _READ_MARKS + 4, 0, *[READ_MARK_UNUSED] * (READ_MARKS - 2))


def append_frames(blocks: Blocks, last: int, numbers: Sequence[int]) -> None:
    """Enter frames behind `last`, one for each page number; no header names them yet."""
    frame = last
    at = 0
    is_first = True
    while at < len(numbers):
        index, within = _block_of(frame + 1)
        block = blocks(index)
        room = (FRAMES_FIRST if index == 0 else FRAMES) - within
        part = numbers[at : at + room]
        if is_first or within == 0:
            _forget_behind(block, index, within)
        _enter(block, index, within, part)
        frame, at, is_first = frame + len(part), at + len(part), False


def _block_of(frame: int) -> tuple[int, int]:
    """Return the block of a frame, and how many frames of the block are before it."""
    if frame <= FRAMES_FIRST:
        return 0, frame - 1
    block, within = divmod(frame - FRAMES_FIRST - 1, FRAMES)
    return block + 1, within


def _forget_behind(block: Block, index: int, kept: int) -> None:
    """Remove entries of a transaction that was never committed."""
    slots = np.frombuffer(block, np.uint16, _SLOTS, _NUMBERS_BYTES)
    slots[slots > kept] = 0
    start = (_FIRST_NUMBERS if index == 0 else 0) + 4 * kept
    block[start:_NUMBERS_BYTES] = bytes(_NUMBERS_BYTES - start)


def _enter(block: Block, index: int, within: int, numbers: Sequence[int]) -> None:
    start = (_FIRST_NUMBERS if index == 0 else 0) + 4 * within
    struct.pack_into(f"={len(numbers)}I", block, start, *numbers)
    slots = block[_NUMBERS_BYTES:].cast("H")
    for entry, number in enumerate(numbers, within + 1):
        slot = number * _HASH_PRIME % _SLOTS
        while slots[slot]:
            slot = (slot + 1) % _SLOTS
        slots[slot] = entry
