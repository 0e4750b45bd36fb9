"""One untrusted Parquet file: its row groups, their versions, and their cells.

Invariants: an open file stays the same file if its name changes; a complete read of cells detects a change meanwhile;
an error of the library is `BROKEN_TABLE`, and an error of the operating system keeps its kind.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa
from blake3 import blake3

from strandline.lazy_imports import deferred
from strandline.protocol.canonical import canonical_value
from strandline.scan.sources.cells import Leaf, cells, is_nested, leaves
from strandline.scan.sources.errors import Problem, problem_of, stat_version
from strandline.scan.sources.files import OPEN_FLAGS
from strandline.scan.sources.source import Part
from strandline.scan.sources.stat_cache import format_stat

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:  # most scans read no table
    pq = deferred("pyarrow.parquet")

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 65_536
_NESTED_ROWS = 1_024
_PLAIN_KEY = re.compile(r"[A-Za-z]{0,12}[-_:./# ]?[0-9]{1,18}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""Keys that may be shown: a number with a word before it, or a UUID."""


class Choice(NamedTuple):
    """The scanned part of a table: columns (None: all with text), and the column that names a row."""

    columns: tuple[str, ...] | None = None
    key: str | None = None


class Group(NamedTuple):
    """A row group: its number of rows, its first row in the file, and the bytes of its chosen columns."""

    number: int
    rows: int
    first_row: int
    size: int


