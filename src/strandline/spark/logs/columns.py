"""The columns that Spark may ask a source for, and batches of a size that suits Spark.

Invariants: pure. Columns are asked for once each, with their own types; a schema that cannot be read is refused before
anything is read, with the columns that can be.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.spark.errors import invalid_input

MICROSECOND_NS = 1000
BATCH_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns of a kind of thing; `cast` is one that users convert to text, `extra` are read only by name."""

    what: str
    whole: pa.Schema
    cast: str
    extra: tuple[pa.Field, ...] = ()

    def chosen(self, names: Sequence[str] | None) -> pa.Schema:
        """Return the schema of some of the columns, in the order given; all of them for None."""
        if names is None:
            return self.whole
        fields = {field.name: field for field in (*self.whole, *self.extra)}
        has = f"it has {', '.join(fields)}"
        unknown = [name for name in names if name not in fields]
        if unknown:
            raise invalid_input(f"{self.what} has no column {', '.join(unknown)}", has)
        if not names or len(set(names)) != len(names):
            raise invalid_input("columns are named once each, and at least one", has)
        return pa.schema([fields[name] for name in names])

    def check(self, schema: pa.Schema) -> None:
        """Raise `InvalidInput` unless a schema that the user gave names columns with their types."""
        for field, ours in zip(schema, self.chosen(schema.names), strict=True):
            if field.type != ours.type:
                raise invalid_input(
                    f"column {field.name} is {ours.type} and cannot be read as {field.type}",
                    f"read it as it is and convert it with CAST, as in CAST({self.cast} AS STRING)",
                )
            if ours.nullable and not field.nullable:
                raise invalid_input(
                    f"column {field.name} may be null and cannot be declared NOT NULL", "leave NOT NULL out"
                )


def resized(
    batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
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
