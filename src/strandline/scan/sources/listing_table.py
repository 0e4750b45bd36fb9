"""A table with key, version and size as the listing of a bucket: files of Parquet or CSV, or a Delta table.

    files       one, or those of a folder that end in .parquet, .csv or .csv.gz; of a Delta table its latest version's
    parts       row groups of Parquet files, whole CSV files

Such a table is what a catalog, a backup or an earlier listing knows of a bucket. It is a listing like an S3 Inventory:
as old as it is, so that an object may be gone or newer when it is read, and the reader says so.

Invariants: nothing is written; a column that is named and missing, a null in one, and a size that is no number end the
listing with an error that names the file; parts of another state of the table do not fit.
"""

import gzip
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from blake3 import blake3

from strandline.errors import InvalidInput
from strandline.extras import needs
from strandline.lazy_imports import deferred
from strandline.objects import ObjectInfo, ObjectStore
from strandline.scan.sources.errors import InputMissing, InputUnusable
from strandline.scan.sources.listing_parts import WHOLE, ListingPart
from strandline.scan.sources.s3_inventory import FILE_MARK

if TYPE_CHECKING:
    import pyarrow.csv as pc
    import pyarrow.parquet as pq
else:  # most scans read no table
    pc, pq = deferred("pyarrow.csv"), deferred("pyarrow.parquet")

