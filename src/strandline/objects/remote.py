"""S3, Google Cloud Storage and Azure through obstore, with its errors told apart.

Invariants: obstore repeats nothing (`RetryingObjects` does, and knows what may be repeated). A write that failed
without a clear answer is `WriteUnknown`: only a refused connection, and answers that say that nothing was done, are
`StoreUnavailable`. obstore tells kinds of failure by class, and statuses and causes only in its text; what is not
recognised there is taken for the worse case.

Google compares generations, and not ETags. Those of objects that were seen last are remembered; for another ETag the
object is looked at first. A generation is never used again, so that the write replaces what had this ETag or nothing.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from strandline.errors import Closed, StrandlineError
from strandline.extras import needs
from strandline.objects.contracts import (
    Buffer,
    Folder,
    Object,
    ObjectInfo,
    check_range,
    check_write,
    in_one_folder,
)
from strandline.objects.errors import (
    KeyUnlistable,
    ObjectConflict,
    ObjectTooLarge,
    StoreRefused,
    StoreUnavailable,
    WriteUnknown,
)
from strandline.objects.keys import is_key, validate_key, validate_prefix

with needs("s3"):
    import obstore
    from obstore import exceptions

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
LIST_CHUNK = 1000
REQUEST_TIMEOUT = timedelta(seconds=30)
LARGE_BYTES = 16 << 20
"""A write of more gets time in proportion to its size."""
SLOWEST_BYTES_PER_S = 1 << 20
PUT_BYTES_MAX = {"s3": 5 << 30, "az": 5000 << 20}
"""How much a store takes in one write, as its manual has it."""

GENERATIONS_KEPT = 1024
"""Of so many objects Google's generations are remembered."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")
_NOT_SENT = re.compile(r"kind: Connect\b")
_UNDECIDED = frozenset({"ConditionalRequestConflict", "OperationAborted"})
"""S3: another conditional request for the object is being decided at this moment. Others say 409 for "it exists"."""
_NOT_DONE = frozenset({409, 429, 503})
"""A request that met another, too many requests, and "slow down": nothing was done."""
_BEYOND_END = 416
_BEYOND_END_TEXT = "Wanted range starting at"
"""obstore's own words, where a store answers such a request with something else (Azure's emulator: the whole)."""
_REFUSED = frozenset({400, 401, 403, 405, 501})
_TIMED_OUT = "RequestTimeout"
"""S3 answers 400 with this code when a request did not arrive whole in time; that refuses nothing."""

_UNLISTABLE = "Encountered object with invalid path"
_UNLISTABLE_KEY = re.compile(r'ath "(.*?)"(?: contained|:)', re.DOTALL)
"""obstore's own words for a key that it does not parse; nothing of the page that it is on can be had."""

Result = TypeVar("Result")


