"""Rows by source and locator, in chunks that are loaded when they are needed.

Two listings of one source have the same order, so a lookup starts at the end of the last one. Only if that
fails, an index is built: twelve bytes a row, for locators of any length.

Invariants: of several rows of one item the last counts; a row is returned only for its exact source and locator: hashes
only find candidates. A chunk that is gone has no rows, so that its items are unknown. No column is ever longer
than a chunk or a batch.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ids: TypeAlias = npt.NDArray[np.int64]
LOADED_ROWS_MAX = 100_000
_SOURCE_FACTOR = np.int64(0x5851F42D4C957F2D)
_ABSENT = -1
_ROWS_MAX = 2**32


class Chunk(NamedTuple):
    """A number of rows that `load` returns, or None if they are gone."""

    rows: int
    load: Callable[[], pa.Table | None]

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Return a table as a chunk."""
        return cls(len(table), lambda: table)


class RowIndex:
    """Rows of chunks with the columns of a schema, `source` and `locator` among them; `is_unique` if no row repeats."""

    def __init__(self, schema: pa.Schema, chunks: Sequence[Chunk], *, is_unique: bool = False) -> None:
        self._schema = schema
        self._chunks = [chunk for chunk in chunks if chunk.rows]
        self._starts: Ids = np.cumsum([0, *(chunk.rows for chunk in self._chunks)], dtype=np.int64)
        self._is_unique = is_unique
        self._next = 0
        self._loaded: OrderedDict[int, pa.Table] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._starts[-1])

    def rows(self, number: int, locators: pa.Array) -> pa.Table:
        """Return the rows of items of a source; all null for an item without a row."""
        if self._is_unique and self._next + len(locators) <= len(self):
            here = self._taken(np.arange(self._next, self._next + len(locators)))
            if bool(_are_rows_of(here, number, locators).all()):
                self._next += len(locators)
                return here
        ids = self._find(number, locators)
        found = self._taken(ids)
        right = _are_rows_of(found, number, locators)
        if not bool((right | (ids == _ABSENT)).all()):
            ids = np.where(right, ids, _ABSENT)
            found = self._taken(ids)
        self._next = max(self._next, int(ids.max(initial=_ABSENT)) + 1)
        return found

    def has(self, number: int, locators: pa.Array) -> pa.Array:
        """Return which items of a source have a row."""
        return pc.is_valid(self.rows(number, locators)["locator"]).combine_chunks()

    def _find(self, number: int, locators: pa.Array) -> Ids:
        hashes, order = self._index
        asked = _hashes(np.full(len(locators), number, np.int64), locators)
        at = np.searchsorted(hashes, asked, side="right") - 1
        is_hit = (at >= 0) & (hashes[np.maximum(at, 0)] == asked) if len(hashes) else np.zeros(len(asked), np.bool_)
        ids: Ids = np.full(len(asked), _ABSENT, np.int64)
        ids[is_hit] = order[at[is_hit]]
        return ids

    @cached_property
    def _index(self) -> tuple[Ids, npt.NDArray[np.uint32]]:
        """Return the sorted hashes of all rows, and the row of each; equal hashes are in the order of rows."""
        if len(self) >= _ROWS_MAX:
            raise AssertionError("a listing has fewer rows than 2^32")
        hashes: Ids = np.empty(len(self), np.int64)
        for number, start in enumerate(self._starts[:-1]):
            table = self._load(number)
            hashes[start : start + len(table)] = _hashes(
                table["source"].fill_null(_ABSENT).to_numpy().astype(np.int64), table["locator"]
            )
        order = np.argsort(hashes, kind="stable").astype(np.uint32)
        return hashes[order], order

    def _taken(self, ids: Ids) -> pa.Table:
        """Return the rows of some ids, in their order."""
        chunks = np.searchsorted(self._starts, ids, side="right") - 1
        chunks[ids == _ABSENT] = _ABSENT
        pieces = [self._schema.empty_table()]
        places: Ids = np.full(len(ids), _ABSENT, np.int64)
        count = 0
        for number in np.unique(chunks[chunks != _ABSENT]):
            at = np.flatnonzero(chunks == number)
            pieces.append(self._load(int(number)).take(pa.array(ids[at] - self._starts[number])))
            places[at] = np.arange(count, count + len(at))
            count += len(at)
        together = pa.concat_tables(pieces).combine_chunks()
        return together.take(pa.array(places, mask=places == _ABSENT))

    def _load(self, number: int) -> pa.Table:
        if number not in self._loaded:
            rows, load = self._chunks[number]
            table = load()
            if table is None or len(table) != rows:
                table = pa.table([pa.nulls(rows, kind) for kind in self._schema.types], schema=self._schema)
            while self._loaded and sum(map(len, self._loaded.values())) + rows > LOADED_ROWS_MAX:
                self._loaded.popitem(last=False)
            self._loaded[number] = table
        self._loaded.move_to_end(number)
        return self._loaded[number]


def _are_rows_of(rows: pa.Table, number: int, locators: pa.Array) -> npt.NDArray[np.bool_]:
    """Return the rows that match the requested items."""
    same = pc.and_(pc.equal(rows["locator"], locators), pc.equal(rows["source"], number))
    right: npt.NDArray[np.bool_] = pc.fill_null(same, fill_value=False).to_numpy()
    return right


def _hashes(numbers: Ids, locators: pa.Array | pa.ChunkedArray) -> Ids:
    found: Ids = np.fromiter(map(hash, locators.to_pylist()), np.int64, len(locators))
    with np.errstate(over="ignore"):
        return found ^ (numbers * _SOURCE_FACTOR)
