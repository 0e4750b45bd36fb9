"""The columns of a journal as Spark sees them, and Arrow batches of exactly those that were asked for.

    offset     bigint, never null
    key        binary, null where the record has none
    value      binary, never null
    headers    binary, null where the record has none
    timestamp  timestamp, never null: the record's own time, or when it was appended where it has none

Invariants: a batch has the very schema that was asked for, which Spark compares by equality; values, keys and headers
are views over the bytes that were read, unless small batches are joined into one.
"""

import numpy as np
import pyarrow as pa

from strandline.journal import Batch
from strandline.spark.logs.columns import MICROSECOND_NS, Columns

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
DDL = "offset BIGINT NOT NULL, key BINARY, value BINARY NOT NULL, headers BINARY, timestamp TIMESTAMP NOT NULL"


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
