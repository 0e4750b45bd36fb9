"""Rows as records of a journal: which columns they may have, how they are staged, and the pieces that one append takes.

    value, key, headers   binary
    timestamp             int64, nanoseconds since 1970

Invariants: pure but for reading staged files; a row that no journal takes is refused before it is staged.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import RecordTooLarge
from strandline.journal import JournalConfig
from strandline.spark.errors import invalid_input
from strandline.spark.sink.staging import read_staged

PIECE_BYTES_MAX = 64 * 1024 * 1024
"""A commit of at most so many bytes is one atomic batch of the journal."""
_RECORD_BYTES_MAX = JournalConfig().record_bytes_max
_OPTIONAL = ("key", "headers", "timestamp")
_WRITABLE = ("value", *_OPTIONAL)


def check_writable(schema: pa.Schema) -> None:
    """Raise `InvalidInput` unless rows of the schema can be records."""
    unknown = [name for name in schema.names if name not in _WRITABLE]
    if unknown or len(set(schema.names)) != len(schema.names):
        raise invalid_input(
            f"rows have {', '.join(schema.names)}, and a record has value, key, headers and timestamp",
            "select those; the journal gives offsets itself",
        )
    if "value" not in schema.names:
        raise invalid_input("rows have no column value", "name it: .selectExpr('to_json(struct(*)) AS value')")
    for field in schema:
        if not _is_writable(field):
            raise invalid_input(
                f"column {field.name} cannot be {field.type}",
                "value, key and headers are binary or string, timestamp is a timestamp",
            )


def staged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of staged files for rows of a schema."""
    return pa.schema([(name, pa.int64() if name == "timestamp" else pa.binary()) for name in schema.names])


def records_of(batch: pa.RecordBatch, staged: pa.Schema) -> pa.RecordBatch:
    """Return rows as records of the schema of staged files."""
    arrays = []
    for field in staged:
        column = batch.column(field.name)
        if field.name == "timestamp":
            arrays.append(_nanoseconds(column))
            continue
        if field.name == "value" and column.null_count:
            raise invalid_input("a record needs a value, and some rows have none", "filter them out, or give them one")
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if longest > _RECORD_BYTES_MAX:
            raise RecordTooLarge(longest, _RECORD_BYTES_MAX)
        arrays.append(column.cast(pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, schema=staged)


def pieces(files: Sequence[Path], *, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield staged rows, but for the first `skip`, in pieces for one append each: their rows lack the same columns."""
    held: list[pa.RecordBatch] = []
    pattern, size = -1, 0
    for run, run_pattern in _runs(files, skip):
        if held and (run_pattern != pattern or size + run.nbytes > PIECE_BYTES_MAX):
            yield pa.concat_batches(held)
            held, size = [], 0
        held.append(run)
        pattern, size = run_pattern, size + run.nbytes
    if held:
        yield pa.concat_batches(held)


def _is_writable(field: pa.Field) -> bool:
    if field.name == "timestamp":
        return bool(pa.types.is_timestamp(field.type))
    return field.type in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def _nanoseconds(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.timestamp("ns", tz=column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise invalid_input("a timestamp is outside of 1677 to 2262", "records have nanoseconds in 64 bits") from error


def _runs(files: Sequence[Path], skip: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield runs of rows that lack the same columns, with a number that stands for which."""
    for batch in read_staged(files):
        skipped = min(skip, batch.num_rows)
        skip -= skipped
        yield from _alike(batch.slice(skipped))


def _alike(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    if not batch.num_rows:
        return
    lacking = np.zeros(batch.num_rows, np.int8)
    for bit, name in enumerate(_OPTIONAL):
        if name in batch.schema.names and batch.column(name).null_count:
            lacking |= batch.column(name).is_null().to_numpy(zero_copy_only=False).astype(np.int8) << bit
    bounds = [0, *(np.flatnonzero(np.diff(lacking)) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(bounds):
        yield batch.slice(begin, end - begin), int(lacking[begin])
