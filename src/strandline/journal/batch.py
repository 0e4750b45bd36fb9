"""A batch: the unit of framing, checksum, write, fsync and read, whose body is laid out as an Arrow record batch.

    0   u32  magic "SLB1"
    4   u32  CRC-32C of everything from byte 8 to the end of the body
    8   u32  body length, a multiple of 8
    12  u32  record count, at least 1
    16  u64  base offset
    24  u64  durable offset (exclusive) known when the batch was written
    32  i64  append time, nanoseconds since 1970
    40  u16  columns present: 1 value, 2 key, 4 headers, 8 timestamps; 0 marks offsets lost to damage
    42  u16  zero
    44  u32  tag: the first four bytes of the journal's identity; 0 in a batch of lost offsets
    48       body: for value, key, headers, as present: i32 offsets[n+1], zeros to 8, bytes, zeros to 8;
             then i64 timestamps[n], if present

Invariants: a batch is whole or it is not there; `durable` never exceeds what was on stable storage, so a valid batch
proves that everything below its `durable` once was; every multi-byte number is little-endian.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strandline.checksums import crc32c
from strandline.files import Buffer
from strandline.journal.columns import HAS_HEADERS, HAS_KEY, HAS_TIMESTAMPS, HAS_VALUE, Columns, Offsets, Times

MAGIC = 0x31424C53
HEADER = struct.Struct("<IIIIQQqHHI")
HEADER_BYTES = HEADER.size
LOST = 0
COLUMNS_ALL = HAS_VALUE | HAS_KEY | HAS_HEADERS | HAS_TIMESTAMPS
BODY_BYTES_MAX = 2**31 - 8
_AFTER_CRC = 8
_OPTIONAL_VARIABLE = (HAS_KEY, HAS_HEADERS)
_SMALL = 8192
_PADDING = [bytes(n) for n in range(8)]
_CRC = struct.Struct("<I")
_LAST = struct.Struct("<i")
_MAGIC_AND_CRC = struct.Struct("<II")
_AFTER_CRC_OF_ONE = struct.Struct("<IIQQqHHIii")
"""The header after its checksum, and the two offsets of a column with one value."""
_PAIR = struct.Struct("<ii")
_TIME = struct.Struct("<q")


class BadBatch(Exception):
    """Bytes that are not a whole valid batch; `short` when they merely end too early."""

    def __init__(self, problem: str, *, short: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.short = short


class Header(NamedTuple):
    """The fixed part of a batch."""

    magic: int
    crc: int
    body_bytes: int
    records: int
    base_offset: int
    durable_offset: int
    append_ns: int
    present: int
    zero: int
    tag: int


class Record(NamedTuple):
    """One record as it was appended."""

    offset: int
    value: bytes
    key: bytes | None
    headers: bytes | None
    timestamp_ns: int | None


def _pad(size: int) -> bytes:
    return _PADDING[-size % 8]


def journal_tag(identity: bytes) -> int:
    """Return the tag of a journal's batches; a batch inside a record's value is not taken for one of them."""
    return _CRC.unpack_from(identity)[0]  # type: ignore[no-any-return]


def format_batch(
    base_offset: int, durable_offset: int, append_ns: int, columns: Columns, tag: int = 0
) -> tuple[list[Buffer], int]:
    """Return a batch as buffers to be written one after another, and their size together."""
    body: list[Buffer] = []
    for column in columns.variable:
        body.append(column.offsets.tobytes())
        body.append(_pad(4 * len(column.offsets)))
        body += column.pieces
        body.append(_pad(column.size))
    if columns.timestamps is not None:
        body.append(columns.timestamps.tobytes())
    fields = (columns.count, base_offset, durable_offset, append_ns, columns.present, 0, tag)
    return _seal(fields, body)


def record_bytes(value: bytes) -> int:
    """Return how many bytes `format_record` takes for a value."""
    return HEADER_BYTES + 8 + len(value) + -len(value) % 8


def format_record(base_offset: int, durable_offset: int, append_ns: int, value: bytes, tag: int = 0) -> bytes:
    """Return a batch of one record that is only a value: what `format_batch` returns, in a third of the time."""
    size = len(value)
    pad = _PADDING[-size % 8]
    fields = (size + len(pad) + 8, 1, base_offset, durable_offset, append_ns, HAS_VALUE, 0, tag, 0, size)
    rest = _AFTER_CRC_OF_ONE.pack(*fields) + value + pad
    return _MAGIC_AND_CRC.pack(MAGIC, crc32c(rest)) + rest


def format_lost(base_offset: int, count: int, body_bytes: int) -> bytes:
    """Return a batch for `count` offsets that were lost to damage, with a body of zeros."""
    buffers, _ = _seal((count, base_offset, 0, 0, LOST, 0, 0), [bytes(body_bytes)])
    return b"".join(buffers)


def _seal(fields: tuple[int, ...], body: list[Buffer]) -> tuple[list[Buffer], int]:
    """Put the header before a body; `fields` are those after the body's length."""
    body_bytes = sum(map(len, body))
    head = HEADER.pack(MAGIC, 0, body_bytes, *fields)
    if body_bytes <= _SMALL:
        rest = b"".join([head[_AFTER_CRC:], *body])
        return [head[:4] + _CRC.pack(crc32c(rest)) + rest], HEADER_BYTES + body_bytes
    # One buffer for everything before the first record's bytes: fewer checksum calls and fewer iovecs.
    rest = b"".join([head[_AFTER_CRC:], *body[:2]])
    crc = crc32c(rest)
    for part in body[2:]:
        if part:
            crc = crc32c(part, crc)
    return [head[:4] + _CRC.pack(crc) + rest, *body[2:]], HEADER_BYTES + body_bytes


