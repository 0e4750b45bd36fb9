"""The logical form: runs of rows sorted by key, in Parquet files that other programs read as tables.

    key binary, value binary, revision int64, expires_ns int64, version binary

`revision` is there unless the version of an entry is no revision; then `version` has its bytes. A row with neither has
no value, and deletes its key in the runs before. `expires_ns` is there where a value has a deadline.

Invariants: `rows_of` undoes `table_of`. The rows of a run are in the order of their keys, each key once, and so are the
files of a run; `read_run` refuses others. A file holds at most about `PART_BYTES` of keys and values. `merged` holds
one part of each run.
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from strandline.artifacts.errors import ArtifactInvalid, Refusal
from strandline.artifacts.manifest import DATA_FOLDER, RANK_MAX, ArtifactFile
from strandline.errors import FormatError
from strandline.fold import PutColumns
from strandline.fold.columns import lengths_of, numbers_of, version_column
from strandline.kv.entries import REVISION_BYTES

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("revision", pa.int64()),
        pa.field("expires_ns", pa.int64()),
        pa.field("version", pa.binary()),
    ]
)
KEY_COLUMNS = ["key", "revision", "expires_ns", "version"]
"""All columns but the value: enough to compare two states of one bucket."""
PART_BYTES = 16 * 1024 * 1024
GROUP_ROWS = 64 * 1024
PAGE_ROWS = 16 * 1024
_INT64_MAX = np.uint64(2**63 - 1)
_TIMED_BYTES = 2 * REVISION_BYTES

OpenFile = Callable[[ArtifactFile], pa.NativeFile | io.IOBase | pa.Buffer]
"""Opens a file of an artifact for Parquet."""


def table_of(rows: PutColumns) -> pa.Table:
    """Return rows of a fold as rows of a run."""
    lengths = lengths_of(rows.versions)
    revisions, deadlines = numbers_of(rows.versions)
    is_timed = lengths == _TIMED_BYTES
    is_plain = (lengths == REVISION_BYTES) | (is_timed & (deadlines > 0) & (deadlines <= _INT64_MAX))
    is_plain &= (revisions > 0) & (revisions <= _INT64_MAX)
    revision = pa.array(revisions.astype(np.int64), mask=~is_plain)
    expires = pa.array(deadlines.astype(np.int64), mask=~(is_plain & is_timed))
    if is_plain.all():
        version = pa.nulls(len(lengths), pa.binary())
    else:
        version = pc.if_else(pa.array(is_plain), pa.scalar(None, pa.binary()), rows.versions)
    return pa.Table.from_arrays([rows.keys, rows.values, revision, expires, version], schema=SCHEMA)


def rows_of(table: pa.Table) -> PutColumns:
    """Return rows of a run, none of which deletes, as rows of a fold."""
    return PutColumns(one_array(table["key"]), one_array(table["value"]), versions_of(table))


def versions_of(table: pa.Table) -> pa.BinaryArray:
    """Return the versions of rows as a store keeps them."""
    revisions, expires = (_numbers_of(one_array(table[name])) for name in ("revision", "expires_ns"))
    plain = version_column(revisions, expires if expires.any() else None)
    odd = one_array(table["version"])
    return plain if odd.null_count == len(odd) else pc.coalesce(odd, plain)


def _numbers_of(column: pa.Int64Array) -> NDArray[np.uint64]:
    """Return the numbers of a column, 0 where there is none; unlike `fill_null`, it does not import pandas."""
    valid, data = column.buffers()
    if data is None or column.null_count == len(column):
        return np.zeros(len(column), np.uint64)
    numbers = np.frombuffer(data, np.int64, len(column), 8 * column.offset).astype(np.uint64)
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=column.offset + len(column), bitorder="little")
        numbers[bits[column.offset :] == 0] = 0
    return numbers


class RunWriter:
    """Writes one run into files below `data/`; `close` returns nothing, `files` names them."""

    def __init__(self, stage: Path, rank: int, run: int) -> None:
        self._stage = stage
        self._name = f"{rank:020d}-{run:03d}"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._part_bytes = 0
        self.parts: list[tuple[str, int]] = []
        """The paths of the files, and how many rows each has."""

    def write(self, table: pa.Table) -> None:
        """Take rows that come behind all before; a large table is taken in slices."""
        for first in range(0, len(table), PAGE_ROWS):
            piece = table.slice(first, PAGE_ROWS)
            self._waiting.append(piece)
            self._waiting_bytes += piece.nbytes
            is_full = self._part_bytes + self._waiting_bytes >= PART_BYTES
            if is_full or sum(map(len, self._waiting)) >= GROUP_ROWS:
                self._flush()
            if is_full:
                self._end_part()

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        self._end_part()

    def _flush(self) -> None:
        if not self._waiting:
            return
        group = pa.concat_tables(self._waiting).combine_chunks()
        if self._writer is None:
            path = f"{DATA_FOLDER}/{self._name}-{len(self.parts):05d}.parquet"
            (self._stage / DATA_FOLDER).mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._stage / path,
                SCHEMA,
                compression="zstd",
                compression_level=1,
                use_dictionary=False,
                column_encoding={"key": "DELTA_BYTE_ARRAY", "revision": "DELTA_BINARY_PACKED"},
                write_page_checksum=True,
                write_statistics=["key", "revision"],
                store_schema=False,
                sorting_columns=[pq.SortingColumn(0)],
            )
            self.parts.append((path, 0))
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        path, rows = self.parts[-1]
        self.parts[-1] = (path, rows + len(group))
        self._part_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def _end_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._part_bytes = None, 0


def read_run(
    files: Iterable[ArtifactFile],
    open_file: OpenFile,
    columns: Sequence[str] | None = None,
    *,
    name: str = "",
    rank: int = RANK_MAX,
    is_hashed: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of a run, some at a time; `ArtifactInvalid` names a file that is no part of a run.

    `rank` is the revision that the artifact is of: no row is of a later one. With `is_hashed`, `open_file` has compared
    each file with the hash of the manifest, which covers the sums of its pages; else these are checked.
    """
    last_key: bytes | None = None
    for file in files:
        try:
            for table in _read_part(file, open_file(file), columns, checks_pages=not is_hashed):
                _check_rows(file, table, last_key, rank)
                last_key = bytes(table["key"][-1].as_py())
                yield table
        except FormatError as wrong:
            raise ArtifactInvalid(name, Refusal.TAMPERED, f"{file.path}: {wrong.problem}") from wrong
        except (pa.ArrowException, OSError) as error:
            raise ArtifactInvalid(name, Refusal.TAMPERED, f"{file.path} cannot be read: {error}") from error