class TableFile:
    """An open Parquet file with a choice of columns."""

    def __init__(self, path: bytes, choice: Choice) -> None:
        """Open a file and read its footer; raises `ItemProblem`."""
        self.choice = choice
        self.looked_at_ns = time.time_ns()
        with _problems(None):
            self._file = os.fdopen(os.open(path, OPEN_FLAGS), "rb", buffering=0)
        try:
            found = os.fstat(self._file.fileno())
            self.stat = format_stat(found)
            self._check_kind(found.st_mode)
            with _problems(self.stat):
                self._read_footer(found.st_size)
        except BaseException:
            self._file.close()
            raise

    def _check_kind(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            raise Problem.NOT_A_FILE.error(stat_version(self.stat))

    def _read_footer(self, size: int) -> None:
        self._table = pq.ParquetFile(pa.PythonFile(self._file, "r"), buffer_size=_BUFFER_BYTES)
        self.metadata = self._table.metadata
        self.schema: pa.Schema = self._table.schema_arrow
        self.leaves = leaves(self.schema)
        length = int.from_bytes(os.pread(self._file.fileno(), 4, size - _TAIL_BYTES), "little")
        self._footer = self._bytes_at(size - _TAIL_BYTES - length, length + _TAIL_BYTES)

    @property
    def chosen(self) -> list[tuple[int, Leaf]]:
        """The scanned leaves, by their index among all leaves of the file."""
        wanted = self.choice.columns
        return [
            (place, leaf)
            for place, leaf in enumerate(self.leaves)
            if wanted is None or leaf.column in wanted or leaf.name in wanted
        ]

    def groups(self) -> list[Group]:
        """Return the row groups."""
        groups: list[Group] = []
        first = 0
        with _problems(self.stat):
            for number in range(self.metadata.num_row_groups):
                rows = self.metadata.row_group(number).num_rows
                size = sum(chunk.total_uncompressed_size for chunk in self._chunks(number))
                groups.append(Group(number, rows, first, size))
                first += rows
        return groups

    def group(self, number: int) -> Group:
        """Return one row group; `VANISHED` if the file has fewer."""
        groups = self.groups()
        if number >= len(groups):
            raise Problem.VANISHED.error(stat_version(self.stat))
        return groups[number]

    def version(self, group: Group) -> bytes:
        """Return the version of a row group: the digest of all bytes that decide its cells."""
        hasher = blake3(canonical_value([*self.choice]))
        hasher.update(self._footer)
        with _problems(self.stat):
            for chunk in self._chunks(group.number):
                begin = chunk.dictionary_page_offset or chunk.data_page_offset
                at, end = begin, begin + chunk.total_compressed_size
                while at < end:
                    piece = self._bytes_at(at, min(_BUFFER_BYTES, end - at))
                    hasher.update(piece)
                    at += len(piece)
        return b"blake3:" + hasher.digest()

    def parts(self, group: Group, path: str, cell_bytes_max: int) -> Iterator[Part]:
        """Yield the cells of a row group, column by column; a cell that is too large is lost."""
        for place, leaf in self.chosen:
            with _problems(self.stat):
                for at, key, cell in self._cells(group, leaf):
                    address = at * len(self.leaves) + place
                    row = key or str(group.first_row + at)
                    fits = len(cell) <= cell_bytes_max
                    yield Part(cell if fits else b"", path, address, "", row, leaf.name, 0 if fits else 1)
        if format_stat(os.fstat(self._file.fileno())) != self.stat:
            raise Problem.CHANGED_WHILE_READ.error(stat_version(self.stat))

    def _cells(self, group: Group, leaf: Leaf) -> Iterator[tuple[int, str, bytes]]:
        """Yield row, key and bytes of all cells that are not empty."""
        key, nested = self.choice.key, is_nested(self.schema, leaf)
        columns = list(dict.fromkeys([leaf.column] + ([key] if key in self.schema.names else [])))
        table = pq.ParquetFile(
            pa.PythonFile(self._file, "r"),
            metadata=self.metadata,
            read_dictionary=[] if nested else [leaf.column],  # a value that fills all rows is in memory once
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        at = 0
        rows = _NESTED_ROWS if nested else self._batch_rows(group)
        for batch in table.iter_batches(rows, row_groups=[group.number], columns=columns, use_threads=False):
            found = cells(batch.column(leaf.column), leaf.path)
            keys = _keys(batch.column(key)) if key in batch.schema.names else [""] * len(batch)
            for row, (name, cell) in enumerate(zip(keys, found, strict=True), at):
                if cell:
                    yield row, name, cell
            at += len(batch)

    def _batch_rows(self, group: Group) -> int:
        return max(1, min(_BATCH_ROWS, _BATCH_BYTES * max(1, group.rows) // max(1, group.size)))

    def _chunks(self, number: int) -> "Iterator[pq.ColumnChunkMetaData]":
        """Yield the chunks of the scanned columns, and of the key."""
        wanted = {leaf.column for _, leaf in self.chosen} | {self.choice.key}
        group = self.metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in wanted):
                yield chunk

    def _bytes_at(self, at: int, count: int) -> bytes:
        data = os.pread(self._file.fileno(), count, at) if at >= 0 and count > 0 else b""
        if not data:
            raise pa.ArrowInvalid("the file ends before its footer says so")
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def begins_as_parquet(path: bytes) -> bool:
    """Return whether a file begins with Parquet's magic; True for an unreadable file, which fails when it is opened."""
    try:
        file = os.open(path, OPEN_FLAGS)
        try:
            return os.pread(file, len(_MAGIC), 0) == _MAGIC
        finally:
            os.close(file)
    except OSError:
        return True


def _keys(column: pa.Array) -> list[str]:
    """Return keys as text, empty for a value that may be a secret."""
    texts = ("" if value is None else str(value) for value in column.to_pylist())
    is_free = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
    return [text if is_free or _PLAIN_KEY.fullmatch(text) else "" for text in texts]


@contextmanager
def _problems(seen: bytes | None) -> Iterator[None]:
    """Map errors of the library and the operating system to a problem of the item."""
    try:
        yield
    except OSError as error:
        problem = Problem.BROKEN_TABLE if error.errno is None else problem_of(error)
        raise problem.error(stat_version(seen)) from error
    except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
        raise Problem.BROKEN_TABLE.error(stat_version(seen)) from error