OTHER_BUCKETS = "objects of other buckets"
_SCHEMES = ("s3://", "gs://", "az://", "memory://")
_ENDINGS = (".parquet", ".csv", ".csv.gz")
_NAMES = ("key", "version", "size")
_BATCH_ROWS = 10_000
_PIECE_BYTES = 8 << 20
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
_HINT = "name the columns: --inventory-columns key=NAME,version=NAME,size=NAME"


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that have an object's key, its version (the ETag), and its size."""

    key: str
    version: str
    size: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the columns that a text such as `key=path,version=etag,size=bytes` names."""
        named = dict(pair.partition("=")[::2] for pair in text.split(","))
        if sorted(named) != sorted(_NAMES) or not all(named.values()) or text.count(",") != len(_NAMES) - 1:
            raise InvalidInput(f"{text!r} does not name the columns for key, version and size", hint=_HINT)
        return cls(*(named[name] for name in _NAMES))

    @property
    def names(self) -> list[str]:
        """Return the names, in the order of the fields."""
        return [self.key, self.version, self.size]


@dataclass(frozen=True)
class TablePiece:
    """A row group of a Parquet file, or a whole file of CSV."""

    file: str
    group: int | None


@dataclass(frozen=True)
class ListingTable:
    """A table that lists a bucket; make it with `ListingTable.read`."""

    address: str
    columns: TableColumns
    bucket: str
    pieces: tuple[TablePiece, ...]
    digest: bytes

    @classmethod
    def read(cls, address: str, store: ObjectStore | None, columns: TableColumns, bucket: str) -> Self:
        """Find the files of a table; `store` is that of its bucket, None for a path of this machine."""
        listed = _in_folder(path_of(address)) if store is None else _in_bucket(store, _root(address))
        if not listed:
            raise InputMissing(address, "table: a file or a folder of Parquet or CSV")
        pieces: list[TablePiece] = []
        for file in sorted(_current(address, store, listed)):
            with _opened(address, store, file) as data:
                pieces += [TablePiece(file, group) for group in _groups(f"{address}: {file}", file, data, columns)]
        digest = blake3(repr([address, columns.names, sorted(listed.items())]).encode()).digest(8)
        return cls(address, columns, bucket, tuple(pieces), digest)

    @property
    def bounds(self) -> list[bytes]:
        """Return the bounds of parts that have a piece each: no key begins with their first byte."""
        return [FILE_MARK + self.digest + number.to_bytes(4) for number in range(1, len(self.pieces))]

    def objects(
        self, store: ObjectStore | None, counts: Counter[str], part: ListingPart = WHOLE
    ) -> Iterator[ObjectInfo]:
        """Yield the objects of a part, in the order of the table; rows of other buckets are counted."""
        first = int.from_bytes(part.start[-4:]) if part.start else 0
        last = None if part.end is None else int.from_bytes(part.end[-4:])
        for piece in self.pieces[first:last]:
            where = f"{self.address}: {piece.file}"
            with _opened(self.address, store, piece.file) as data:
                try:
                    for batch in _batches(data, piece, self.columns):
                        yield from self._infos(batch, where, counts)
                except (pa.ArrowException, OSError, EOFError, ValueError, KeyError) as error:
                    raise _unusable(where, f"it cannot be read as a listing: {error}") from error

    def _infos(self, batch: pa.RecordBatch, where: str, counts: Counter[str]) -> Iterator[ObjectInfo]:
        for name in self.columns.names:
            if batch[name].null_count:
                raise _unusable(where, f"its column {name!r} has nulls")
        keys, versions = (batch[name].cast(pa.large_string()).to_pylist() for name in self.columns.names[:2])
        sizes = batch[self.columns.size].cast(pa.int64()).to_pylist()
        for key, version, size in zip(keys, versions, sizes, strict=True):
            if key.startswith(_SCHEMES) and not key.startswith(f"{self.bucket}/"):
                counts[OTHER_BUCKETS] += 1
            else:
                yield ObjectInfo(key.removeprefix(f"{self.bucket}/"), size, version, _UNKNOWN_TIME)


def is_in_bucket(address: str) -> bool:
    """Return whether a table is in a bucket, not on this machine."""
    return address.startswith(_SCHEMES)


def path_of(address: str) -> Path:
    """Return the path of a table of this machine."""
    return Path(unquote(urlsplit(address).path) if address.startswith("file://") else address)


def _root(address: str) -> str:
    return urlsplit(address).path.strip("/")


def _in_folder(root: Path) -> dict[str, str]:
    """Return the data files of a folder, or the file itself, with what changes when they do."""
    paths = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
    found = {str(path): path.stat() for path in paths if path == root or _is_data(path.relative_to(root).parts)}
    return {path: f"{status.st_size}:{status.st_mtime_ns}" for path, status in found.items()}


def _in_bucket(store: ObjectStore, root: str) -> dict[str, str]:
    one = store.head(root) if root else None
    if one is not None:
        return {one.key: one.etag}
    prefix = f"{root}/" if root else ""
    infos = store.list(prefix)
    return {info.key: info.etag for info in infos if _is_data(tuple(info.key.removeprefix(prefix).split("/")))}


def _is_data(parts: tuple[str, ...]) -> bool:
    """Return whether a path within a table is one of data: engines keep others below names with "_" or "."."""
    return parts[-1].endswith(_ENDINGS) and not any(part.startswith(("_", ".")) for part in parts)


def _current(address: str, store: ObjectStore | None, listed: Mapping[str, str]) -> list[str]:
    """Return the files of the latest version of a Delta table; of other tables all."""
    root = str(path_of(address)) if store is None else _root(address)
    if store is None and not (Path(root) / "_delta_log").is_dir():
        return list(listed)
    if store is not None and next(store.list(f"{root}/_delta_log/".removeprefix("/")), None) is None:
        return list(listed)
    names = _delta_names(address if store is not None else str(Path(root).absolute()))
    return [file for file in listed if file.removeprefix(root).strip("/") in names]


def _delta_names(address: str) -> set[str]:
    """Return the files of the latest version of a Delta table, as paths within it."""
    with needs("lake"):
        from deltalake import DeltaTable  # noqa: PLC0415 - other tables need no package
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    try:
        table = DeltaTable(address)
        root = table.table_uri.rstrip("/") + "/"
        return {
            unquote(file).removeprefix(unquote(root)).removeprefix(unquote(urlsplit(root).path))
            for file in table.file_uris()
        }
    except (DeltaError, OSError) as error:
        raise _unusable(address, f"its Delta log cannot be read: {error}") from error


@contextmanager
def _opened(address: str, store: ObjectStore | None, file: str) -> Iterator[IO[bytes]]:
    """Open a file; one of a bucket is fetched to disk, piece by piece."""
    if store is None:
        try:
            with Path(file).open("rb") as data:
                yield data
        except FileNotFoundError as error:
            raise InputMissing(file) from error
        return
    with tempfile.TemporaryFile(prefix="strandline-listing-") as data:
        size = 1
        while data.tell() < size:
            piece = store.get(file, start=data.tell(), stop=data.tell() + _PIECE_BYTES)
            if piece is None:
                raise InputMissing(f"{address}: {file}", "object")
            size = piece.info.size
            data.write(piece.body)
        data.seek(0)
        yield data


def _groups(where: str, file: str, data: IO[bytes], columns: TableColumns) -> Sequence[int | None]:
    """Return the row groups of a file, None for all of it; its columns must be there."""
    try:
        if file.endswith(".parquet"):
            opened = pq.ParquetFile(data)
            names = opened.schema_arrow.names
            groups: Sequence[int | None] = range(opened.num_row_groups)
        else:
            names, groups = _csv(data, file).schema.names, (None,)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise _unusable(where, "it is neither Parquet nor CSV with a header") from error
    if missing := [name for name in columns.names if name not in names]:
        there = ", ".join(map(repr, names))
        raise _unusable(where, f"it has no column {missing[0]!r}; its columns are {there}")
    return groups


def _batches(data: IO[bytes], piece: TablePiece, columns: TableColumns) -> Iterator[pa.RecordBatch]:
    if piece.group is not None:
        groups = [piece.group]
        yield from pq.ParquetFile(data).iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns.names)
        return
    for batch in _csv(data, piece.file, columns):
        yield batch.select(columns.names)


def _csv(data: IO[bytes], file: str, columns: TableColumns | None = None) -> "pc.CSVStreamingReader":
    """Open a file of CSV; keys and versions are text, whatever they look like, and only an empty cell is a null."""
    plain = gzip.GzipFile(fileobj=data) if file.endswith(".gz") else data
    types = (
        {} if columns is None else {columns.key: pa.string(), columns.version: pa.string(), columns.size: pa.int64()}
    )
    options = pc.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pc.open_csv(plain, convert_options=options, read_options=pc.ReadOptions(use_threads=False))


def _unusable(address: str, problem: str) -> InputUnusable:
    return InputUnusable(address, problem, hint=_HINT)
