"""Which columns of something Spark may ask for: some of those it has, each once, with their own types.

Invariants: pure. What cannot be read as it was asked for is refused before anything is read, with what could be asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.spark.errors import invalid_input


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns of a kind of thing; `cast` is one that people would rather have as text, `extra` come by name."""

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
