"""A segment: one file of consecutive batches, named after its first offset.

    0   8 B  magic "STRANDLJ"
    8   u16  version, 1
    10  u16  zero
    12  u32  zero
    16  16 B identity of the journal
    32  u64  base offset
    40  i64  created, nanoseconds since 1970
    48  12 B zero
    60  u32  CRC-32C of bytes 0 to 60
    64       batches, one after another, each at a multiple of 8; then the end of the file, or zeros

Invariants: offsets are contiguous within a segment and across segments; a segment is only ever extended at its end.
"""

import re
import struct
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from strandline.checksums import crc32c
from strandline.errors import FormatError
from strandline.files import File
from strandline.journal.batch import HEADER, HEADER_BYTES, MAGIC, BadBatch, Batch, parse_batch, parse_header

SEGMENT_MAGIC = b"STRANDLJ"
SEGMENT_VERSION = 1
SEGMENT_HEADER = struct.Struct("<8sHHI16sQq12x")
SEGMENT_HEADER_BYTES = 64
IDENTITY_BYTES = 16
READ_BYTES = 1024 * 1024
FIRST_READ_BYTES = 128 * 1024
_CRC = struct.Struct("<I")
_MAGIC_BYTES = _CRC.pack(MAGIC)
_NAME = re.compile(r"([0-9]{20})\.journal")


def format_segment_name(base_offset: int) -> str:
    """Return the file name of the segment that begins at `base_offset`; names sort as offsets do."""
    return f"{base_offset:020d}.journal"


def parse_segment_name(name: str) -> int | None:
    """Return the base offset in a segment's file name, or None where it is another file's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the first 64 bytes say."""

    identity: bytes
    base_offset: int
    created_ns: int


def format_segment_header(header: SegmentHeader) -> bytes:
    """Return the first 64 bytes of a segment."""
    fields = (SEGMENT_MAGIC, SEGMENT_VERSION, 0, 0, header.identity, header.base_offset, header.created_ns)
    packed = SEGMENT_HEADER.pack(*fields)
    return packed + _CRC.pack(crc32c(packed))


def parse_segment_header(data: bytes, path: str) -> SegmentHeader:
    """Return what a segment begins with; `BadBatch` if torn, `FormatError` if foreign or of a later version."""
    if len(data) < SEGMENT_HEADER_BYTES:
        _refuse_foreign(data, path)
        raise BadBatch("the file ends inside the segment header", short=True)
    magic, version, _, _, identity, base_offset, created_ns = SEGMENT_HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, SEGMENT_HEADER.size)
    if crc == crc32c(data[: SEGMENT_HEADER.size]) and magic == SEGMENT_MAGIC:
        if version != SEGMENT_VERSION:
            hint = "open it with the version of Strandline that wrote it, or a later one"
            raise FormatError(path, f"segment version {version} is not known here", hint=hint)
        return SegmentHeader(identity, base_offset, created_ns)
    _refuse_foreign(data, path)
    raise BadBatch("the segment header is damaged")


def read_segment_header(file: File, path: str) -> SegmentHeader:
    """Return what a segment's file begins with; raises as `parse_segment_header` does."""
    return parse_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0), path)


def refuse_stranger(header: SegmentHeader, identity: bytes, base_offset: int, path: str) -> None:
    """Raise `FormatError` unless a segment is the one of this journal that begins at `base_offset`."""
    if header.base_offset != base_offset:
        raise FormatError(path, f"the header says offset {header.base_offset}", hint="was the file renamed?")
    if header.identity != identity:
        raise FormatError(path, "the segment belongs to another journal", hint="move it to where it came from")


def _refuse_foreign(data: bytes, path: str) -> None:
    """Raise `FormatError` unless the bytes could be the beginning of a segment of which some were not written."""
    if any(found not in (0, ours) for found, ours in zip(data, SEGMENT_MAGIC, strict=False)):
        hint = "move the file elsewhere if it is not part of the journal; else `strandline journal repair --dry-run`"
        raise FormatError(path, "this is not a journal segment", hint=hint)


