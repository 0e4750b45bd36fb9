"""Many changes of a fold as columns, checked as columns, and what is left of them when the last write per key wins.

Invariants: a `FoldBatch` that was made has columns of one length, of bytes within every limit of every store, so that a
store either takes all of it or fails for a reason of its own. Columns that came as Arrow stay so: one object for each
row is made only for a caller of `keys`, `values`, `versions`, `puts` or `deletes`.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.errors import InvalidInput, RecordTooLarge
from strandline.fold.columns import Column, are_distinct, hash_rows, lengths_of, rows_of_equal_length, version_column
from strandline.fold.records import (
    CURSOR_BYTES_MAX,
    KEY_BYTES_MAX,
    STORED_VERSION_BYTES_MAX,
    STORED_VERSION_LENGTHS,
    VALUE_BYTES_MAX,
    format_records,
    parse_record,
)
from strandline.kv import NO_CURSOR, VERSION_BYTES_MAX, UpdateBatch, UpdateKind, WatchCursor
from strandline.wire import binary_array, binary_list, gather

COLUMN_ROWS_MIN = 128
"""Below this, rows are faster one by one than as columns."""
_IS_VERSION_LENGTH = np.isin(np.arange(256), list(STORED_VERSION_LENGTHS))
PAGE_BYTES = 64 * 1024 * 1024
"""A page of a range is no larger than this, unless it has one row."""


class Puts(NamedTuple):
    """Columns of keys that get a value; versions are stored ones, which may have a deadline behind them."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    versions: Sequence[bytes]


class PutColumns(NamedTuple):
    """The same in Arrow."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    versions: pa.BinaryArray


class Pages(NamedTuple):
    """A range of a fold at one moment: the cursor, and the rows by key; close it unless all are taken."""

    cursor: WatchCursor
    columns: Generator[PutColumns]


class VersionPages(NamedTuple):
    """Keys and stored versions of a whole fold at one moment, in no order, and the cursor of that moment."""

    cursor: WatchCursor
    columns: Generator[tuple[pa.BinaryArray, pa.BinaryArray]]


class Deletes(NamedTuple):
    """Columns of keys that go away."""

    keys: Sequence[bytes]
    versions: Sequence[bytes]


class FoldBatch:
    """Changes in the order they happened: `kinds` holds an `UpdateKind` per row, or is None if all of them are puts.

    Columns are sequences of bytes, or of Arrow, which is faster where there are many rows.
    """

    __slots__ = ("_columns", "_deletes", "_put_columns", "_puts", "kinds")

    def __init__(
        self,
        keys: Column = (),
        values: Column = (),
        versions: Column = (),
        kinds: NDArray[np.uint8] | None = None,
    ) -> None:
        columns = keys, values, versions
        check_columns(columns, kinds)
        self.kinds = kinds
        self._columns = columns
        self._puts: Puts | None = None
        self._put_columns: PutColumns | None = None
        self._deletes = Deletes((), ())
        if len(keys) < COLUMN_ROWS_MIN or not all(isinstance(column, pa.BinaryArray) for column in columns):
            self._puts, self._deletes = _last_rows(_as_list(keys), _as_list(values), _as_list(versions), kinds)
        else:
            self._put_columns, self._deletes = _last_columns(PutColumns(*columns), kinds)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __repr__(self) -> str:
        return f"FoldBatch({len(self)} changes)"

    @property
    def keys(self) -> Sequence[bytes]:
        """Return the keys of all rows."""
        return _as_list(self._columns[0])

    @property
    def values(self) -> Sequence[bytes]:
        """Return the values of all rows."""
        return _as_list(self._columns[1])

    @property
    def versions(self) -> Sequence[bytes]:
        """Return the versions of all rows."""
        return _as_list(self._columns[2])

    @property
    def puts(self) -> Puts:
        """Return the rows that put, where a key has no later row."""
        if self._puts is None:
            assert self._put_columns is not None  # noqa: S101 - one of them is there
            self._puts = Puts(*map(binary_list, self._put_columns))
        return self._puts

    @property
    def put_columns(self) -> PutColumns | None:
        """Return the same rows in Arrow, None where that would not be faster."""
        return self._put_columns

    def records(self, prefix: bytes = b"") -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return the keys that are put, behind a prefix, and what a store keeps for each of them."""
        if self._put_columns is None:
            keys, values, versions = self.puts
            return [prefix + key for key in keys] if prefix else keys, format_records(versions, values)
        return records_of(self._put_columns, prefix)

    @property
    def deletes(self) -> Deletes:
        """Return the rows that delete or purge, where a key has no later row."""
        return self._deletes

    @staticmethod
    def from_updates(updates: UpdateBatch) -> "FoldBatch":
        """Return a bucket's updates as changes of a fold."""
        expires_ns = updates.expires_ns
        if expires_ns is not None:
            expires_ns = np.where(updates.kinds == UpdateKind.PUT, expires_ns, np.uint64(0))
        versions = version_column(updates.versions, expires_ns)
        return FoldBatch(updates.key_column, updates.value_column, versions, updates.kinds)


def records_of(rows: PutColumns, prefix: bytes = b"") -> tuple[list[bytes], list[bytes]]:
    """Return the keys of some rows, behind a prefix, and what a store keeps for each of them."""
    keys, values, versions = rows
    records = pc.binary_join_element_wise(
        rows_of_equal_length(lengths_of(versions).astype("u1")), versions, values, b""
    )
    named = pc.binary_join_element_wise(prefix, keys, b"") if prefix else keys
    return binary_list(named), binary_list(records)