def parse_header(data: Buffer, position: int) -> Header:
    """Return the header at `position`; raise `BadBatch` where it cannot be one. The checksum is not checked."""
    if len(data) - position < HEADER_BYTES:
        raise BadBatch("the file ends inside a batch header", short=True)
    header = Header._make(HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise BadBatch("no batch begins here")
    if header.body_bytes % 8 or header.body_bytes > BODY_BYTES_MAX or not header.records:
        raise BadBatch("the batch header is not possible")
    if header.present & ~COLUMNS_ALL or header.zero:
        raise BadBatch("the batch has columns that this version does not know")
    if header.present == LOST and (header.durable_offset or header.tag):
        raise BadBatch("a batch of lost offsets carries no proof and no tag")
    return header


class _Span(NamedTuple):
    """Where a variable column lies in the buffer."""

    offsets: int
    data: int
    size: int


def parse_batch(data: bytes, position: int, header: Header, *, check: bool = True) -> "Batch":
    """Return the batch at `position` as a view over `data`; raise `BadBatch` unless it is whole and checks."""
    body = position + HEADER_BYTES
    end = body + header.body_bytes
    if end > len(data):
        raise BadBatch("the file ends inside a batch", short=True)
    if check and crc32c(memoryview(data)[position + _AFTER_CRC : end]) != header.crc:
        raise BadBatch("the checksum does not match")
    count, present = header.records, header.present
    if present == LOST:
        return Batch(data, position, header, (), 0, count)
    if not present & HAS_VALUE:
        raise BadBatch("the batch has no values")
    spans = [_span(data, body, end, count)]
    for bit in _OPTIONAL_VARIABLE:
        if present & bit:
            spans.append(_span(data, spans[-1].data + _padded(spans[-1].size), end, count))
    filled = spans[-1].data + _padded(spans[-1].size) + (8 * count if present & HAS_TIMESTAMPS else 0)
    if filled != end:
        raise BadBatch("the columns do not fill the batch")
    return Batch(data, position, header, spans, 0, count)


def _padded(size: int) -> int:
    return size + -size % 8


def _span(data: bytes, at: int, end: int, count: int) -> _Span:
    begin = at + 4 * (count + 1 + (count + 1) % 2)
    if begin > end:
        raise BadBatch("a column is longer than its batch")
    (size,) = _LAST.unpack_from(data, at + 4 * count)
    if size < 0 or begin + size > end:
        raise BadBatch("a column is longer than its batch")
    return _Span(at, begin, size)


class Batch:
    """Some consecutive records of one batch, as a view over the bytes that were read; nothing is copied until asked.

    `base_offset` is the offset of the first record and `next_offset` the one after the last. Immutable.
    """

    __slots__ = ("_data", "_first", "_header", "_position", "_spans", "base_offset", "next_offset")

    def __init__(
        self, data: bytes, position: int, header: Header, spans: Sequence[_Span], first: int, count: int
    ) -> None:
        self._data = data
        self._position = position
        self._header = header
        self._spans = spans
        self._first = first
        self.base_offset = header.base_offset + first
        self.next_offset = self.base_offset + count

    def __len__(self) -> int:
        """Return how many records there are."""
        return self.next_offset - self.base_offset

    def __iter__(self) -> Iterator[Record]:
        """Yield the records one by one, as `records` does."""
        return self.records()

    def __repr__(self) -> str:
        """Show the offsets, never the content."""
        return f"Batch([{self.base_offset}, {self.next_offset}))"

    @property
    def append_ns(self) -> int:
        """When the batch was appended."""
        return self._header.append_ns

    @property
    def durable_offset(self) -> int:
        """The durable offset (exclusive) that was known when the batch was written."""
        return self._header.durable_offset

    @property
    def tag(self) -> int:
        """The first bytes of the identity of the batch's journal."""
        return self._header.tag

    @property
    def checksum(self) -> int:
        """The CRC-32C of the whole batch, offsets and times included."""
        return self._header.crc

    @property
    def is_lost(self) -> bool:
        """Whether these offsets were lost to damage."""
        return self._header.present == LOST

    @property
    def stored_bytes(self) -> int:
        """How many bytes the whole batch takes on disk."""
        return HEADER_BYTES + self._header.body_bytes

    @property
    def payload_bytes(self) -> int:
        """How many bytes the records' values, keys and headers have."""
        if len(self) == self._header.records:
            return sum(span.size for span in self._spans)
        return sum(int(offsets[-1] - offsets[0]) for offsets in map(self._offsets, self._spans))

    def clip(self, start: int, stop: int | None = None) -> "Batch":
        """Return the part with offsets in [start, stop)."""
        first = min(max(start, self.base_offset), self.next_offset)
        last = self.next_offset if stop is None else min(stop, self.next_offset)
        begin = first - self._header.base_offset
        return Batch(self._data, self._position, self._header, self._spans, begin, max(0, last - first))

    def values(self) -> list[bytes]:
        """Return the values."""
        return self._bytes(self._spans[0])

    def keys(self) -> list[bytes] | None:
        """Return the keys, or None where the batch has none."""
        return self._optional(HAS_KEY)

    def headers(self) -> list[bytes] | None:
        """Return the headers, or None where the batch has none."""
        return self._optional(HAS_HEADERS)

    def timestamps(self) -> Times | None:
        """Return the timestamps in nanoseconds, or None where the batch has none."""
        if not self._header.present & HAS_TIMESTAMPS:
            return None
        return np.frombuffer(self._data, "<i8", len(self), self._times_at())

    def records(self) -> Iterator[Record]:
        """Yield the records one by one."""
        none = [None] * len(self)
        times = self.timestamps()
        columns = zip(
            range(self.base_offset, self.next_offset),
            self.values(),
            self.keys() or none,
            self.headers() or none,
            none if times is None else times.tolist(),
            strict=True,
        )
        return map(Record._make, columns)

    def record(self, offset: int) -> Record:
        """Return the record at an offset of this batch, as `records` would."""
        data, at = self._data, offset - self._header.base_offset
        present = self._header.present
        found: list[bytes] = []
        for span in self._spans:
            begin, end = _PAIR.unpack_from(data, span.offsets + 4 * at)
            found.append(data[span.data + begin : span.data + end])
        if present == HAS_VALUE:
            return Record(offset, found[0], None, None, None)
        times_at = self._position + self.stored_bytes - 8 * (self._header.records - at)
        return Record(
            offset,
            found[0],
            found[1] if present & HAS_KEY else None,
            found[-1] if present & HAS_HEADERS else None,
            _TIME.unpack_from(data, times_at)[0] if present & HAS_TIMESTAMPS else None,
        )

    def to_arrow(self) -> pa.RecordBatch:
        """Return the records as an Arrow record batch over the same memory; `offset` is the only column made anew."""
        buffer = pa.py_buffer(self._data)
        count, present = len(self), self._header.present
        offsets = _numbers(self.base_offset, count)
        arrays = [pa.Array.from_buffers(_INT64, count, [None, offsets])]
        for span in self._spans:
            begins = buffer.slice(span.offsets + 4 * self._first, 4 * (count + 1))
            values = buffer.slice(span.data, span.size)
            arrays.append(pa.Array.from_buffers(_BINARY, count, [None, begins, values]))
        if present & HAS_TIMESTAMPS:
            times = buffer.slice(self._times_at(), 8 * count)
            arrays.append(pa.Array.from_buffers(_INT64, count, [None, times]))
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[present])

    def clip_bytes(self, bytes_max: int) -> "Batch":
        """Return as many of the first records as have at most `bytes_max` payload bytes, but at least one."""
        ends = sum((self._offsets(span)[1:].astype(np.int64) - int(self._offsets(span)[0])) for span in self._spans)
        count = min(len(self), max(1, int(np.searchsorted(ends, bytes_max, side="right"))))
        return Batch(self._data, self._position, self._header, self._spans, self._first, count)

    def check(self) -> None:
        """Raise `BadBatch` unless the checksum matches."""
        end = self._position + self.stored_bytes
        if crc32c(memoryview(self._data)[self._position + _AFTER_CRC : end]) != self._header.crc:
            raise BadBatch("the checksum does not match")

    def check_columns(self) -> None:
        """Raise `BadBatch` unless offsets rise within each column; only a writer's fault could break that."""
        for span in self._spans:
            offsets = np.frombuffer(self._data, "<i4", self._header.records + 1, span.offsets)
            if offsets[0] != 0 or bool((offsets[1:] < offsets[:-1]).any()):
                raise BadBatch("a column's offsets do not rise")

    def _times_at(self) -> int:
        return self._position + self.stored_bytes - 8 * (self._header.records - self._first)

    def _offsets(self, span: _Span) -> Offsets:
        return np.frombuffer(self._data, "<i4", len(self) + 1, span.offsets + 4 * self._first)

    def _bytes(self, span: _Span) -> list[bytes]:
        data = self._data
        if len(self) == 1:
            begin, end = _PAIR.unpack_from(data, span.offsets + 4 * self._first)
            return [data[span.data + begin : span.data + end]]
        offsets = (self._offsets(span) + np.int64(span.data)).tolist()
        return [data[begin:end] for begin, end in pairwise(offsets)]

    def _optional(self, bit: int) -> list[bytes] | None:
        if not self._header.present & bit:
            return None
        return self._bytes(self._spans[1 if bit == HAS_KEY else -1])


