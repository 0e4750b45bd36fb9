"""The columns of a journal as Spark sees them, and Arrow batches of exactly those that were asked for.

    offset     bigint, never null
    key        binary, null where the record has none
    value      binary, never null
    headers    binary, null where the record has none
    timestamp  timestamp, never null: the record's own time, or when it was appended where it has none

Invariants: a batch has the very schema that was asked for, which Spark compares by equality; values, keys and headers
are views over the bytes that were read, unless small batches are joined into one.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from strandline.journal import Batch
from strandline.spark.logs.columns import Columns

MICROSECOND_NS = 1000
BATCH_BYTES_MAX = 8 * 1024 * 1024
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
COLUMNS = Columns("a journal", SCHEMA, cast="value")


def project(batch: Batch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records of a batch with the columns of `schema`."""
    whole = batch.to_arrow()
    held = whole.schema.names
    arrays = []
    for field in schema:
        if field.name == "timestamp":
            arrays.append(_times(batch))
        elif field.name in held:
            arrays.append(whole.column(held.index(field.name)))
        else:
            arrays.append(pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _times(batch: Batch) -> pa.Array:
    own = batch.timestamps()
    times = np.full(len(batch), batch.append_ns, np.int64) if own is None else own
    micros = times // MICROSECOND_NS
    return pa.Array.from_buffers(SCHEMA.field("timestamp").type, len(batch), [None, pa.py_buffer(micros)])


def resized(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at most `rows_max`: large ones are cut without a copy, small ones joined."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        count, weight = batch.num_rows, batch.nbytes
        if held and (rows + count > rows_max or size + weight > bytes_max):
            yield _joined(held)
            held, rows, size = [], 0, 0
        if count > rows_max or weight > bytes_max:
            step = max(1, min(rows_max, count * bytes_max // weight))
            yield from (batch.slice(at, step) for at in range(0, count, step))
        else:
            held.append(batch)
            rows, size = rows + count, size + weight
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
