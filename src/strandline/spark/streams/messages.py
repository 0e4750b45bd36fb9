"""Rows as messages of a stream: which columns they may have, and how they are staged.

    subject  binary   the subject of the message; of a bucket, `$KV.<bucket>.<key>`
    head     binary   lines of its header block, each with its end, without the line of the row's id; often empty
    data     binary

Invariants: pure; a row that no server takes (a subject with blanks, a header with a line break) is refused before it is
staged.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidInput
from strandline.kv.keys import validate_key
from strandline.spark.errors import invalid_input
from strandline.spark.streams.columns import KINDS
from strandline.spark.streams.options import PublishOptions
from strandline.wire import format_headers, validate_subject

STAGED = pa.schema([("subject", pa.binary()), ("head", pa.binary()), ("data", pa.binary())])
_BYTES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_TEXT = (pa.string(), pa.large_string())
_HEADS = {
    "put": b"",
    "delete": b"KV-Operation: DEL\r\n",
    "purge": b"KV-Operation: PURGE\r\nNats-Rollup: sub\r\n",
}
_RESERVED = ("nats-msg-id", "nats-expected-", "nats-batch-", "nats-rollup", "kv-operation")


def check_writable(options: PublishOptions, schema: pa.Schema) -> None:
    """Raise `InvalidInput` unless rows of the schema can be messages."""
    if options.target.kind == "stream":
        needed = ["data"] if options.subject is not None else ["subject", "data"]
        others = ["subject", "headers"]
        hint = "name them, as in .selectExpr('to_json(struct(*)) AS data'); one subject for all is option subject"
    else:
        needed, others = ["key", "value"], ["kind"]
        hint = "name them: .selectExpr('CAST(id AS STRING) AS key', 'to_json(struct(*)) AS value')"
    unknown = [name for name in schema.names if name not in {*needed, *others}]
    if unknown or len(set(schema.names)) != len(schema.names) or not set(needed) <= set(schema.names):
        raise invalid_input(
            f"rows have {', '.join(schema.names)}, and a message of a {options.target.kind} has "
            f"{' and '.join(needed)}, and perhaps {' and '.join(name for name in others if name not in needed)}",
            hint,
        )
    for field in schema:
        if not _is_writable(field):
            raise invalid_input(
                f"column {field.name} cannot be {field.type}",
                "subject, key and kind are strings, data and value binary or string, headers a map of strings",
            )


def messages_of(options: PublishOptions, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as messages."""
    columns = (_stream_columns if options.target.kind == "stream" else _bucket_columns)(options, batch)
    return pa.RecordBatch.from_arrays(columns, schema=STAGED)


def _stream_columns(options: PublishOptions, batch: pa.RecordBatch) -> list[pa.Array]:
    names = batch.schema.names
    if "subject" in names:
        subjects = batch.column("subject").cast(pa.string())
        if subjects.null_count and options.subject is not None:
            subjects = subjects.fill_null(options.subject)
    else:
        subjects = pa.repeat(pa.scalar(options.subject), batch.num_rows)
    _check_each("subject", subjects, validate_subject)
    heads = [_head(row) for row in batch.column("headers").to_pylist()] if "headers" in names else None
    return [subjects.cast(pa.binary()), _heads(heads, batch.num_rows), _filled(batch, "data")]


def _bucket_columns(options: PublishOptions, batch: pa.RecordBatch) -> list[pa.Array]:
    keys = batch.column("key").cast(pa.string())
    _check_each("key", keys, validate_key)
    values = batch.column("value").cast(pa.binary())
    kinds = batch.column("kind").to_pylist() if "kind" in batch.schema.names else None
    subjects = pc.binary_join_element_wise(f"$KV.{options.target.name}.", keys, "").cast(pa.binary())
    if kinds is None:
        if values.null_count:
            raise invalid_input(
                "a value of a bucket cannot be null",
                "filter them out, or say what each row does in a column kind: put, delete or purge",
            )
        return [subjects, _heads(None, batch.num_rows), values]
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise invalid_input(f"a kind cannot be {unknown.pop()!r}", f"it is one of {', '.join(KINDS)}")
    put = pc.equal(batch.column("kind").cast(pa.string()), "put")
    if pc.any(pc.and_(put, values.is_null())).as_py():
        raise invalid_input("a put needs a value, which may be empty", "give such rows the kind delete")
    values = pc.if_else(put, values, pa.scalar(b"", pa.binary()))
    return [subjects, pa.array([_HEADS[kind] for kind in kinds], pa.binary()), values]


def _check_each(what: str, column: pa.Array, check: Any) -> None:  # noqa: ANN401 - a function of text
    if column.null_count:
        raise invalid_input(f"some rows have no {what}", "filter them out, or give them one")
    for text in column.unique().to_pylist():
        try:
            check(text)
        except InvalidInput as error:
            raise invalid_input(str(error), error.hint or f"correct the column {what}") from None


def _head(headers: list[tuple[str, Any]] | None) -> bytes:
    """Return the lines of a header block between its first line and its end."""
    pairs = [
        (name, value)
        for name, values in headers or ()
        for value in (values if isinstance(values, list) else [values])
        if value is not None
    ]
    for name, _ in pairs:
        if name.lower().startswith(_RESERVED):
            raise invalid_input(f"header {name} is the sink's own", "leave it out")
    return format_headers(pairs).partition(b"\r\n")[2].removesuffix(b"\r\n") if pairs else b""


def _heads(heads: list[bytes] | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(b"", pa.binary()), count) if heads is None else pa.array(heads, pa.binary())


def _filled(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if column.null_count:
        raise invalid_input(f"a message needs {name}, and some rows have none", "filter them out, or give them one")
    return column.cast(pa.binary())


def _is_writable(field: pa.Field) -> bool:
    match field.name:
        case "data" | "value":
            return field.type in _BYTES
        case "headers":
            inner = field.type.item_type if pa.types.is_map(field.type) else None
            values = inner.value_type if inner is not None and pa.types.is_list(inner) else inner
            return inner is not None and field.type.key_type in _TEXT and values in _TEXT
        case _:
            return field.type in _TEXT
