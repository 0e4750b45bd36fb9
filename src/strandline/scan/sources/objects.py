"""Objects of a bucket as a source: each is an item, known by its ETag without being read.

    locator     key in the bucket
    version     "etag:<ETag>:<size>", or "time:<seconds>:<size>" for a store without ETags

The instance is the bucket (with the endpoint, if it is not the provider's own), and locators are whole keys: a scan of
a prefix and one of the bucket have the same items. A listing comes from the store, or from an S3 Inventory. That of a
store is cut into ranges of keys (`key_ranges`).

Invariants: an unchanged object is never fetched; an object that was replaced after its listing is scanned as it is now,
under its version of now; one that is gone, or that the login may not read, is a problem of that item. A store that does
not answer ends the scan, which resumes: its objects are not marked as failed. Nothing is written to the store.
"""

import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import pyarrow as pa

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.objects import (
    BrowsableObjects,
    InvalidObjectKey,
    KeyUnlistable,
    MemoryObjects,
    Object,
    ObjectInfo,
    ObjectStore,
    StoreRefused,
    browsable,
    open_objects,
)
from strandline.objects.addresses import UNSORTED_BUCKETS
from strandline.objects.keys import is_key
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import UNKNOWN_VERSION, InputMissing, InputUnusable, Problem
from strandline.scan.sources.key_ranges import Placed, is_a_key, key_bounds, list_range
from strandline.scan.sources.listing_parts import WHOLE, ListingPart, ending_at
from strandline.scan.sources.listing_table import COLUMNS_HINT, ListingTable, TableColumns, is_in_bucket
from strandline.scan.sources.s3_inventory import FILE_MARK, S3Inventory
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches

SCHEMES = ("s3://", "gs://", "az://", "memory://")
EXCLUDED, EMPTY, OUTSIDE = "excluded", "empty", "outside the prefix"
FETCHES_AT_ONCE = 8
AHEAD_BYTES_MAX = 32 << 20
_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")}
_OUR_KEYS = "STRANDLINE_ENCRYPTION_KEYS"
"""Keys for objects of our own; those of a source are read as they are."""


@contextmanager
def opened(address: str) -> Iterator[ObjectStore]:
    """Open a store that is only read."""
    store = open_objects(address, environ={name: value for name, value in os.environ.items() if name != _OUR_KEYS})
    try:
        yield store
    finally:
        if not isinstance(store, MemoryObjects):  # all of a process share it
            store.close()


def format_version(info: ObjectInfo) -> bytes:
    """Return the version of an object; a listing and a read of it give the same."""
    if info.etag:
        etag = info.etag.strip('"')
        return f"etag:{etag}:{info.size}".encode()
    return f"time:{int(info.modified.timestamp())}:{info.size}".encode()  # HTTP headers have whole seconds


