"""A DataFrame as a source of items: a row is an item, named by its key.

    locator     the values of the key columns as text, joined by NUL
    version     the value of the version column, or BLAKE3 of the cells that are scanned

Invariants: the name of the table and the key name an item, so that a table keeps its findings however it is read; a row
is listed and read by Spark alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from blake3 import blake3

from strandline.errors import InvalidInput
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources import ItemReader, Part, Tell
from strandline.scan.sources.cells import Leaf, cells, leaves

_KEY_TEXT_MAX = 64


@dataclass(frozen=True)
class FrameSource:
    """The columns of a table that name its rows, tell their versions, and are scanned."""

    name: str
    instance: ConnectorInstanceId
    key: tuple[str, ...]
    version: str | None
    columns: tuple[str, ...] | None

    tag = "table"
    is_part = False

    @classmethod
    def named(
        cls, name: str, *, key: str | Sequence[str], version: str | None = None, columns: Sequence[str] | None = None
    ) -> Self:
        """Return a table of a name, which has to be the same for every scan of it."""
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not name or not keys:
            raise InvalidInput("a table needs a name and a key", hint='scan_table(…, name="orders", key="id")')
        chosen = None if columns is None else tuple(columns)
        return cls(name, connector_instance_id(b"frame\0" + name.encode()), keys, version, chosen)

    def plain(self) -> Plain:
        """Return what decides the items and their parts."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "key": list(self.key),
            "version": self.version,
            "columns": None if self.columns is None else list(self.columns),
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark lists
        """Refuse: Spark lists the rows."""
        raise InvalidInput("a DataFrame is scanned by scan_table", hint="strandline.spark.scan_table")

    def open(self) -> AbstractContextManager[ItemReader]:
        """Refuse: Spark reads the rows."""
        raise InvalidInput("a DataFrame is scanned by scan_table", hint="strandline.spark.scan_table")

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the key is enough
        """Return the table and the row's key."""
        return f"{self.name}#{row_text(locator)}"

    def read_columns(self) -> list[str]:
        """Return the columns that are read; nothing for all."""
        if self.columns is None:
            return []
        versions = [] if self.version is None else [self.version]
        return list(dict.fromkeys([*self.key, *versions, *(name.split(".")[0] for name in self.columns)]))

    def check(self, names: Sequence[str]) -> None:
        """Refuse columns that the DataFrame does not have."""
        wanted = self.read_columns() or [*self.key, *([] if self.version is None else [self.version])]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InvalidInput(f"there is no column {', '.join(missing)}", hint=f"there are {', '.join(names)}")

    def leaves(self, schema: pa.Schema) -> list[Leaf]:
        """Return the columns with text or bytes that are scanned; the key is not among them by default."""
        found = leaves(schema)
        if self.columns is None:
            return [leaf for leaf in found if leaf.column not in self.key]
        return [leaf for leaf in found if leaf.name in self.columns or leaf.column in self.columns]

    def locators(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the locators of the rows of a batch; a row without a key is refused."""
        columns = [batch.column(name).to_pylist() for name in self.key]
        found = []
        for cells_of_key in zip(*columns, strict=True):
            if any(cell is None for cell in cells_of_key):
                raise InvalidInput(f"a row of {self.name} has no {', '.join(self.key)}", hint="leave such rows out")
            found.append(b"\0".join(_key_bytes(cell) for cell in cells_of_key))
        return found

    def parts(self, batch: pa.RecordBatch) -> list[list[Part]]:
        """Return the cells of each row."""
        rows: list[list[Part]] = [[] for _ in range(batch.num_rows)]
        names = [row_text(locator) for locator in self.locators(batch)]
        for address, leaf in enumerate(self.leaves(batch.schema)):
            for number, cell in enumerate(cells(batch.column(leaf.column), leaf.path)):
                if cell:
                    rows[number].append(Part(cell, self.name, address, row=names[number], field=leaf.name))
        return rows

    def versions(self, batch: pa.RecordBatch, rows: Sequence[Sequence[Part]]) -> list[bytes]:
        """Return the versions of the rows of a batch."""
        if self.version is not None:
            told = batch.column(self.version).to_pylist()
            return [
                _digest(row) if value is None else b"value:" + _key_bytes(value)
                for value, row in zip(told, rows, strict=True)
            ]
        return [_digest(row) for row in rows]


def row_text(locator: bytes) -> str:
    """Return the key of a row as a place has it; a long one is shown by its digest, since it may be a secret."""
    text = locator.decode(errors="surrogateescape").replace("\0", ",")
    return text if len(text) <= _KEY_TEXT_MAX else f"blake3:{blake3(locator).hexdigest(8)}"


def _key_bytes(value: Any) -> bytes:  # noqa: ANN401 - any value of a column
    return bytes(value) if isinstance(value, bytes | bytearray) else str(value).encode(errors="surrogateescape")


def _digest(row: Sequence[Part]) -> bytes:
    hasher = blake3()
    for part in row:
        hasher.update(f"{part.field}\0{len(part.data)}\0".encode())
        hasher.update(part.data)
    return b"blake3:" + hasher.digest()