def paged(rows: Iterable[tuple[bytes, bytes]], rows_max: int) -> Iterator[PutColumns]:
    """Yield keys and records in columns of at most so many rows; `ValueError` for bytes that are no record."""
    keys: list[bytes] = []
    records: list[bytes] = []
    size = 0
    for key, record in rows:
        if len(keys) == rows_max or (keys and size + len(record) > PAGE_BYTES):
            yield _as_columns(keys, records)
            keys, records, size = [], [], 0
        keys.append(key)
        records.append(record)
        size += len(record)
    if keys:
        yield _as_columns(keys, records)


def _as_columns(keys: list[bytes], records: list[bytes]) -> PutColumns:
    """Return keys and records as columns; `ValueError` for bytes that are no record."""
    data, lengths = b"".join(records), np.fromiter(map(len, records), np.int64, len(records))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    if lengths.all():
        sizes = np.frombuffer(data, np.uint8)[starts].astype(np.int64)
        if _IS_VERSION_LENGTH[sizes].all() and (lengths > sizes).all():
            values_at = starts + 1 + sizes
            return PutColumns(binary_array(keys), gather(data, values_at, ends), gather(data, starts + 1, values_at))
    for record in records:
        parse_record(record)
    raise AssertionError("a record that is none was parsed")


def check_cursor(cursor: WatchCursor) -> None:
    """Raise `InvalidInput` for what is not a cursor; `NO_CURSOR` is one."""
    if type(cursor) is not bytes or len(cursor) > CURSOR_BYTES_MAX:
        raise InvalidInput(f"a cursor is at most {CURSOR_BYTES_MAX} bytes, not {cursor!r:.80}")


def cursor_or(cursor: WatchCursor, before: WatchCursor) -> WatchCursor:
    """Return the cursor after a batch: `NO_CURSOR` leaves it where it was."""
    return before if cursor == NO_CURSOR else cursor


def _as_list(column: Column) -> Sequence[bytes]:
    return binary_list(column) if isinstance(column, pa.BinaryArray) else column


def check_columns(columns: tuple[Column, Column, Column], kinds: NDArray[np.uint8] | None = None) -> None:
    """Raise `InvalidInput` for columns that no store takes."""
    lengths = {len(column) for column in (*columns, *(() if kinds is None else (kinds,)))}
    if len(lengths) > 1:
        raise InvalidInput(f"columns of one batch have different lengths: {sorted(lengths)}")
    keys, values, versions = columns
    _check_column("key", keys, 1, KEY_BYTES_MAX)
    _check_column("value", values, 0, VALUE_BYTES_MAX)
    _check_column("version", versions, 0, STORED_VERSION_BYTES_MAX)
    lengths_of_versions = lengths_of(versions)
    wrong = (lengths_of_versions > VERSION_BYTES_MAX) & (lengths_of_versions < STORED_VERSION_BYTES_MAX)
    if wrong.any():
        raise RecordTooLarge(int(lengths_of_versions[wrong].max()), VERSION_BYTES_MAX, "version")
    if kinds is not None and len(kinds) and int(kinds.max()) > max(UpdateKind):
        raise InvalidInput(f"there is no update of kind {int(kinds.max())}")


def _check_column(what: str, column: Column, least: int, most: int) -> None:
    if column.null_count if isinstance(column, pa.BinaryArray) else not set(map(type, column)) <= {bytes}:
        raise InvalidInput(f"a {what} is bytes, and nothing else is taken for it")
    if not len(column):
        return
    lengths = lengths_of(column)
    if (longest := int(lengths.max())) > most:
        raise RecordTooLarge(longest, most, what)
    if int(lengths.min()) < least:
        raise InvalidInput(f"a {what} has at least {least} byte")


def _last_rows(
    keys: Sequence[bytes], values: Sequence[bytes], versions: Sequence[bytes], kinds: NDArray[np.uint8] | None
) -> tuple[Puts, Deletes]:
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) < len(keys):
        rows = sorted(last.values())
        keys, values, versions = ([column[row] for row in rows] for column in (keys, values, versions))
        kinds = None if kinds is None else kinds[rows]
    if kinds is None or not kinds.any():
        return Puts(keys, values, versions), Deletes((), ())
    put, gone = (kinds == UpdateKind.PUT).tolist(), (kinds != UpdateKind.PUT).tolist()
    puts = Puts(*(list(compress(column, put)) for column in (keys, values, versions)))
    return puts, Deletes(list(compress(keys, gone)), list(compress(versions, gone)))


def _last_columns(columns: PutColumns, kinds: NDArray[np.uint8] | None) -> tuple[PutColumns, Deletes]:
    if not are_distinct(hash_rows(columns.keys)):
        last = dict(zip(binary_list(columns.keys), range(len(columns.keys)), strict=True))
        if len(last) < len(columns.keys):
            rows = np.sort(np.fromiter(last.values(), np.int64, len(last)))
            columns = PutColumns(*(column.take(pa.array(rows)) for column in columns))
            kinds = None if kinds is None else kinds[rows]
    if kinds is None or not kinds.any():
        return columns, Deletes((), ())
    put, gone = pa.array(kinds == UpdateKind.PUT), pa.array(kinds != UpdateKind.PUT)
    deletes = Deletes(binary_list(columns.keys.filter(gone)), binary_list(columns.versions.filter(gone)))
    return PutColumns(*(column.filter(put) for column in columns)), deletes