_BINARY = pa.binary()
_INT64 = pa.int64()


_NUMBERS_COUNT = 65_536
_numbered: tuple[int, pa.Buffer] = (0, pa.py_buffer(np.arange(_NUMBERS_COUNT, dtype=np.int64)))


def _numbers(first: int, count: int) -> pa.Buffer:
    """Return `count` consecutive i64 from `first`, cut from a block that neighbouring batches share."""
    global _numbered  # noqa: PLW0603 - a cache of one, replaced whole
    begin, block = _numbered
    if not begin <= first <= first + count <= begin + block.size // 8:
        begin, block = first, pa.py_buffer(np.arange(first, first + max(count, _NUMBERS_COUNT), dtype=np.int64))
        _numbered = (begin, block)
    return block.slice(8 * (first - begin), 8 * count)


def _schema(present: int) -> pa.Schema:
    fields = [("offset", _INT64)]
    fields += [
        (name, _BINARY)
        for bit, name in ((HAS_VALUE, "value"), (HAS_KEY, "key"), (HAS_HEADERS, "headers"))
        if present & bit
    ]
    if present & HAS_TIMESTAMPS:
        fields.append(("timestamp", _INT64))
    return pa.schema(fields)


SCHEMAS = {present: _schema(present) for present in range(COLUMNS_ALL + 1) if present & HAS_VALUE}
