"""S3 Inventory: a manifest and its files as a listing of a bucket, instead of a request for every thousand objects.

    <configuration>/<date>/manifest.json     sourceBucket, fileFormat (CSV, Parquet, ORC), fileSchema, files
    the files                                a row for each object, or for each version of it

An inventory is hours old: an object may be gone or newer when it is read, and the reader says so.

Invariants: a file is used only if it has the size and the MD5 that the manifest says; files are kept on disk, not in
memory; rows of older versions and of delete markers are counted, not listed.
"""

import csv
import gzip
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import unquote_plus

import pyarrow as pa
from blake3 import blake3

from strandline.errors import InvalidInput
from strandline.lazy_imports import deferred
from strandline.objects import ObjectInfo, ObjectStore
from strandline.scan.sources.errors import InputMissing, InputUnusable
from strandline.scan.sources.listing_parts import WHOLE, ListingPart

if TYPE_CHECKING:
    import pyarrow.orc as po
    import pyarrow.parquet as pq
else:  # most scans read no inventory
    po, pq = deferred("pyarrow.orc"), deferred("pyarrow.parquet")

OLDER_VERSIONS, DELETE_MARKERS = "older versions", "delete markers"
FILE_MARK = b"\xff"
MANIFEST_BYTES_MAX = 64 << 20
_PIECE_BYTES = 8 << 20
_BATCH_ROWS = 10_000
_FORMATS = ("CSV", "Parquet", "ORC")
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class InventoryFile:
    """A file of an inventory, as its manifest names it."""

    key: str
    size: int
    md5: str


@dataclass(frozen=True)
class S3Inventory:
    """A manifest; make it with `S3Inventory.read`."""

    address: str
    source_bucket: str
    format: str
    columns: tuple[str, ...]
    files: tuple[InventoryFile, ...]

    @classmethod
    def read(cls, store: ObjectStore, key: str) -> Self:
        """Read a manifest."""
        address = f"{store.address}/{key}"
        if not key:
            raise _unusable(address, "it names no manifest")
        found = store.get(key, stop=MANIFEST_BYTES_MAX)
        if found is None:
            raise InputMissing(address, "object")
        try:
            return cls._parsed(address, json.loads(found.body))
        except InputUnusable:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unusable(address, "it is not the manifest of an S3 Inventory") from error

    @classmethod
    def _parsed(cls, address: str, manifest: Mapping[str, Any]) -> Self:
        if manifest["fileFormat"] not in _FORMATS:
            raise _unusable(address, f"its files are {manifest['fileFormat']!r}, which is unknown")
        columns = tuple(
            _plain_name(one) for one in manifest["fileSchema"].split(",") if manifest["fileFormat"] == "CSV"
        )
        files = tuple(InventoryFile(one["key"], int(one["size"]), one["MD5checksum"]) for one in manifest["files"])
        return cls(address, manifest["sourceBucket"], manifest["fileFormat"], columns, files)

    @property
    def bounds(self) -> list[bytes]:
        """Return the bounds of parts that have a file each: no key begins with their first byte."""
        digest = blake3(json.dumps([self.address, [file.md5 for file in self.files]]).encode()).digest(8)
        return [FILE_MARK + digest + number.to_bytes(4) for number in range(1, len(self.files))]

    def files_of(self, part: ListingPart) -> tuple[InventoryFile, ...]:
        """Return the files of a part."""
        first = int.from_bytes(part.start[-4:]) if part.start else 0
        return self.files[first : None if part.end is None else int.from_bytes(part.end[-4:])]

    def objects(self, store: ObjectStore, counts: Counter[str], part: ListingPart = WHOLE) -> Iterator[ObjectInfo]:
        """Yield the latest versions of objects, in the order of the files; count the other rows."""
        for file in self.files_of(part):
            with _downloaded(store, file) as data:
                try:
                    for row in self._rows(data):
                        if _is(row.get("isdeletemarker")):
                            counts[DELETE_MARKERS] += 1
                        elif not _is(row.get("islatest", True)):
                            counts[OLDER_VERSIONS] += 1
                        else:
                            yield _info(row)
                except (pa.ArrowException, csv.Error, OSError, EOFError, ValueError, KeyError) as error:
                    raise _unusable(
                        f"{store.address}/{file.key}", f"it is not {self.format} of an inventory"
                    ) from error

    def _rows(self, data: IO[bytes]) -> Iterator[dict[str, Any]]:
        match self.format:
            case "CSV":
                with gzip.open(data) as unpacked, TextIOWrapper(unpacked, newline="") as text:
                    for cells in csv.reader(text):
                        row: dict[str, Any] = dict(zip(self.columns, cells, strict=True))
                        yield row | {"key": unquote_plus(row["key"], errors="surrogateescape")}
            case "Parquet":
                yield from _named_rows(pq.ParquetFile(data).iter_batches(_BATCH_ROWS))
            case _:
                file = po.ORCFile(data)
                yield from _named_rows(file.read_stripe(number) for number in range(file.nstripes))


def _named_rows(tables: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for table in tables:
        names = [_plain_name(name) for name in table.schema.names]
        for begin in range(0, len(table), _BATCH_ROWS):
            columns = [column.to_pylist() for column in table.slice(begin, _BATCH_ROWS).columns]
            for cells in zip(*columns, strict=True):
                yield dict(zip(names, cells, strict=True))


def _info(row: Mapping[str, Any]) -> ObjectInfo:
    modified = row.get("lastmodifieddate") or _UNKNOWN_TIME
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified)
    if modified.tzinfo is None:
        modified = modified.replace(tzinfo=UTC)
    return ObjectInfo(row["key"], int(row["size"] or 0), row.get("etag") or "", modified)


@contextmanager
def _downloaded(store: ObjectStore, file: InventoryFile) -> Iterator[IO[bytes]]:
    """Fetch a file to disk, piece by piece, and check it."""
    address = f"{store.address}/{file.key}"
    digest = hashlib.md5(usedforsecurity=False)
    with tempfile.TemporaryFile(prefix="strandline-inventory-") as data:
        while data.tell() < file.size:
            piece = store.get(file.key, start=data.tell(), stop=min(file.size, data.tell() + _PIECE_BYTES))
            if piece is None:
                raise InputMissing(address, "object")
            if not piece.body:
                break
            digest.update(piece.body)
            data.write(piece.body)
        if data.tell() != file.size or digest.hexdigest() != file.md5:
            raise _unusable(address, "it does not have the checksum that the manifest says")
        data.seek(0)
        yield data


def _plain_name(name: str) -> str:
    return name.strip().replace("_", "").lower()


def _is(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _unusable(address: str, problem: str) -> InvalidInput:
    return InputUnusable(
        address,
        problem,
        hint="give the manifest.json of one delivery, such as s3://bucket/…/2026-11-18T01-00Z/manifest.json; "
        "of a table, name the columns with --inventory-columns",
    )
