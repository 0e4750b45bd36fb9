"""A fold as Arrow batches: its state at one cursor, read without its lock while a writer may keep it current.

    key       binary, never null
    revision  bigint, null where the version is not a revision
    version   binary, never null, empty where it is unknown
    value     binary, never null

Invariants: all rows are of one moment, by key; a batch has the very schema that was asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from strandline.fold.append_log import AppendLogReader
from strandline.fold.backends import Backend, existing_backend
from strandline.fold.batches import PutColumns
from strandline.fold.columns import tokens_of
from strandline.fold.store import FoldReader
from strandline.spark.errors import invalid_input
from strandline.spark.logs.columns import Columns
from strandline.spark.logs.options import ROWS_PER_BATCH, Given, absolute, parse_count
from strandline.wire import binary_spans

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("revision", pa.int64()),
        pa.field("version", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
OPTIONS = ("fold", "prefix", "rowsPerBatch")
_REVISION_BYTES = 8
COLUMNS = Columns("a fold", SCHEMA, cast="key")


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """The fold, the prefix of its keys, and the rows of a batch."""

    path: str
    prefix: bytes = b""
    rows_per_batch: int = ROWS_PER_BATCH


def parse_fold_options(options: Mapping[str, str]) -> FoldOptions:
    """Return the options of a fold."""
    given = Given(options, OPTIONS, "a fold")
    prefix = (given.text("prefix") or "").encode()
    rows = given.take("rowsPerBatch", parse_count, default=ROWS_PER_BATCH)
    return FoldOptions(absolute(given.text("fold") or ""), prefix, rows)


def open_reader(path: str) -> FoldReader:
    """Open a fold for reading, of the backend that is there; `InvalidInput` if there is none."""
    backend = existing_backend(path) if Path(path).exists() else None
    match backend:
        case Backend.APPEND_LOG:
            return AppendLogReader.open_read_only(path)
        case Backend.SQLITE:
            from strandline.fold.sqlite import SqliteReader  # noqa: PLC0415 - an extra

            return SqliteReader.open_read_only(path)
        case Backend.ROCKSDB:
            from strandline.fold.rocksdb import RocksDbReader  # noqa: PLC0415 - an extra

            return RocksDbReader.open_read_only(path)
        case None:
            raise invalid_input(f"there is no fold at {path}", "it must be readable at the same path on the executors")


def read_fold(
    path: str, columns: Sequence[str] | None = None, *, prefix: bytes = b"", rows_per_batch: int = ROWS_PER_BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a fold as Arrow batches, without Spark, as they are at one moment."""
    yield from read_entries(FoldOptions(path, prefix, rows_per_batch), COLUMNS.chosen(columns))


def read_entries(options: FoldOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a fold with the columns of `schema`."""
    with closing(open_reader(options.path)) as reader:
        _, pages = reader.pages(options.prefix, options.rows_per_batch)
        with closing(pages):
            for page in pages:
                yield pa.RecordBatch.from_arrays([_column(page, field.name) for field in schema], schema=schema)


def _column(page: PutColumns, name: str) -> pa.Array:
    match name:
        case "key":
            return page.keys
        case "value":
            return page.values
        case "version":
            return tokens_of(page.versions)
        case _:
            return revisions_of(tokens_of(page.versions))


def revisions_of(versions: pa.BinaryArray) -> pa.Array:
    """Return the revisions of version tokens, null for a token that is no revision."""
    data, edges = binary_spans(versions)
    lengths = np.diff(edges)
    if (lengths == _REVISION_BYTES).all():
        revisions = np.frombuffer(data[edges[0] : edges[-1]], ">u8").astype(np.int64)
        return pa.array(revisions)
    texts = versions.to_pylist()
    numbers = [int.from_bytes(text, "big") if len(text) == _REVISION_BYTES else None for text in texts]
    return pa.array(numbers, pa.int64())