@dataclass(frozen=True)
class ObjectSource:
    """A bucket, or a prefix or an object of it; make it with `ObjectSource.at`."""

    bucket: str
    prefix: str
    name: str
    instance: ConnectorInstanceId
    excludes: PathGlobs
    size_max: int
    inventory: str | None
    columns: TableColumns | None = None
    """Of an inventory that is a table; None for an S3 Inventory."""

    tag = "object"
    displays_locator = True
    """The path of each item is its locator."""

    @property
    def cut(self) -> str:
        """Return how the listing is cut."""
        if self.inventory is not None:
            return (
                "the data files of the inventory" if self.columns is None else "the row groups and files of the table"
            )
        if self.bucket.endswith(UNSORTED_BUCKETS):
            return "one part: a directory bucket is listed in no order"
        return "ranges of keys, cut at sampled keys or at folders, and again while they are listed"

    @classmethod
    def at(
        cls,
        address: str,
        *,
        name: str = "",
        excludes: PathGlobs | None = None,
        size_max: int = SIZE_MAX,
        inventory: str | None = None,
        columns: str | None = None,
    ) -> Self:
        """Return the objects at an address such as `s3://bucket/prefix`.

        `inventory` is the manifest of an S3 Inventory that lists them, or a table whose `columns` have key, version
        and size (`TableColumns.parse`).
        """
        named = None if columns is None else TableColumns.parse(columns)
        parts = urlsplit(address)
        bucket, prefix = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
        with opened(address.rstrip("/") if prefix else address):  # checks the address
            pass
        endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS.get(parts.scheme, ()))), "")
        which = name or "\0".join(filter(None, (bucket, endpoint.rstrip("/"))))
        instance = connector_instance_id(b"object\0" + which.encode())
        where = f"{bucket}/{prefix}".rstrip("/")
        return cls(bucket, prefix, name or where, instance, excludes or PathGlobs(), size_max, inventory, named)

    @property
    def is_part(self) -> bool:
        """Whether the source is a prefix of its bucket."""
        return bool(self.prefix)

    def plain(self) -> Plain:
        """Return the settings that decide which objects there are; an inventory is another way to list the same."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "bucket": self.bucket,
            "prefix": self.prefix,
            "excludes": [glob.text for glob in self.excludes.globs],
            "size_max": self.size_max,
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the objects in the order of the listing."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts), tell, counts)

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return ranges of keys, or the files of the inventory."""
        if self.inventory is None:
            return self.split(WHOLE, count)
        with self._inventory(self.inventory) as (store, inventory):
            return WHOLE.cut_at(inventory.bounds if isinstance(inventory, S3Inventory) else inventory.bounds(store))

    def fits(self, parts: Sequence[ListingPart]) -> bool:
        """Return whether parts are ranges of keys, or with an inventory the files of this one."""
        if self.inventory is not None:
            return list(parts) == list(self.listing_parts(0))
        return not any(part.start.startswith(FILE_MARK) for part in parts)

    def split(self, part: ListingPart, count: int) -> Sequence[ListingPart]:
        """Return ranges of the keys of a range."""
        if self.inventory is not None or self.bucket.endswith(UNSORTED_BUCKETS):
            return (part,)
        with opened(self.bucket) as store:
            return part.cut_at(key_bounds(browsable(store), self._folder, part, count))

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the objects of a range of keys."""
        return self.list_some(part, tell, sys.maxsize)

    def list_some(self, part: ListingPart, tell: Tell, items_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the objects of a range of keys, or of its beginning if there are more than so many."""
        counts: Counter[str] = Counter()
        rest: list[bytes] = []
        if self.inventory is not None or self.bucket.endswith(UNSORTED_BUCKETS):
            yield from batches(self._rows(counts, part), tell, counts)
            return
        for batch in batches(self._rows_of(part, counts, items_max, rest), tell, counts):
            yield ending_at(batch, rest[0] if rest else None)

    @contextmanager
    def open(self) -> Iterator[ItemReader]:
        """Return a reader of objects."""
        with opened(self.bucket) as store, closing(ObjectReader(store, self.size_max)) as reader:
            yield reader

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the key is enough
        """Return the key."""
        return locator.decode()

    @property
    def _folder(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    def _rows(self, counts: Counter[str], part: ListingPart = WHOLE) -> Iterator[Row]:
        with opened(self.bucket) as store:
            for info in self._listed(store, counts, part):
                yield from self._row(info, counts)

    def _rows_of(self, part: ListingPart, counts: Counter[str], items_max: int, rest: list[bytes]) -> Iterator[Row]:
        """Yield the rows of a range; `rest` gets the place from which on nothing was listed."""
        with opened(self.bucket) as opened_store:
            store = browsable(opened_store)
            last, listed = b"", 0
            for place, info in self._ranged(store, part):
                if listed >= items_max and place > last and is_a_key(last) and store.head(last.decode()) is not None:
                    rest.append(last + b"\0")
                    return
                yield from self._row(info, counts)
                last, listed = max(last, place), listed + 1

    def _ranged(self, store: BrowsableObjects, part: ListingPart) -> Iterator[Placed]:
        """Yield the objects of a range; with the first one it is found out that there is nothing at all."""
        found = False
        with _hint_at_keys():
            for one in list_range(store, self._folder, part):
                found = True
                yield one
            if part.start or found or next(store.list(self._folder), None) is not None:
                return
        for info in self._only(store):
            yield Placed(info.key.encode(), info)

    def _row(self, info: ObjectInfo, counts: Counter[str]) -> Iterator[Row]:
        """Yield the row of an object, or count it."""
        if self.excludes.leaving_out(info.key) is not None:
            counts[EXCLUDED] += 1
            return
        if not info.size:  # nothing to scan; consoles keep such objects for folders, whose keys end with "/"
            counts[EMPTY] += 1
            return
        locator, version = info.key.encode(errors="surrogateescape"), format_version(info)
        problem = Problem.TOO_LARGE if info.size > self.size_max else None if is_key(info.key) else Problem.BAD_NAME
        yield locator, version, info.size, None, None, problem

    def _listed(self, store: ObjectStore, counts: Counter[str], part: ListingPart) -> Iterator[ObjectInfo]:
        if self.inventory is not None:
            yield from self._inventoried(self.inventory, counts, part)
            return
        found = False
        with _hint_at_keys():
            for info in store.list(self._folder):
                found = True
                yield info
        if not found:
            yield from self._only(store)

    def _only(self, store: ObjectStore) -> Iterator[ObjectInfo]:
        """Yield the one object that the prefix is the key of."""
        if not self.prefix:
            return
        one = store.head(self.prefix)
        if one is None:
            raise _nothing_there(self.name)
        yield one

    def _inventoried(self, address: str, counts: Counter[str], part: ListingPart) -> Iterator[ObjectInfo]:
        with self._inventory(address) as (store, inventory):
            for info in inventory.objects(store, counts, part):  # type: ignore[arg-type] # its own store
                if not self.prefix or info.key == self.prefix or info.key.startswith(f"{self.prefix}/"):
                    yield info
                else:
                    counts[OUTSIDE] += 1

    @contextmanager
    def _inventory(self, address: str) -> Iterator[tuple[ObjectStore | None, S3Inventory | ListingTable]]:
        """Read a manifest, or find the files of a table; the bucket of either is open within the context."""
        if self.columns is not None:
            parts = urlsplit(address)
            bucket_is_open = opened(f"{parts.scheme}://{parts.netloc}") if is_in_bucket(address) else nullcontext()
            with bucket_is_open as files:
                yield files, ListingTable.read(address, files, self.columns, self.bucket)
            return
        if not address.startswith("s3://"):
            raise InputUnusable(
                address, "an S3 Inventory is in a bucket (s3://…/manifest.json)", hint=f"of a table, {COLUMNS_HINT}"
            )
        bucket, _, key = address.removeprefix("s3://").partition("/")
        with opened(f"s3://{bucket}") as store:
            inventory = S3Inventory.read(store, key)
            if self.bucket != f"s3://{inventory.source_bucket}":
                raise InvalidInput(
                    f"{address} lists s3://{inventory.source_bucket}, not {self.bucket}",
                    hint=f"scan s3://{inventory.source_bucket}, or give the inventory of {self.bucket}",
                )
            yield store, inventory


class ObjectReader:
    """Fetches objects, some of them before they are asked for: as one is read, the next is begun, within bounds."""

    def __init__(self, store: ObjectStore, size_max: int) -> None:
        self._store = store
        self._size_max = size_max
        self._pool = ThreadPoolExecutor(FETCHES_AT_ONCE, "strandline-fetch")
        self._ahead: dict[bytes, tuple[int, Future[Content]]] = {}
        self._ahead_bytes = 0
        self._coming: deque[tuple[bytes, int]] = deque()

    def expect(self, items: Iterable[tuple[bytes, int | None]]) -> None:
        """Begin to fetch the objects that will be read next, with their listed sizes; within bounds."""
        self._coming = deque((locator, listed or 0) for locator, listed in items)
        wanted = {locator for locator, _ in self._coming}
        for locator in [one for one in self._ahead if one not in wanted]:
            self._taken(locator).cancel()
        self._begin_more()

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - the key is enough
        """Return an object as it is now."""
        if locator not in self._ahead:
            return self._fetched(locator)
        try:
            return self._ahead[locator][1].result()
        finally:
            self._taken(locator)
            self._begin_more()

    def _begin_more(self) -> None:
        """Begin what comes next; one that is larger than the bound is alone."""
        while self._coming and (
            not self._ahead
            or self._ahead_bytes + self._coming[0][1] <= AHEAD_BYTES_MAX
            or self._coming[0][0] in self._ahead
        ):
            locator, size = self._coming.popleft()
            if locator not in self._ahead:
                self._ahead[locator] = size, self._pool.submit(self._fetched, locator)
                self._ahead_bytes += size

    def _taken(self, locator: bytes) -> Future[Content]:
        size, begun = self._ahead.pop(locator)
        self._ahead_bytes -= size
        return begun

    def close(self) -> None:
        """Stop fetching."""
        self._pool.shutdown(cancel_futures=True)

    def _fetched(self, locator: bytes) -> Content:
        key = locator.decode(errors="surrogateescape")
        found = self._get(key)
        if found is None:
            raise Problem.VANISHED.error()
        version = format_version(found.info)
        if found.info.size > self._size_max:
            raise Problem.TOO_LARGE.error(version)
        return Content(version, [Part(found.body, key)], len(found.body))

    def _get(self, key: str) -> Object | None:
        """Return an object, or the beginning of one that is larger than is allowed."""
        try:
            return self._store.get(key, stop=self._size_max + 1)
        except InvalidObjectKey:
            raise Problem.BAD_NAME.error() from None
        except StoreRefused as error:
            raise Problem.PERMISSION_DENIED.error(UNKNOWN_VERSION) from error


@contextmanager
def _hint_at_keys() -> Iterator[None]:
    try:
        yield
    except KeyUnlistable as error:
        error.hint = "scan a prefix beside it, or with --inventory, which leaves only such keys out and says so"
        raise


def _nothing_there(name: str) -> InputMissing:
    error = InputMissing(shown(name), "object, nor any below it")
    error.hint = "check the prefix: it is an object's key, or whole folder names, such as s3://bucket/logs/2026"
    return error
