"""Rows on their way into a journal: tasks stage them as Arrow files, the commit takes them up in order.

    <journal>.spark/sink                         what was committed (`sink_state`)
    <journal>.spark/staged/<writer>/<name>.arrow rows of one task: value, key, headers as binary, timestamp in ns

Invariants: a staged file is whole once its task has told its name; two attempts of a task never share a file; what is
staged and not named by an intent may be removed at any time after its commit.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from strandline.errors import RecordTooLarge
from strandline.files import storage_errors
from strandline.journal import JournalConfig
from strandline.spark.errors import invalid_input

PIECE_BYTES_MAX = 64 * 1024 * 1024
"""A commit of at most so many bytes is one atomic batch of the journal."""
_RECORD_BYTES_MAX = JournalConfig().record_bytes_max
_OPTIONAL = ("key", "headers", "timestamp")
_WRITABLE = ("value", *_OPTIONAL)


def home_of(path: str) -> Path:
    """Return the folder beside a journal that the sink keeps its state and its staged rows in."""
    journal = Path(path)
    return journal.with_name(journal.name + ".spark")


def staged_folder(path: str, writer: str) -> Path:
    """Return the folder for what a writer stages."""
    return home_of(path) / "staged" / writer


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


class StagedFile(NamedTuple):
    """Rows of one task; `bytes` are those of values, keys and headers."""

    path: Path
    rows: int
    bytes: int


def stage(folder: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> StagedFile:
    """Write the rows of a task into a file of its own."""
    file = folder / f"{uuid.uuid4().hex}.arrow"
    rows = size = 0
    staged = pa.schema([(name, pa.int64() if name == "timestamp" else pa.binary()) for name in schema.names])
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with ipc.new_file(file, staged) as writer:
            for batch in batches:
                converted = _converted(batch, staged)
                writer.write_batch(converted)
                rows, size = rows + batch.num_rows, size + _payload_bytes(converted)
    return StagedFile(file, rows, size)


def pieces(files: Sequence[Path], *, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield staged rows, but for the first `skip`, in pieces that one append takes: alike in what they lack."""
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


def sync_staged(files: Sequence[Path]) -> None:
    """Make staged files durable, for a commit that may have to be finished after the machine failed."""
    for path in {*files, *(file.parent for file in files)}:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_staged(path: Path) -> None:
    """Remove a staged file, or a folder of them; what cannot be removed only takes space."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def _is_writable(field: pa.Field) -> bool:
    if field.name == "timestamp":
        return bool(pa.types.is_timestamp(field.type))
    return field.type in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def _converted(batch: pa.RecordBatch, staged: pa.Schema) -> pa.RecordBatch:
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


def _payload_bytes(batch: pa.RecordBatch) -> int:
    columns = (batch.column(name) for name in batch.schema.names if name != "timestamp")
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)


def _nanoseconds(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.timestamp("ns", tz=column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise invalid_input("a timestamp is outside of 1677 to 2262", "records have nanoseconds in 64 bits") from error


def _runs(files: Sequence[Path], skip: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield runs of rows that lack the same columns, with a number that stands for which."""
    for file in files:
        with pa.memory_map(str(file)) as source, ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
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