def _read_part(
    file: ArtifactFile,
    opened: pa.NativeFile | io.IOBase | pa.Buffer,
    columns: Sequence[str] | None,
    *,
    checks_pages: bool,
) -> Iterator[pa.Table]:
    with pq.ParquetFile(opened, page_checksum_verification=checks_pages, pre_buffer=False) as parquet:
        if not parquet.schema_arrow.equals(SCHEMA):
            raise FormatError(file.path, f"its columns are {', '.join(map(str, parquet.schema_arrow))}"[:500])
        if parquet.metadata.num_rows != file.rows:
            raise FormatError(file.path, f"it has {parquet.metadata.num_rows:,} rows, not {file.rows:,}")
        for batch in parquet.iter_batches(PAGE_ROWS, columns=columns, use_threads=False):
            if len(batch):
                yield pa.Table.from_batches([batch])


def _check_rows(file: ArtifactFile, table: pa.Table, last_key: bytes | None, rank: int) -> None:
    """Refuse rows that are not in order, delete in a base, or are of no revision up to the artifact's."""
    keys = one_array(table["key"])
    if keys.null_count or (last_key is not None and keys[0].as_py() <= last_key):
        raise FormatError(file.path, "its rows do not follow those before, by key")
    if not pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)), min_count=0).as_py():
        raise FormatError(file.path, "its rows are not in the order of their keys, each key once")
    is_put = pc.or_(pc.is_valid(table["revision"]), pc.is_valid(table["version"]))
    if not file.run and not pc.all(is_put).as_py():
        raise FormatError(file.path, "it is part of a base, and deletes")
    if "value" in table.column_names and not pc.all(pc.equal(is_put, pc.is_valid(table["value"]))).as_py():
        raise FormatError(file.path, "a row has a version and no value, or a value and no version")
    for column, highest in (("revision", min(rank, int(_INT64_MAX))), ("expires_ns", int(_INT64_MAX))):
        found = pc.min_max(table[column]).as_py()
        if found["min"] is not None and not 0 < found["min"] <= found["max"] <= highest:
            raise FormatError(file.path, f"{column} is {found['min']} to {found['max']}, not 1 to {highest}")


def merged(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows that the runs hold together, by key: of several rows of a key, that of the last run."""
    tails = [RunTail(run) for run in runs]
    while True:
        open_tails = [tail for tail in tails if tail.fill()]
        if not open_tails:
            return
        bound = min(tail.last_key() for tail in open_tails)
        pieces = [(number, piece) for number, tail in enumerate(tails) if len(piece := tail.take(bound))]
        table = pieces[0][1] if len(pieces) == 1 else _last_of_each(pieces)
        if table["revision"].null_count:
            table = table.filter(pc.or_(pc.is_valid(table["revision"]), pc.is_valid(table["version"])))
        if len(table):
            yield table


class RunTail:
    """A run of which some rows were taken."""

    def __init__(self, run: Iterator[pa.Table]) -> None:
        self._run = run
        self._rows: pa.Table | None = None

    def fill(self) -> bool:
        """Have rows, and return whether there are any."""
        while self._rows is None or not len(self._rows):
            self._rows = next(self._run, None)
            if self._rows is None:
                self._run = iter(())
                return False
        return True

    def last_key(self) -> bytes:
        """Return the greatest key of the rows that are here."""
        assert self._rows is not None  # noqa: S101 - it was filled
        return bytes(self._rows["key"][-1].as_py())

    def take(self, bound: bytes) -> pa.Table:
        """Take the rows up to a key."""
        if self._rows is None or not len(self._rows):
            return SCHEMA.empty_table()
        keys = self._rows["key"]
        count = bisect_right(range(len(keys)), bound, key=lambda row: bytes(keys[row].as_py()))
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken


def _last_of_each(pieces: list[tuple[int, pa.Table]]) -> pa.Table:
    tables = [piece.append_column("run", pa.array(np.full(len(piece), -run, np.int32))) for run, piece in pieces]
    ordered = pa.concat_tables(tables).combine_chunks().sort_by([("key", "ascending"), ("run", "ascending")])
    keys = one_array(ordered["key"])
    is_first = np.append(True, pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False))
    return ordered.filter(pa.array(is_first)).drop_columns(["run"])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece, which is copied only where it has several."""
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
