"""A table of a replica as Arrow batches: the columns, their types, and what each task reads.

    affinity        Spark     values that fit
    INTEGER         BIGINT    integers
    REAL            DOUBLE    floats, and integers that a float holds
    TEXT, NUMERIC   STRING    text, and numbers as text; no blobs, nor text that is not Unicode
    BLOB, or none   BINARY    all: text as UTF-8, numbers as text

Invariants: a batch has the very schema that was asked for; an error names the column and the kind of value, never the
value.
"""

import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from strandline.objects import ObjectStore, local_folder, open_objects
from strandline.replica import Layout, LtxFile, find_plan
from strandline.replica.btree import Database
from strandline.replica.pages import ReplicaPages
from strandline.replica.tables import Table, find_table, read_database, read_table, split_table
from strandline.spark.errors import hints_as_notes, invalid_input
from strandline.spark.logs.columns import BATCH_BYTES_MAX
from strandline.spark.logs.options import ROWS_PER_BATCH, At, Given, parse_count, parse_time

OPTIONS = ("replica", "table", "txid", "timestamp", "partitions", "rowsPerBatch")
PAGES_PER_PART = 128
"""How many pages outweigh the cost of a task."""
_TYPES = {
    "INTEGER": pa.int64(),
    "REAL": pa.float64(),
    "TEXT": pa.string(),
    "NUMERIC": pa.string(),
    "BLOB": pa.binary(),
}
SQL_TYPES = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.binary(): "BINARY"}
_KINDS = {int: "an integer", float: "a float", str: "a text", bytes: "a blob"}


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Which table of which replica is read, and at what position: the last one where there is neither of the two."""

    address: str
    table: str
    txid: int | None = None
    at: datetime | None = None
    partitions: int | None = None
    rows_per_batch: int = ROWS_PER_BATCH


class TablePart(NamedTuple):
    """What one task reads: pages of a table, in the files that a restore would apply."""

    plan: tuple[LtxFile, ...]
    pages: bytes
    """The numbers of the pages, 4 bytes each."""


class _Opened(NamedTuple):
    plan: tuple[LtxFile, ...]
    pages: ReplicaPages
    database: Database
    table: Table


def parse_replica_options(options: Mapping[str, str]) -> ReplicaOptions:
    """Return the options of a replica."""
    given = Given(options, OPTIONS, "a replica")
    address, table = given.text("replica"), given.text("table")
    if not address or not table:
        raise invalid_input(
            "a replica is read by table", "give the options replica and table; sqlite_schema lists them"
        )
    txid: int | None = given.take("txid", parse_count, default=None)
    at: At | None = given.take("timestamp", parse_time, default=None)
    if txid is not None and at is not None:
        raise invalid_input("txid and timestamp name two positions", "give one of them")
    moment = None if at is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at.time_ns // 1000)
    rows = given.take("rowsPerBatch", parse_count, default=ROWS_PER_BATCH)
    partitions: int | None = given.take("partitions", parse_count, default=None)
    return ReplicaOptions(address, table, txid, moment, partitions, rows)


def find_schema(options: ReplicaOptions) -> pa.Schema:
    """Return all columns of a table that are stored."""
    with _store(options) as store, _opened(store, options) as opened:
        return schema_of(opened.table)


def schema_of(table: Table, names: Sequence[str] | None = None) -> pa.Schema:
    """Return the columns of a table with the types of their affinities; those that are stored for None."""
    stored = [column.name for column in table.columns if not column.is_virtual]
    chosen = stored if names is None else names
    return pa.schema([pa.field(name, _TYPES[table.column(name).affinity]) for name in chosen])


def check_schema(table: Table, schema: pa.Schema) -> None:
    """Raise `InvalidInput` unless every column is one of the table's, with a type that a value can have."""
    for field in schema:
        table.column(field.name)
        if field.type not in SQL_TYPES:
            raise invalid_input(
                f"column {field.name} cannot be read as {field.type}",
                "read it as BIGINT, DOUBLE, STRING or BINARY, and convert it with CAST",
            )
        if not field.nullable:
            raise invalid_input(f"column {field.name} cannot be declared NOT NULL", "leave NOT NULL out")
    if not len(schema):
        raise invalid_input("no column is named", "name at least one")


