"""The interface of sources: a source lists items in a fixed order, a reader returns their bytes.

Invariants: a source is a value that pickles, so that a listing made in one process is read in another; unreadable
items are in the listing, with their problem; excluded items are counted (`left_out`). The version of a `Content` is
the version of the bytes that were read, whatever the listing said.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from strandline.detect.locations import FILE, GIT, IMAGE, JOURNAL, TABLE, Location, location_of
from strandline.detect.results import Found
from strandline.pipeline.identity import ConnectorInstanceId
from strandline.protocol.canonical import Plain

LISTING = pa.schema(
    [
        pa.field("locator", pa.binary(), nullable=False),
        ("version", pa.binary()),
        ("size", pa.int64()),
        ("stat", pa.binary()),
        ("extra", pa.binary()),
        ("problem", pa.string()),
    ]
)
"""One row for an item. `version` is null if only reading gives it, unless the stat cache knows it by `stat`; `extra` is
data for the reader beside the locator; with a `problem` (one of `Problem`) the item is never read, and its version
is weak."""

BATCH_ROWS = 10_000
SIZE_MAX = 256 * 1024 * 1024
ADDRESS_MAX = 2**31 - 1
"""Parts have addresses below 2^31, so that an address and a place in the part make one signed number of 64 bits."""

Row: TypeAlias = tuple[bytes, bytes | None, int | None, bytes | None, bytes | None, str | None]
Tell: TypeAlias = Callable[[int], None]
"""A callback with the number of items listed so far."""

_LEFT_OUT = b"strandline.left_out"
_LOCATION_WORDS = {"fs": FILE, "stdin": FILE, "sqlite": TABLE, "git": GIT, "table": TABLE, "journal": JOURNAL}
_LOCATION_WORDS |= {"confluen": "confluence"}  # a tag has eight bytes


class Part(NamedTuple):
    """Bytes that are scanned as one: a whole file or blob, a cell, a record.

    `path` is the path for rules; a name that is not UTF-8 has surrogate escapes. `address` is unique within the item
    and at most `ADDRESS_MAX`. `lost` counts data that is gone for good: a gap in the item's coverage. `offset`,
    `lines_before` and `columns_before` (in its first line) place a piece of one long text; pieces may overlap.
    """

    data: bytes
    path: str
    address: int = 0
    commit: str = ""
    row: str = ""
    field: str = ""
    lost: int = 0
    offset: int = 0
    lines_before: int = 0
    columns_before: int = 0

    def __repr__(self) -> str:
        return f"Part({len(self.data)} bytes of {self.path!r} at {self.address})"


class Content(NamedTuple):
    """The content of an item: `parts` can be iterated once, and iterating may raise `ItemProblem`.

    Parts come one by one, so that an item need not fit into memory. `stat` is the stat data that vouch for the version,
    or None (`stat_cache`).
    """

    version: bytes
    parts: Iterable[Part]
    size: int
    stat: bytes | None = None


class ItemReader(Protocol):
    """Reads items, in one process and one thread."""

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        """Return an item's content, or raise `ItemSkipped` or `ItemFailed`."""
        ...


@runtime_checkable
class ExpectingReader(Protocol):
    """A reader over a network, which begins to fetch what will be read next."""

    def expect(self, items: Iterable[tuple[bytes, int | None]]) -> None:
        """Hear the locators of the next items and their listed sizes, in their order; reading others is allowed."""
        ...


class Source(Protocol):
    """Something to scan. It pickles, and equal sources list the same items."""

    @property
    def tag(self) -> str:
        """The kind of source, in at most eight bytes."""
        ...

    @property
    def instance(self) -> ConnectorInstanceId:
        """The instance of its kind: part of every item's identity."""
        ...

    @property
    def name(self) -> str:
        """The name for messages and reports."""
        ...

    @property
    def is_part(self) -> bool:
        """Whether the source lists only some items of the instance, so that others may exist."""
        ...

    def plain(self) -> Plain:
        """Return the settings that decide the listing, as plain values that describe a run."""
        ...

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield batches of `LISTING`, in a fixed order, each item once; an error of the source ends it."""
        ...

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader, open within the context."""
        ...

    def display(self, locator: bytes, extra: bytes | None) -> str:
        """Return an item's path, as rules see it and `scan.locations` takes it.

        Where that is always the locator, the source says so (`displays_locator`), and is not asked item by item.
        """
        ...


def location(source: Source, part: Part, found: Found) -> Location:
    """Return the location of a finding in a part; commits that have it stand beside it, in the inventory.

    Of an image the layer is part of the place: it is the version, and a file that a later layer hides is in no other.
    """
    word = _LOCATION_WORDS.get(source.tag, source.tag)
    layer = part.commit if word == IMAGE else ""
    where = location_of(word, found, commit=layer, row=part.row, field=part.field)
    is_member = any(":" in step for step in found.via)  # its lines are its own; those of encoded text are the part's
    if part.offset and where.line and not is_member:
        columns = part.columns_before if where.line == 1 else 0
        where = replace(where, line=where.line + part.lines_before, column=where.column + columns)
    return where


def path_text(path: bytes) -> str:
    """Return a path's bytes as text, with escapes for what is not UTF-8; `path.encode(errors=…)` gives them back."""
    return path.decode(errors="surrogateescape")


def batches(
    rows: Iterable[Row] | Iterable[list[Row]], tell: Tell, left_out: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Yield rows, which come one by one or some at a time, as batches.

    The last batch, which may have no rows, carries the counts of excluded items.
    """
    listed = 0
    batch: list[Row] = []
    for more in rows:
        if isinstance(more, list):
            batch += more
        else:
            batch.append(more)
        while len(batch) >= BATCH_ROWS:
            listed += BATCH_ROWS
            yield _batch(batch[:BATCH_ROWS])
            tell(listed)
            batch = batch[BATCH_ROWS:]
    counts = {_LEFT_OUT: json.dumps(dict(sorted(left_out.items())))}
    yield _batch(batch).replace_schema_metadata(counts)
    tell(listed + len(batch))


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(LISTING)
    return pa.record_batch([_array(cells, kind) for cells, kind in zip(columns, LISTING.types, strict=True)], LISTING)


def _array(cells: tuple[object, ...], kind: pa.DataType) -> pa.Array:
    is_empty = bool(cells) and cells[0] is None and cells.count(None) == len(cells)
    return pa.nulls(len(cells), kind) if is_empty else pa.array(cells, kind)


def left_out(batch: pa.RecordBatch) -> dict[str, int]:
    """Return the numbers of excluded items by reason; only the last batch of a listing has them."""
    found = (batch.schema.metadata or {}).get(_LEFT_OUT)
    counts: dict[str, int] = {} if found is None else json.loads(found)
    return counts
