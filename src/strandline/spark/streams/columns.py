"""The columns of a stream and of a bucket as Spark sees them, and Arrow batches of exactly those that were asked for.

    stream:  sequence  bigint, never null                   bucket:  key       string, never null
             subject   string, never null                            revision  bigint, never null
             time      timestamp, never null                         kind      string: put, delete or purge
             headers   map of lists, null without headers            value     binary, null unless it is put
             data      binary, never null                            time      timestamp, never null
                                                                     expires   timestamp; only if it is asked for

Invariants: a batch has the very schema that was asked for, which Spark compares by equality; a column that was not
asked for is not made. Subjects and keys that are not UTF-8 are refused, since a string cannot hold them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.kv import UpdateKind
from strandline.kv.nats.messages import (
    KIND_OF_OPERATION,
    KIND_OF_REASON,
    MARKER_REASON,
    OPERATION,
    TTL,
    deadline_ns,
)
from strandline.spark.errors import invalid_input
from strandline.spark.logs.columns import MICROSECOND_NS, Columns
from strandline.wire import FrameBatch, parse_headers
from strandline.wire.acks import AckColumns
from strandline.wire.columns import gather

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
COLUMNS = {
    "stream": Columns(
        "a stream",
        pa.schema(
            [
                pa.field("sequence", pa.int64(), nullable=False),
                pa.field("subject", pa.string(), nullable=False),
                pa.field("time", TIME, nullable=False),
                pa.field("headers", HEADERS),
                pa.field("data", pa.binary(), nullable=False),
            ]
        ),
        cast="data",
    ),
    "bucket": Columns(
        "a bucket",
        pa.schema(
            [
                pa.field("key", pa.string(), nullable=False),
                pa.field("revision", pa.int64(), nullable=False),
                pa.field("kind", pa.string(), nullable=False),
                pa.field("value", pa.binary()),
                pa.field("time", TIME, nullable=False),
            ]
        ),
        cast="value",
        extra=(pa.field("expires", TIME),),
    ),
}
DDL = {
    "stream": (
        "sequence BIGINT NOT NULL, subject STRING NOT NULL, time TIMESTAMP NOT NULL, "
        "headers MAP<STRING, ARRAY<STRING>>, data BINARY NOT NULL"
    ),
    "bucket": (
        "key STRING NOT NULL, revision BIGINT NOT NULL, kind STRING NOT NULL, value BINARY, time TIMESTAMP NOT NULL"
    ),
}
KINDS = ("put", "delete", "purge")
PUT = int(UpdateKind.PUT)
_KINDS = pa.array(KINDS)
_MARKS = tuple(
    (f"\n{header}: {text}\r".encode(), int(kind))
    for header, kinds in ((MARKER_REASON, KIND_OF_REASON), (OPERATION, KIND_OF_OPERATION))
    for text, kind in kinds.items()
)
"""Headers by which a message of a bucket takes its key away; the last that is there counts."""


def project(frames: FrameBatch, acks: AckColumns, schema: pa.Schema, skip: int = 0) -> pa.RecordBatch:
    """Return messages with the columns of `schema`; a key is its subject without the first `skip` bytes."""
    arrays = [_column(field, frames, acks, skip) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def kinds_of(frames: FrameBatch) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """Return the effect of each message of a bucket on its key: `PUT`, `DELETE` or `PURGE`."""
    kinds = np.full(len(frames), PUT, np.uint8)
    marked = np.flatnonzero(frames.with_headers())
    if len(marked):
        blocks = gather(frames.data, frames.column("header_start")[marked], frames.column("payload_start")[marked])
        for text, kind in _MARKS:
            kinds[marked[_having(blocks, text)]] = kind
    return kinds


def deadlines_of(frames: FrameBatch, acks: AckColumns) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return when each value of a bucket expires by a time to live of its own, 0 for never."""
    deadlines = np.zeros(len(frames), np.uint64)
    marked = np.flatnonzero(frames.with_headers())
    if len(marked):
        blocks = gather(frames.data, frames.column("header_start")[marked], frames.column("payload_start")[marked])
        found = _having(blocks, TTL.encode())
        rows, times = marked[found], acks.timestamp_ns.view(np.int64)
        for row, block in zip(rows.tolist(), blocks.filter(pa.array(found)).to_pylist(), strict=True):
            deadlines[row] = deadline_ns(block, int(times[row]))
    return deadlines


def _having(blocks: pa.BinaryArray, text: bytes) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.match_substring(blocks, text).to_numpy(zero_copy_only=False)
    return found


def _column(field: pa.Field, frames: FrameBatch, acks: AckColumns, skip: int) -> pa.Array:
    if field.name in ("sequence", "revision"):
        return pa.array(acks.stream_sequence.view(np.int64))
    if field.name in ("subject", "key"):
        return _text(frames.subject_array(skip), field.name)
    if field.name == "time":
        micros = acks.timestamp_ns.view(np.int64) // MICROSECOND_NS
        return pa.Array.from_buffers(TIME, len(frames), [None, pa.py_buffer(micros)])
    if field.name == "expires":
        deadlines = deadlines_of(frames, acks).view(np.int64) // MICROSECOND_NS
        return pa.array(deadlines, TIME, mask=deadlines == 0)
    if field.name == "data":
        return frames.payload_array()
    return _headers(frames, field.type) if field.name == "headers" else _of_kind(frames, field.name)


def _of_kind(frames: FrameBatch, name: str) -> pa.Array:
    kinds = kinds_of(frames)
    if name == "kind":
        return _KINDS.take(pa.array(kinds))
    payloads = frames.payload_array()
    return pc.if_else(pa.array(kinds == PUT), payloads, None) if kinds.any() else payloads


def _text(column: pa.BinaryArray, what: str) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise invalid_input(
            f"a {what} is not UTF-8, and cannot be a string", "leave the column out of the schema"
        ) from error


def _headers(frames: FrameBatch, kind: pa.DataType) -> pa.Array:
    with_headers = frames.with_headers()
    if not with_headers.any():
        return pa.nulls(len(frames), kind)
    starts, ends = frames.column("header_start").tolist(), frames.column("payload_start").tolist()
    rows: list[list[tuple[str, list[str]]] | None] = []
    for start, end in zip(starts, ends, strict=True):
        lists: dict[str, list[str]] = {}
        for name, value in parse_headers(frames.data[start:end]).pairs:
            lists.setdefault(name, []).append(value.encode(errors="surrogateescape").decode(errors="replace"))
        rows.append(list(lists.items()) if end > start else None)
    return pa.array(rows, kind)