def plan_parts(options: ReplicaOptions, schema: pa.Schema, parts_max: int) -> list[TablePart]:
    """Return what the tasks read: the pages of the table at one position, in parts."""
    with _store(options) as store, _opened(store, options) as opened:
        check_schema(opened.table, schema)
        parts = split_table(opened.pages, opened.database, opened.table, parts_max, PAGES_PER_PART)
        return [TablePart(opened.plan, array.array("I", numbers).tobytes()) for numbers in parts]


def read_part(options: ReplicaOptions, part: TablePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part as batches."""
    with _store(options) as store, _opened(store, options, part.plan) as opened:
        numbers = array.array("I", part.pages).tolist()
        yield from _batches(opened, numbers, schema, options.rows_per_batch)


def read_replica(
    address: str,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    txid: int | None = None,
    at: datetime | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Yield a table of a replica as Arrow batches, without Spark, as it was after a transaction, at a time, or last."""
    options = ReplicaOptions(address, table, txid, at, rows_per_batch=rows_per_batch)
    with _store(options) as store, _opened(store, options) as opened:
        schema = schema_of(opened.table, columns)
        check_schema(opened.table, schema)
        numbers = [number for part in split_table(opened.pages, opened.database, opened.table, 1, 1) for number in part]
        yield from _batches(opened, numbers, schema, rows_per_batch)


@contextmanager
def _store(options: ReplicaOptions) -> Iterator[ObjectStore]:
    address = options.address
    folder = local_folder(address)
    if folder is not None and not folder.exists():
        hint = "give the address that `strandline replica run` was given; executors must see the same folder"
        raise invalid_input(f"there is no folder {address}", hint)
    with hints_as_notes(), closing(open_objects(address)) as store:
        yield store


@contextmanager
def _opened(store: ObjectStore, options: ReplicaOptions, plan: tuple[LtxFile, ...] | None = None) -> Iterator[_Opened]:
    if plan is None:
        plan = tuple(find_plan(store, Layout(store).all_files(), txid=options.txid, at=options.at))
    with ReplicaPages(store, plan) as pages:
        database = read_database(pages, pages.header.commit)
        yield _Opened(plan, pages, database, find_table(pages, database, options.table))


def _batches(
    opened: _Opened, numbers: Sequence[int], schema: pa.Schema, rows_per_batch: int
) -> Iterator[pa.RecordBatch]:
    rows, size = list[list[object]](), 0
    varying = [at for at, field in enumerate(schema) if field.type in (pa.string(), pa.binary())]
    for row in read_table(opened.pages, opened.database, opened.table, schema.names, numbers):
        rows.append(row)
        for at in varying:
            value = row[at]
            if isinstance(value, str | bytes):
                size += len(value)
        if len(rows) >= rows_per_batch or size >= BATCH_BYTES_MAX:
            yield _batch(opened.table, rows, schema)
            rows, size = [], 0
    if rows:
        yield _batch(opened.table, rows, schema)


def _batch(table: Table, rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [_array(table, field, values) for field, values in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(table: Table, field: pa.Field, values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, UnicodeError, OverflowError):
        convert = _CONVERSIONS[field.type]
    converted = list[object]()
    for value in values:
        try:
            converted.append(None if value is None else convert(value))
        except (TypeError, UnicodeError) as error:
            raise invalid_input(
                f"column {field.name} of {table.name} has {_KINDS[type(value)]}, which is no {SQL_TYPES[field.type]}",
                f"read it as BINARY, which takes all values: .schema('`{field.name}` BINARY, …')",
            ) from error
    return pa.array(converted, field.type)


def _integer(value: object) -> int:
    if isinstance(value, int):
        return value
    raise TypeError


def _float(value: object) -> float:
    if isinstance(value, float) or (isinstance(value, int) and int(float(value)) == value):
        return float(value)
    raise TypeError


def _text(value: object) -> str:
    if isinstance(value, bytes):
        raise TypeError
    text = value if isinstance(value, str) else repr(value)
    text.encode()  # lone surrogates are no text
    return text


def _binary(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode("utf-8", "surrogateescape")


_CONVERSIONS: dict[pa.DataType, Callable[[object], object]] = {
    pa.int64(): _integer,
    pa.float64(): _float,
    pa.string(): _text,
    pa.binary(): _binary,
}
