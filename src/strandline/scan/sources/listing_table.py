"""A table with key, version and size as the listing of a bucket: files of Parquet or CSV, or a Delta table.

    files       one, or those of a folder that end in .parquet, .csv or .csv.gz; of a Delta table its latest version's
    parts       row groups of Parquet files, whole CSV files

Such a table is what a catalog, a backup or an earlier listing knows of a bucket. It is a listing like an S3 Inventory:
as old as it is, so that an object may be gone or newer when it is read, and the reader says so.

Invariants: nothing is written; a column that is named and missing, a null in one, and a size that is no number end the
listing with an error that names the file; parts of another state of the table do not fit, and are refused. A part reads
only its own files, and of Parquet in a bucket only the three columns of its row groups.
"""

import gzip
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from blake3 import blake3

from strandline.errors import InvalidInput, StrandlineError
from strandline.extras import needs
from strandline.lazy_imports import deferred
from strandline.objects import ObjectInfo, ObjectStore
from strandline.objects.object_files import ObjectFile
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
_PARQUET = ".parquet"
_ENDINGS = (_PARQUET, ".csv", ".csv.gz")
_NAMES = ("key", "version", "size")
_BATCH_ROWS = 10_000
_PIECE_BYTES = 8 << 20
_THREADS = 16
"""Files whose row groups are counted at once."""
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
COLUMNS_HINT = "name the columns: --inventory-columns key=NAME,version=NAME,size=NAME"


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
            raise InvalidInput(f"{text!r} does not name the columns for key, version and size", hint=COLUMNS_HINT)
        return cls(*(named[name] for name in _NAMES))

    @property
    def names(self) -> list[str]:
        """Return the names, in the order of the fields."""
        return [self.key, self.version, self.size]


class TableFile(NamedTuple):
    """A file of a table, its size, and what changes when it does."""

    path: str
    size: int
    state: str


class _Place(NamedTuple):
    """A row group of a file of a table, by their numbers; a CSV file has one."""

    file: int
    group: int


