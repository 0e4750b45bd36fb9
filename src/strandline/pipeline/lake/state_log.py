"""Batches of scanner state as objects: a numbered log for each tenant, and snapshots of it.

    batch       "SLB1", id 16 bytes, count u32, then for each operation: kind u8, key (bytes), value (bytes)
    snapshot    the same, with one operation for each key, in order

    kind        0 the value is set; 1 the value is an object of its own, and this is its id; 2 the key is deleted

A batch is one object under the next number, created only if it is absent: so batches are whole, in one order for all,
and a batch is decided on everything before it. What a batch means is the fold of the log up to it.

Invariants: a number is used once; a value is durable before its batch; a snapshot is exactly the fold of the log up to
its number; bytes that no writer produces are `Damaged`.
"""

import secrets
import struct
import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

from strandline.errors import Damaged, Unavailable, UnknownOutcome
from strandline.objects import ObjectConflict, ObjectStore, WriteUnknown
from strandline.pipeline.identity import TenantId
from strandline.pipeline.lake.layout import (
    format_log,
    format_log_prefix,
    format_snapshot,
    format_snapshots_prefix,
    format_trimmed,
    format_value,
    parse_number,
)
from strandline.protocol.canonical import prefixed

INLINE_BYTES_MAX = 4_096
SNAPSHOT_EVERY = 256
STALE_S = 1_800.0
"""A reader that has not read the log for so long begins at the last snapshot: old batches may be gone."""
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Each process measures how long it was away itself. The monotonic clock of Linux stands while the machine sleeps."""
_MAGIC = b"SLB1"
_ID_BYTES = 16
_HEAD = struct.Struct("<4s16sI")
_U32 = struct.Struct("<I")
_SET, _POINTS, _DELETED = 0, 1, 2
_ATTEMPTS = 5
_THREADS = 16
T = TypeVar("T")


class Operation(NamedTuple):
    """A change of one key."""

    kind: int
    key: bytes
    value: bytes = b""


class Batch(NamedTuple):
    """Operations that hold together, with the id that tells two writers apart."""

    id: bytes
    operations: tuple[Operation, ...]


class Value(NamedTuple):
    """The value of a key, or the id of the object that has it."""

    data: bytes
    is_id: bool


def boot_time_s() -> float:
    """Return a time that only rises, also while the machine sleeps."""
    return time.clock_gettime(CLOCK)


def set_key(key: bytes, value: bytes) -> Operation:
    """Return the operation that sets a key."""
    return Operation(_SET, key, value)


def delete_key(key: bytes) -> Operation:
    """Return the operation that deletes a key."""
    return Operation(_DELETED, key)


def format_batch(batch: Batch) -> bytes:
    """Return a batch as bytes."""
    head = _HEAD.pack(_MAGIC, batch.id, len(batch.operations))
    return head + b"".join(bytes([kind]) + prefixed(key) + prefixed(value) for kind, key, value in batch.operations)


def parse_batch(data: bytes, where: str) -> Batch:
    """Return a batch from its bytes."""
    try:
        magic, named, count = _HEAD.unpack_from(data)
        at, operations = _HEAD.size, []
        for _ in range(count):
            kind = data[at]
            key, at = _field(data, at + 1)
            value, at = _field(data, at)
            operations.append(Operation(kind, key, value))
    except (struct.error, IndexError):
        raise _damaged(where, "it ends too early") from None
    if magic != _MAGIC or at != len(data) or any(kind > _DELETED for kind, *_ in operations):
        raise _damaged(where, "it is no batch of scanner state")
    return Batch(named, tuple(operations))


def value_ids_of(batch: Batch) -> dict[bytes, bytes]:
    """Return the ids of the values that a batch names, by their keys."""
    return {key: value for kind, key, value in batch.operations if kind == _POINTS}


class StateLog:
    """The log of one tenant, and the fold of what was read of it."""

    def __init__(self, store: ObjectStore, tenant: TenantId, stopwatch_s: Callable[[], float] = boot_time_s) -> None:
        self._store = store
        self._stopwatch_s = stopwatch_s
        self._tenant = tenant
        self._values: dict[bytes, Value] = {}
        self._keys: list[bytes] = []
        self._next = 0
        self._read_s: float | None = None
        self._lock = threading.RLock()

    def read(self, look: Callable[["StateLog"], T]) -> T:
        """Return an answer about everything that was written before the call, as of one moment."""
        with self._lock:
            self._catch_up()
            return look(self)

    def append(self, decide: Callable[["StateLog"], Sequence[Operation] | None]) -> None:
        """Add the operations that `decide` returns about the whole log; it is asked again if another batch came."""
        named = secrets.token_bytes(_ID_BYTES)
        stored: dict[Operation, Operation] = {}  # a value is written once, however often the batch is tried
        with self._lock:
            self._catch_up()
            while operations := decide(self):
                new = [operation for operation in operations if operation not in stored]
                stored.update(zip(new, self._all_stored(new), strict=True))
                batch = Batch(named, tuple(stored[operation] for operation in operations))
                if self._create(batch) and self._is_next():
                    self._apply(batch)
                    self._snapshot()
                    return
                self._catch_up()

    # Reads of the folded values; callers hold the lock of the log.

    def get(self, key: bytes) -> Value | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def between(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, Value]]:
        """Yield the keys in `[first, end)` with their values, in order."""
        for at in range(bisect_left(self._keys, first), len(self._keys)):
            if self._keys[at] >= end:
                return
            yield self._keys[at], self._values[self._keys[at]]

    def value_ids(self) -> set[bytes]:
        """Return the ids of all values that are objects of their own."""
        return {value.data for value in self._values.values() if value.is_id}

    def fetch(self, values: Iterable[Value | None]) -> list[bytes | None]:
        """Return values in full."""
        asked = list(values)
        if sum(1 for value in asked if value is not None and value.is_id) <= 1:
            return list(map(self._fetched, asked))
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._fetched, asked))

    # Implementation.

    def _fetched(self, value: Value | None) -> bytes | None:
        if value is None or not value.is_id:
            return None if value is None else value.data
        key = format_value(self._tenant, value.data)
        found = self._store.get(key)
        if found is None:
            raise _damaged(f"{self._store.address}: {key}", "a value of scanner state is gone")
        return found.body

    def _all_stored(self, operations: Sequence[Operation]) -> list[Operation]:
        """Write large values; they need no order, so several are written at once."""
        if sum(map(_is_large, operations)) <= 1:
            return list(map(self._stored, operations))
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._stored, operations))

    def _stored(self, operation: Operation) -> Operation:
        """Write a large value as an object of its own, under an id that nothing else has."""
        if not _is_large(operation):
            return operation
        named = secrets.token_bytes(_ID_BYTES)
        for attempt in range(_ATTEMPTS):
            try:
                self._store.put(format_value(self._tenant, named), operation.value)
                break
            except WriteUnknown:  # the same bytes under a name of their own may be written twice
                if attempt == _ATTEMPTS - 1:
                    raise
        return Operation(_POINTS, operation.key, named)

    def _create(self, batch: Batch) -> bool:
        """Write a batch under the next number; return False if another one has it."""
        key, body = format_log(self._tenant, self._next), format_batch(batch)
        for attempt in range(_ATTEMPTS):
            try:
                self._store.put(key, body, if_absent=True)
            except ObjectConflict:
                return self._is_ours(key, batch)
            except WriteUnknown:
                if attempt == _ATTEMPTS - 1:
                    raise
                if self._store.head(key) is not None:
                    return self._is_ours(key, batch)
            else:
                return True
        return False

    def _is_next(self) -> bool:
        """Return whether the batch that was just written is the last of the log, and not in place of a deleted one.

        Old batches are deleted in order. A writer that slept so long that its number was used, and deleted, meanwhile
        finds the number free: but then the batch before it is gone, too. The first batch has none before it: an object
        that is written before any batch is deleted tells.
        """
        number = self._next
        if number == 0:
            if self._store.head(format_trimmed(self._tenant)) is None:
                return True
        elif self._store.head(format_log(self._tenant, number - 1)) is not None:
            return True
        self._store.delete(format_log(self._tenant, number))
        self._load()
        if self._next == number:
            raise _damaged(self._store.address, f"batch {number - 1:,} of scanner state is gone")
        return False

    def _is_ours(self, key: str, batch: Batch) -> bool:
        found = self._store.get(key)
        return found is not None and parse_batch(found.body, key).id == batch.id

    def _catch_up(self) -> None:
        now_s = self._stopwatch_s()
        if self._read_s is None or now_s - self._read_s > STALE_S:
            self._load()
        while (found := self._store.get(format_log(self._tenant, self._next))) is not None:
            self._apply(parse_batch(found.body, f"{self._store.address}: {found.info.key}"))
        self._read_s = now_s

    def _load(self) -> None:
        """Begin at the last snapshot, and read what follows it at once."""
        self._values, self._keys, self._next = {}, [], 0
        snapshots = sorted(info.key for info in self._store.list(format_snapshots_prefix(self._tenant)))
        if snapshots:
            found = self._store.get(snapshots[-1])
            if found is None:
                raise _damaged(f"{self._store.address}: {snapshots[-1]}", "a snapshot of scanner state is gone")
            self._apply(parse_batch(found.body, snapshots[-1]))
            self._next = parse_number(snapshots[-1]) + 1
        prefix = format_log_prefix(self._tenant)
        listed = sorted(parse_number(info.key) for info in self._store.list(prefix))
        # A listing is not of one moment: it may have a batch and lack one before it that was written meanwhile.
        ahead = range(self._next, max([self._next - 1, *listed]) + 1)
        with ThreadPoolExecutor(_THREADS) as pool:
            for found in pool.map(self._store.get, [format_log(self._tenant, number) for number in ahead]):
                if found is None:
                    raise _damaged(f"{self._store.address}: {prefix}", f"batch {self._next:,} of scanner state is gone")
                self._apply(parse_batch(found.body, f"{self._store.address}: {found.info.key}"))

    def _apply(self, batch: Batch) -> None:
        for kind, key, value in batch.operations:
            if kind == _DELETED:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
                continue
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = Value(value, kind == _POINTS)
        self._next += 1

    def _snapshot(self) -> None:
        """Write a snapshot now and then; every writer would write the same bytes."""
        if self._next % SNAPSHOT_EVERY == 0:
            operations = [
                Operation(_POINTS if value.is_id else _SET, key, value.data)
                for key, value in sorted(self._values.items())
            ]
            body = format_batch(Batch(bytes(_ID_BYTES), tuple(operations)))
            with suppress(Unavailable, UnknownOutcome):  # the batch is durable, and a later one brings a snapshot
                self._store.put(format_snapshot(self._tenant, self._next - 1), body)


def _is_large(operation: Operation) -> bool:
    return operation.kind == _SET and len(operation.value) > INLINE_BYTES_MAX


def _field(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _U32.unpack_from(data, at)
    end = at + _U32.size + size
    if end > len(data):
        raise IndexError
    return data[at + _U32.size : end], end


def _damaged(where: str, problem: str) -> Damaged:
    return Damaged(where, problem, safe="nothing was changed; restore the object from a copy or an older version")