def walk(
    file: File,
    position: int,
    expected: int,
    *,
    stop: int | None = None,
    check: bool = True,
    tag: int | None = None,
    read_bytes: int = READ_BYTES,
    ahead: Executor | None = None,
) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) from `position`, where offset `expected` must begin, up to offset `stop` or the end.

    Raises `BadBatchAt` at the first bytes that are not the next valid batch, with the journal's `tag` where that is
    given. Never looks past `stop`, where a writer may be at work. Each batch is a view over the chunk it was read with;
    with `ahead`, the next chunk is read while the batches of this one are used.
    """
    chunks = _Chunks(file, read_bytes, ahead)
    data = b""
    at = 0
    while stop is None or expected < stop:
        try:
            if len(data) - at < HEADER_BYTES:
                data, position, at = chunks.read(position + at), position + at, 0
                if _is_end(data):
                    return
            header = parse_header(data, at)
            needed = HEADER_BYTES + header.body_bytes
            if len(data) - at < needed:
                data, position, at = chunks.read(position + at, needed), position + at, 0
            batch = parse_batch(data, at, header, check=check)
            if header.base_offset != expected:
                raise BadBatch(f"offset {header.base_offset} stands where {expected} belongs")  # noqa: TRY301
            if tag is not None and batch.tag not in (tag, 0):  # older writers left it out, as a repair does
                raise BadBatch("the batch belongs to another journal")  # noqa: TRY301
        except BadBatch as bad:
            if not bad.short and _is_end(data[at : at + HEADER_BYTES]):
                return
            raise BadBatchAt(position + at, expected, bad.problem) from bad
        yield position + at, batch
        at += needed
        expected = batch.next_offset


class _Chunks:
    """Reads a file chunk by chunk; a chunk begins with a batch, and holds one whole batch at least.

    Chunks begin small and grow, so that a glance at the end of a file does not read all the space reserved there.
    """

    def __init__(self, file: File, read_bytes: int, ahead: Executor | None) -> None:
        self._file = file
        self._read_bytes = min(read_bytes, FIRST_READ_BYTES)
        self._read_bytes_max = read_bytes
        self._ahead = ahead
        self._next: tuple[int, int, Future[bytes]] | None = None

    def read(self, position: int, needed: int = 0) -> bytes:
        """Return what begins at `position`: a chunk, or `needed` bytes where that is more."""
        size = max(self._read_bytes, needed)
        if self._next is not None and self._next[0] == position and needed <= self._next[1]:
            data = self._next[2].result()
        else:
            if needed and position + needed > self._file.size():  # before room is made for what cannot be there
                raise BadBatch("the file ends inside a batch", short=True)
            data = self._file.pread(size, position)
        self._read_bytes = min(2 * self._read_bytes, self._read_bytes_max)
        if self._ahead is not None and len(data) >= size:
            following = position + _whole_batches(data)
            reading = self._ahead.submit(self._file.pread, self._read_bytes, following)
            self._next = (following, self._read_bytes, reading)
        return data


def _whole_batches(data: bytes) -> int:
    """Return how many bytes the whole batches at the beginning of a chunk take, going by their headers alone."""
    at = 0
    while len(data) - at >= HEADER_BYTES:
        after = at + HEADER_BYTES + HEADER.unpack_from(data, at)[2]
        if after > len(data):
            break
        at = after
    return at


def _is_end(data: bytes) -> bool:
    """Whether nothing follows: the end of the file, or space that was reserved and never written."""
    return not any(data[:HEADER_BYTES])


class BadBatchAt(Exception):
    """The walk met bytes that are not the next batch."""

    def __init__(self, position: int, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.offset = offset
        self.problem = problem


def find_batch(file: File, position: int, offset_min: int, tag: int) -> tuple[int, Batch] | None:
    """Return the first whole valid batch after `position` whose base offset is at least `offset_min`, or None.

    A batch of another journal is not one of ours, though a record may well hold it.
    """
    begin = position + -position % 8
    size = file.size()
    while begin < size:
        chunk = file.pread(READ_BYTES + HEADER_BYTES, begin)
        for candidate in _candidates(chunk):
            found = _whole_batch(file, begin + candidate, size)
            if found is not None and found.base_offset >= offset_min and (found.tag == tag or found.is_lost):
                return begin + candidate, found
        begin += READ_BYTES
    return None


def _candidates(chunk: bytes) -> Iterator[int]:
    at = chunk.find(_MAGIC_BYTES)
    while at >= 0:
        if at % 8 == 0 and at < READ_BYTES:
            yield at
        at = chunk.find(_MAGIC_BYTES, at + 1)


def _whole_batch(file: File, position: int, size: int) -> Batch | None:
    try:
        header = parse_header(file.pread(HEADER_BYTES, position), 0)
        if position + HEADER_BYTES + header.body_bytes > size:
            return None
        return parse_batch(file.pread(HEADER_BYTES + header.body_bytes, position), 0, header)
    except BadBatch:
        return None