@dataclass(frozen=True)
class ListingTable:
    """A table that lists a bucket; make it with `ListingTable.read`."""

    address: str
    columns: TableColumns
    bucket: str
    files: tuple[TableFile, ...]
    digest: bytes

    @classmethod
    def read(cls, address: str, store: ObjectStore | None, columns: TableColumns, bucket: str) -> Self:
        """Find the files of a table; `store` is that of its bucket, None for a path of this machine."""
        listed = _in_folder(path_of(address)) if store is None else _in_bucket(store, _root(address))
        if not listed:
            raise InputMissing(address, "table: a file or a folder of Parquet or CSV")
        files = sorted(_current(address, store, listed))
        digest = blake3(repr([address, columns.names, list(map(tuple, files))]).encode()).digest(8)
        return cls(address, columns, bucket, tuple(files), digest)

    def bounds(self, store: ObjectStore | None) -> list[bytes]:
        """Return the bounds of parts that have a row group or a CSV file each: no key begins with their first byte."""

        def places(number: int) -> list[_Place]:
            with self._opened(store, self.files[number]) as data:
                return [_Place(number, group) for group in range(self._groups(self.files[number], data))]

        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(chain.from_iterable(pool.map(places, range(len(self.files)))))
        return [_format_bound(self.digest, place) for place in found[1:]]

    def objects(
        self, store: ObjectStore | None, counts: Counter[str], part: ListingPart = WHOLE
    ) -> Iterator[ObjectInfo]:
        """Yield the objects of a part, in the order of the table; rows of other buckets are counted."""
        first = self._place(part.start) if part.start else _Place(0, 0)
        end = _Place(len(self.files), 0) if part.end is None else self._place(part.end)
        for number in range(first.file, end.file + (end.group > 0)):
            file = self.files[number]
            with self._opened(store, file) as data:
                groups = self._groups(file, data)
                chosen = [group for group in range(groups) if first <= _Place(number, group) < end]
                try:
                    for batch in self._batches(file, data, chosen):
                        yield from self._infos(batch, self._where(file), counts)
                except StrandlineError:
                    raise
                except (pa.ArrowException, OSError, EOFError, ValueError, KeyError) as error:
                    raise _unusable(self._where(file), f"it cannot be read as a listing: {error}") from error
            if _file(store, file.path) != file:
                raise self._changed()

    def _place(self, bound: bytes) -> _Place:
        """Return the place of a bound of this table."""
        digest, place = _parse_bound(bound)
        if digest != self.digest:
            raise self._changed()
        return place

    def _changed(self) -> InputUnusable:
        return InputUnusable(self.address, "it was written anew while it was listed", hint="scan again")

    def _where(self, file: TableFile) -> str:
        return self.address if self.address.endswith(file.path) else f"{self.address}: {file.path}"

    @contextmanager
    def _opened(self, store: ObjectStore | None, file: TableFile) -> Iterator[IO[bytes]]:
        """Open a file; of Parquet in a bucket the ranges that are read are fetched, of CSV all, to disk."""
        if store is None:
            try:
                with Path(file.path).open("rb") as data:
                    yield data
            except FileNotFoundError as error:
                raise InputMissing(file.path) from error
        elif file.path.endswith(_PARQUET):
            yield cast("IO[bytes]", ObjectFile(store, file.path, file.size))
        else:
            with tempfile.TemporaryFile(prefix="strandline-listing-") as data:
                try:
                    shutil.copyfileobj(ObjectFile(store, file.path, file.size), data, _PIECE_BYTES)
                except FileNotFoundError as error:
                    raise InputMissing(self._where(file), "object") from error
                data.seek(0)
                yield data

    def _groups(self, file: TableFile, data: IO[bytes]) -> int:
        """Return the number of row groups of a file; the columns must be there."""
        try:
            if file.path.endswith(_PARQUET):
                opened = pq.ParquetFile(data)
                names, groups = opened.schema_arrow.names, int(opened.num_row_groups)
            else:
                names, groups = _csv(data, file.path).schema.names, 1
                data.seek(0)
        except StrandlineError:
            raise
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise _unusable(self._where(file), f"it is neither Parquet nor CSV with a header: {error}") from error
        if missing := [name for name in self.columns.names if name not in names]:
            there = ", ".join(map(repr, names))
            raise _unusable(self._where(file), f"it has no column {missing[0]!r}; its columns are {there}")
        return groups

    def _batches(self, file: TableFile, data: IO[bytes], groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        if not file.path.endswith(_PARQUET):
            yield from _csv(data, file.path, self.columns)
        elif groups:
            names = self.columns.names
            yield from pq.ParquetFile(data).iter_batches(_BATCH_ROWS, row_groups=groups, columns=names)

    def _infos(self, batch: pa.RecordBatch, where: str, counts: Counter[str]) -> Iterator[ObjectInfo]:
        for name in self.columns.names:
            if batch[name].null_count:
                raise _unusable(where, f"its column {name!r} has nulls")
        keys, versions = (batch[name].cast(pa.large_string()).to_pylist() for name in self.columns.names[:2])
        sizes = batch[self.columns.size].cast(pa.int64()).to_pylist()
        if sizes and min(sizes) < 0:
            raise _unusable(where, f"its column {self.columns.size!r} has a size below zero")
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


def _format_bound(digest: bytes, place: _Place) -> bytes:
    return FILE_MARK + digest + b"".join(number.to_bytes(4) for number in place)


def _parse_bound(bound: bytes) -> tuple[bytes, _Place]:
    return bound[len(FILE_MARK) : -8], _Place(int.from_bytes(bound[-8:-4]), int.from_bytes(bound[-4:]))


def _file(store: ObjectStore | None, path: str) -> TableFile | None:
    """Return a file as it is now; None if there is none."""
    if store is not None:
        info = store.head(path)
        return None if info is None else TableFile(info.key, info.size, info.etag)
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return TableFile(path, status.st_size, f"{status.st_mtime_ns}")


def _in_folder(root: Path) -> list[TableFile]:
    """Return the data files of a folder that have bytes, or the file itself."""
    paths = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
    data = [str(path) for path in paths if path == root or _is_data(path.relative_to(root).parts)]
    files = filter(None, (_file(None, path) for path in data))
    return [file for file in files if file.size or file.path == str(root)]


def _in_bucket(store: ObjectStore, root: str) -> list[TableFile]:
    one = _file(store, root) if root else None
    if one is not None:
        return [one]
    prefix = f"{root}/" if root else ""
    infos = [info for info in store.list(prefix) if _is_data(tuple(info.key.removeprefix(prefix).split("/")))]
    return [TableFile(info.key, info.size, info.etag) for info in infos if info.size]


def _is_data(parts: tuple[str, ...]) -> bool:
    """Return whether a path within a table is one of data: engines keep others below names with "_" or "."."""
    return parts[-1].endswith(_ENDINGS) and not any(part.startswith(("_", ".")) for part in parts)


def _current(address: str, store: ObjectStore | None, listed: list[TableFile]) -> list[TableFile]:
    """Return the files of the latest version of a Delta table; of other tables all."""
    root = str(path_of(address)) if store is None else _root(address)
    if store is None and not (Path(root) / "_delta_log").is_dir():
        return listed
    if store is not None and next(store.list(f"{root}/_delta_log/".removeprefix("/")), None) is None:
        return listed
    names = _delta_names(address if store is not None else str(Path(root).absolute()))
    return [file for file in listed if file.path.removeprefix(root).strip("/") in names]


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


def _csv(data: IO[bytes], file: str, columns: TableColumns | None = None) -> "pc.CSVStreamingReader":
    """Open a file of CSV; keys and versions are text, whatever they look like, and only an empty cell is a null.

    The cells of other columns are not looked at: their kinds may differ from row to row.
    """
    plain = gzip.GzipFile(fileobj=data) if file.endswith(".gz") else data
    kinds = (
        {} if columns is None else {columns.key: pa.string(), columns.version: pa.string(), columns.size: pa.int64()}
    )
    options = pc.ConvertOptions(
        column_types=kinds,
        include_columns=[] if columns is None else columns.names,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    lines = pc.ParseOptions(newlines_in_values=True)
    reads = pc.ReadOptions(use_threads=False)
    return pc.open_csv(plain, convert_options=options, parse_options=lines, read_options=reads)


def _unusable(address: str, problem: str) -> InputUnusable:
    return InputUnusable(address, problem, hint=COLUMNS_HINT)
