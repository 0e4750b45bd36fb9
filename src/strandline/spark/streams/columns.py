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
from strandline.kv.nats.bucket_reader import kinds_of
from strandline.kv.nats.messages import TTL, deadline_ns
from strandline.nats.deliveries import Delivered
from strandline.spark.errors import invalid_input
from strandline.spark.logs.columns import MICROSECOND_NS, Columns
from strandline.wire import Times, binary_list, binary_spans, gather, parse_headers

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


def times_for(schema: pa.Schema) -> Times:
    """Return of which messages the columns of `schema` need the times."""
    if "time" in schema.names:
        return Times.ALL
    return Times.OF_HEADERS if "expires" in schema.names else Times.NONE


def project(delivered: Delivered, schema: pa.Schema, skip: int = 0) -> pa.RecordBatch:
    """Return messages with the columns of `schema`; a key is its subject without the first `skip` bytes."""
    arrays = [_column(field, delivered, skip) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def deadlines_of(delivered: Delivered) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return when each value of a bucket expires by a time to live of its own, 0 for never; times are needed."""
    deadlines = np.zeros(len(delivered), np.uint64)
    if delivered.headers is not None and delivered.times_ns is not None:
        rows = np.flatnonzero(_having(delivered.headers, TTL.encode()))
        blocks = binary_list(delivered.headers.take(pa.array(rows)))
        for row, block in zip(rows.tolist(), blocks, strict=True):
            deadlines[row] = deadline_ns(block, int(delivered.times_ns[row]))
    return deadlines


def keys_of(delivered: Delivered, skip: int) -> pa.BinaryArray:
    """Return the subject of each message without its first `skip` bytes."""
    if not skip:
        return delivered.subjects
    data, edges = binary_spans(delivered.subjects)
    return gather(data, edges[:-1] + skip, edges[1:])


def _having(blocks: pa.BinaryArray, text: bytes) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.match_substring(blocks, text).to_numpy(zero_copy_only=False)
    return found


def _column(field: pa.Field, delivered: Delivered, skip: int) -> pa.Array:
    if field.name in ("sequence", "revision"):
        return _numbers(delivered.sequences.view(np.int64), pa.int64())
    if field.name in ("subject", "key"):
        return _text(keys_of(delivered, skip), field.name)
    if field.name == "time":
        assert delivered.times_ns is not None, "times_for asks for them"  # noqa: S101
        return _numbers(delivered.times_ns // MICROSECOND_NS, TIME)
    if field.name == "expires":
        deadlines = deadlines_of(delivered).view(np.int64) // MICROSECOND_NS
        return pa.array(deadlines, TIME, mask=deadlines == 0)
    if field.name == "data":
        return delivered.payloads
    return _headers(delivered, field.type) if field.name == "headers" else _of_kind(delivered, field.name)


def _numbers(values: "np.ndarray[tuple[int], np.dtype[np.int64]]", kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _of_kind(delivered: Delivered, name: str) -> pa.Array:
    kinds = kinds_of(delivered.headers, len(delivered))
    if name == "kind":
        return _KINDS.take(pa.array(kinds))
    payloads = delivered.payloads
    return pc.if_else(pa.array(kinds == PUT), payloads, None) if kinds.any() else payloads


def _text(column: pa.BinaryArray, what: str) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise invalid_input(
            f"a {what} is not UTF-8, and cannot be a string", "leave the column out of the schema"
        ) from error


def _headers(delivered: Delivered, kind: pa.DataType) -> pa.Array:
    if delivered.headers is None:
        return pa.nulls(len(delivered), kind)
    rows: list[list[tuple[str, list[str]]] | None] = []
    for block in binary_list(delivered.headers):
        lists: dict[str, list[str]] = {}
        for name, value in parse_headers(block).pairs if block else ():
            lists.setdefault(name, []).append(value.encode(errors="surrogateescape").decode(errors="replace"))
        rows.append(list(lists.items()) if block else None)
    return pa.array(rows, kind)