class RemoteObjects:
    """A bucket, or what is below a prefix of it, behind an `obstore` store that repeats nothing."""

    def __init__(self, open_store: Callable[[timedelta], Any], address: str, *, sorts_bytes: bool = False) -> None:
        self.address = address
        self.sorts_bytes = sorts_bytes
        self._open_store = open_store
        """Opens the store with a limit for each of its requests."""
        self._store = open_store(REQUEST_TIMEOUT)
        self._put_bytes_max = PUT_BYTES_MAX.get(address.partition(":")[0])
        self._dash = "_" if address.startswith("az:") else "-"
        """What stands for "-" in names of metadata: Azure takes identifiers alone, which "-" is no part of."""
        self._generations: dict[tuple[str, str], str] | None = {} if address.startswith("gs:") else None
        self._lock = threading.Lock()

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        check_range(start, stop)
        if stop == start:
            info = self.head(key)
            return Object(info, b"") if info else None
        wanted: dict[str, Any] = {}
        if stop is not None:
            wanted = {"range": (start, stop)}
        elif start:
            wanted = {"range": {"offset": start}}
        try:
            found = self._read(key, lambda: _fetched(self._open(), key, wanted))
        except _BeyondEnd:
            info = self.head(key)
            return Object(info, b"") if info else None
        return Object(self._info(key, found[0], found[1]), found[2]) if found else None

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        found = self._read(key, lambda: _fetched(self._open(), key, {"head": True}))
        return self._info(key, found[0], found[1]) if found else None

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only where there is none, or only over the one with this ETag."""
        validate_key(key)
        check_write(if_absent, if_match, metadata)
        attributes, size = self._attributes(metadata), memoryview(body).nbytes
        if self._put_bytes_max is not None and size > self._put_bytes_max:
            raise ObjectTooLarge(key, size, self._put_bytes_max)
        store = self._open()
        mode: Any = "create" if if_absent else "overwrite" if if_match is None else self._matching(key, if_match)
        if size > LARGE_BYTES:
            store = self._open_store(REQUEST_TIMEOUT + timedelta(seconds=size / SLOWEST_BYTES_PER_S))
        stored = self._stored(
            key, lambda: obstore.put(store, key, body, mode=mode, attributes=attributes, use_multipart=False)
        )
        if not stored["e_tag"]:
            raise StoreRefused(self.address, "the store gives its objects no ETags")
        self._remember(key, stored)
        return stored["e_tag"]

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come, in bounded memory; return its ETag."""
        validate_key(key)
        check_write(if_absent=False, if_match=None, metadata=metadata)
        writer = obstore.open_writer(
            self._open(),
            key,
            attributes=self._attributes(metadata),
            buffer_size=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )
        # Parts are asked for in this thread, and not by obstore: they may read objects themselves.
        for part in parts:
            self._stored(key, lambda part=part: writer.write(bytes(part)))  # type: ignore[misc]
        self._stored(key, writer.close)  # what is not closed never appears
        try:
            info = self.head(key)
        except StrandlineError as error:
            raise WriteUnknown(key, f"it was written, and cannot be looked at: {error}") from error
        if info is None:
            raise WriteUnknown(key, "it was written, and is not there: it was removed by another")
        return info.etag

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        validate_key(key)
        try:
            obstore.delete(self._open(), key)
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            self._raise_if_no_bucket(error)
        except exceptions.BaseError as error:
            self._raise(key, error, is_write=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys greater than `start_after`, in the order of their keys."""
        validate_prefix(prefix)
        store = self._open()
        return in_one_folder(self._listed(store, prefix, start_after), prefix, start_after)

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys behind one, in the order of bytes."""
        if not self.sorts_bytes:
            raise StoreRefused(self.address, "it is not known to sort whole keys by their bytes")
        return self._listed(self._open(), prefix, start_after)

    def list_folder(self, prefix: str) -> Folder:
        """Return what is directly below a prefix."""
        store = self._open()
        found = self._page(prefix, lambda: obstore.list_with_delimiter(store, prefix or None))
        objects = [self._info(one["path"], one, {}) for one in found["objects"]]
        return Folder(objects, [f"{path.rstrip('/')}/" for path in found["common_prefixes"]])

    def close(self) -> None:
        """Let go of the store and its connections."""
        self._store = None

    def _page(self, prefix: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except (FileNotFoundError, exceptions.BaseError) as error:
            self._raise_if_no_bucket(error)
            if _UNLISTABLE in str(error):
                key = _UNLISTABLE_KEY.search(str(error))
                raise KeyUnlistable(self.address, key[1] if key else "") from error
            self._raise(prefix, error, is_write=False)

    def _listed(self, store: Any, prefix: str, start_after: str) -> Iterator[ObjectInfo]:  # noqa: ANN401
        while start_after and not is_key(start_after):  # obstore takes keys alone; what is cut off is a place before it
            start_after = start_after[:-1]
        pages = obstore.list(store, prefix or None, offset=start_after or None, chunk_size=LIST_CHUNK)
        while True:
            page = self._page(prefix, lambda: next(pages, None))
            if page is None:
                return
            for found in page:
                yield self._info(found["path"], found, {})

    def _open(self) -> Any:  # noqa: ANN401 - any of obstore's stores
        if self._store is None:
            raise Closed(self.address)
        return self._store

    def _read(self, key: str, call: Callable[[], Result]) -> Result | None:
        validate_key(key)
        try:
            return call()
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            self._raise_if_no_bucket(error)
            return None
        except exceptions.BaseError as error:
            if _status(error) == _BEYOND_END or _BEYOND_END_TEXT in str(error):
                raise _BeyondEnd from error
            self._raise(key, error, is_write=False)

    def _stored(self, key: str, call: Callable[[], Result]) -> Result:
        """Make a write, and tell its errors apart."""
        try:
            return call()
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError) as error:
            self._raise_if_no_bucket(error)
            if _code(error) in _UNDECIDED:
                raise StoreUnavailable(self.address, "another conditional write is being decided") from error
            exists = isinstance(error, exceptions.AlreadyExistsError)
            raise ObjectConflict(
                key, "it exists already" if exists else "it is missing, or was written by another"
            ) from error
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            self._raise_if_no_bucket(error)
            raise ObjectConflict(key, "it is missing") from error
        except exceptions.BaseError as error:
            self._raise(key, error, is_write=True)

    def _matching(self, key: str, etag: str) -> dict[str, str]:
        """Return the condition that an object has an ETag; `ObjectConflict` where it is seen not to have it."""
        if self._generations is None:
            return {"e_tag": etag}
        generation = self._generations.get((key, etag))
        if generation is None:
            found = self._read(key, lambda: _fetched(self._open(), key, {"head": True}))
            if found is None or found[0]["e_tag"] != etag:
                raise ObjectConflict(key, "it was written by another" if found else "it is missing")
            generation = found[0]["version"]
        return {"e_tag": etag, "version": generation}

    def _remember(self, key: str, meta: Any) -> None:  # noqa: ANN401
        generation = meta.get("version")
        if self._generations is None or not generation:
            return
        with self._lock:
            self._generations.pop((key, meta["e_tag"]), None)  # it goes to the end, as the one that was seen last
            self._generations[key, meta["e_tag"]] = generation
            while len(self._generations) > GENERATIONS_KEPT:
                del self._generations[next(iter(self._generations))]

    def _attributes(self, metadata: Mapping[str, str] | None) -> dict[str, str]:
        return {name.replace("-", self._dash): value for name, value in (metadata or {}).items()}

    def _info(self, key: str, meta: Any, attributes: Mapping[str, str]) -> ObjectInfo:  # noqa: ANN401
        self._remember(key, meta)
        own = {name: value for name, value in attributes.items() if name == name.lower()}  # others are HTTP's own
        metadata = {name.replace(self._dash, "-"): value for name, value in own.items()}
        etag = meta["e_tag"] or ""
        if self.address.startswith("az:") and not etag.startswith('"'):  # as its listings have them
            etag = f'"{etag}"'
        return ObjectInfo(key, meta["size"], etag, meta["last_modified"], metadata)

    def _raise_if_no_bucket(self, error: BaseException) -> None:
        if _code(error) in ("NoSuchBucket", "ContainerNotFound"):
            raise StoreRefused(self.address, "the bucket does not exist") from error

    def _raise(self, key: str, error: BaseException, *, is_write: bool) -> NoReturn:
        status, reason = 0 if _code(error) == _TIMED_OUT else _status(error), _reason(error)
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or status in _REFUSED:
            raise StoreRefused(self.address, reason) from error
        if isinstance(error, exceptions.NotSupportedError):
            raise StoreRefused(self.address, reason) from error
        if not is_write or status in _NOT_DONE or _NOT_SENT.search(str(error)):
            raise StoreUnavailable(self.address, reason) from error
        raise WriteUnknown(key, reason) from error


class _BeyondEnd(Exception):
    """A range begins behind the end of the object."""


def _fetched(store: Any, key: str, options: dict[str, Any]) -> tuple[Any, dict[str, str], bytes]:  # noqa: ANN401
    result = obstore.get(store, key, options=options)  # type: ignore[arg-type]
    body = b"" if options.get("head") else bytes(result.bytes())
    return result.meta, {str(name): str(value) for name, value in result.attributes.items()}, body


def _status(error: BaseException) -> int:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def _code(error: BaseException) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _reason(error: BaseException) -> str:
    """Return the first line of what obstore says, which names the request, the status and the store's code."""
    text = str(error).split("\n", 1)[0].strip()
    code = _code(error)
    return f"{text[:300]} ({code})" if code and code not in text else text[:300]
