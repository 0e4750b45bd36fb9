"""Staged rows: tasks write them as Arrow files, and the commit reads them in the order of the partitions.

Invariants: a staged file is whole once its task has returned its name; two attempts of a task never share a file; a
staged file that no intent names may be removed at any time after its commit.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from strandline.files import storage_errors


class StagedFile(NamedTuple):
    """Rows of one task; `bytes` are those of its binary columns."""

    path: Path
    rows: int
    bytes: int


def stage(
    folder: Path,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    convert: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch],
) -> StagedFile:
    """Write the rows of a task, converted to `schema`, into a file of its own."""
    file = folder / f"{uuid.uuid4().hex}.arrow"
    rows = size = 0
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with ipc.new_file(file, schema) as writer:
            for batch in batches:
                converted = convert(batch, schema)
                writer.write_batch(converted)
                rows, size = rows + batch.num_rows, size + _payload_bytes(converted)
    return StagedFile(file, rows, size)


def read_staged(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield staged rows, in the order of the files."""
    for file in files:
        with pa.memory_map(str(file)) as source, ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def sync_staged(files: Sequence[Path]) -> None:
    """Make staged files durable, for a commit that may have to be finished after the machine failed."""
    for path in {*files, *(file.parent for file in files)}:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_staged(path: Path) -> None:
    """Remove a staged file or a folder of them; a file that cannot be removed only takes space."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def _payload_bytes(batch: pa.RecordBatch) -> int:
    columns = (column for column in batch.columns if pa.types.is_binary(column.type))
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
