"""The twin in memory, with faults on demand: the n-th call of a name fails, instead of being done or after it was.

Invariants: those of the contract, but for durability. A fault strikes once; what fails `after` was done, and the caller
cannot know. `delay_s` holds for every call.
"""

import itertools
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from strandline.clock import NS_PER_S, Clock, SystemClock
from strandline.errors import Closed, StrandlineError
from strandline.objects.contracts import (
    Buffer,
    Folder,
    Object,
    ObjectInfo,
    check_range,
    check_write,
    folder_of,
    in_one_folder,
)
from strandline.objects.errors import ObjectConflict
from strandline.objects.keys import validate_key, validate_prefix


@dataclass(slots=True)
class _Fault:
    call: str
    left: int
    error: StrandlineError
    after: bool


@dataclass(slots=True)
class ObjectFaults:
    """What is to go wrong with the calls of a memory store, and how often each was made."""

    delay_s: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)
    _pending: list[_Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, call: str, error: StrandlineError, *, nth: int = 1, after: bool = False) -> None:
        """Let the n-th call from now of this name (`put`, `get`, `list`, …) fail, `after` it was done or instead."""
        with self._lock:
            self._pending.append(_Fault(call, nth, error, after))

    def before(self, call: str) -> StrandlineError | None:
        """Wait, raise what fails instead of the call, and return what has to be raised after it."""
        if self.delay_s:
            time.sleep(self.delay_s)
        with self._lock:
            self.calls[call] = self.calls.get(call, 0) + 1
            struck = None
            for fault in [fault for fault in self._pending if fault.call == call]:
                fault.left -= 1
                if fault.left == 0 and struck is None:
                    struck = fault
            self._pending = [fault for fault in self._pending if fault.left > 0]
        if struck is not None and not struck.after:
            raise struck.error
        return struck.error if struck else None


class MemoryObjects:
    """An object store in this process's memory."""

    def __init__(self, name: str = "", *, clock: Clock | None = None) -> None:
        self.address = f"memory://{name}"
        self.faults = ObjectFaults()
        self._clock = clock or SystemClock()
        self._objects: dict[str, Object] = {}
        self._keys: list[str] = []
        self.sorts_bytes = True
        """False lets a test have what is done for stores of another order."""
        self._etags = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        check_range(start, stop)
        found = self._reading("get", key)
        if found is None or (start == 0 and stop is None):
            return found
        return Object(found.info, found.body[start:stop])

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        found = self._reading("head", key)
        return found.info if found else None

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
        failure = self._before("put")
        with self._lock:
            current = self._objects.get(key)
            if if_absent and current is not None:
                raise ObjectConflict(key, "it exists already")
            if if_match is not None and (current is None or current.info.etag != if_match):
                raise ObjectConflict(key, "it is missing" if current is None else "it was written by another")
            etag = self._store(key, bytes(body), metadata)
        if failure:
            raise failure
        return etag

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write an object from parts as they come; it appears when the last one is there."""
        validate_key(key)
        check_write(if_absent=False, if_match=None, metadata=metadata)
        failure = self._before("put_stream")
        body = b"".join(parts)
        with self._lock:
            etag = self._store(key, body, metadata)
        if failure:
            raise failure
        return etag

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        validate_key(key)
        failure = self._before("delete")
        with self._lock:
            if self._objects.pop(key, None) is not None:
                self._keys.remove(key)
        if failure:
            raise failure

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys greater than `start_after`, in the order of their keys."""
        validate_prefix(prefix)
        failure = self._before("list")
        if failure:
            raise failure
        return in_one_folder(self._listed(prefix, start_after), prefix, start_after)

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix with keys behind one, in the order of bytes."""
        failure = self._before("list")
        if failure:
            raise failure
        return self._listed(prefix, start_after)

    def list_folder(self, prefix: str) -> Folder:
        """Return what is directly below a prefix."""
        failure = self._before("list_folder")
        if failure:
            raise failure
        return folder_of(self._listed(prefix, ""), prefix)

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        with self._lock:
            first = bisect_left(self._keys, prefix) if start_after < prefix else bisect_right(self._keys, start_after)
            keys = self._keys[first:]
        for key in itertools.takewhile(lambda key: key.startswith(prefix), keys):
            found = self._objects.get(key)
            if found is not None:
                yield ObjectInfo(key, found.info.size, found.info.etag, found.info.modified)

    def close(self) -> None:
        """Refuse later calls; the objects are gone with the last reference."""
        self._closed = True

    def _before(self, call: str) -> StrandlineError | None:
        if self._closed:
            raise Closed(self.address)
        return self.faults.before(call)

    def _reading(self, call: str, key: str) -> Object | None:
        validate_key(key)
        failure = self._before(call)
        if failure:
            raise failure
        return self._objects.get(key)

    def _store(self, key: str, body: bytes, metadata: Mapping[str, str] | None) -> str:
        if key not in self._objects:
            insort(self._keys, key)
        modified = datetime.fromtimestamp(self._clock.now_ns() / NS_PER_S, UTC)
        info = ObjectInfo(key, len(body), f'"{next(self._etags)}"', modified, dict(metadata or {}))
        self._objects[key] = Object(info, body)
        return info.etag
