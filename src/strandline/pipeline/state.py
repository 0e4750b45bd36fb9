"""Scanner state: opaque keys and values, such as ref watermarks, seen objects and checkpoints.

Invariants: a batch is applied whole or not at all; of several operations on one key in a batch the last one holds;
tenants do not see one another's keys. Keys have 1 to 2048 bytes, values at most 16 MiB, and a call names at most 10,000
keys. A writer under an old fence is refused: one older than the shard's where the store knows the shard, otherwise one
older than the highest fence that wrote for the shard, which the store keeps under a key of its own. A scan that was not
finished must not move a watermark: that is the scanner's promise, not the store's.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from strandline.errors import InvalidInput, RecordTooLarge
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.identity import DIGEST_BYTES, TenantId
from strandline.pipeline.scope import FenceOf, WriteContext, check_fence, unknown_fence
from strandline.protocol.canonical import to_signed, to_unsigned

STATE_KEY_BYTES_MAX = 2048
STATE_VALUE_BYTES_MAX = 16 * 1024 * 1024
GATHERED_BYTES_MAX = 8 * 1024 * 1024
GATHERED_MAX = 64
_FENCES = b"\xff/strandline/fences/"
"""The prefix of the keys of fences; scanners cannot use it."""


def format_fence_key(writer: WriteContext) -> bytes:
    """Return the key under which a store keeps the highest fence that wrote for a shard."""
    return _FENCES + b"%016x/%016x" % (to_unsigned(writer.run_id), to_unsigned(writer.shard_id))


def parse_fence_key(key: bytes) -> tuple[int, int] | None:
    """Return (run, shard) of the key of a fence, or None where it is a scanner's key."""
    if not key.startswith(_FENCES):
        return None
    run, _, shard = key.removeprefix(_FENCES).partition(b"/")
    return to_signed(int(run, 16)), to_signed(int(shard, 16))


class Put(NamedTuple):
    """Set a key."""

    key: bytes
    value: bytes

    def __repr__(self) -> str:
        return f"Put({len(self.value)} bytes)"


class Delete(NamedTuple):
    """Delete a key, if it exists."""

    key: bytes

    def __repr__(self) -> str:
        return "Delete(…)"


class ScannerState(Protocol):
    """The store of scanner state. Every call is about one tenant, and sees nothing of another."""

    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a value for each key, in their order, as of one moment; None where there is none."""
        ...

    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        """Return the keys in `[first, end)` with their values, in order, at most so many; empty when there are none."""
        ...

    def put_first(self, tenant: TenantId, key: bytes, value: bytes) -> bytes:
        """Set a key unless it is there, durably, and return its value: the first writer sets it for all."""
        ...

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        """Apply operations, all or none, and return once they are durable; the last one on a key holds.

        With a `writer` it is `StaleFence` when the store knows a newer fence of the writer's shard, from coordination
        or from what was written before: values are replaced, not merged, so a worker that lost its shard must not write
        them over those of its successor. Without one nothing is asked.
        """
        ...


class GatheredPuts:
    """Writes of one caller that go into few batches: a batch costs a store as much as a value does."""

    def __init__(self, state: ScannerState, tenant: TenantId) -> None:
        self._state = state
        self._tenant = tenant
        self._waiting: list[Put] = []
        self._bytes = 0

    def add(self, put: Put) -> None:
        """Take a write, which is durable after the next `flush`."""
        self._waiting.append(put)
        self._bytes += len(put.value)
        if self._bytes >= GATHERED_BYTES_MAX or len(self._waiting) >= GATHERED_MAX:
            self.flush()

    def flush(self) -> None:
        """Return once all writes that were taken are durable; those of a batch that fails are taken still."""
        self._state.apply_batch(self._tenant, self._waiting)
        self._waiting, self._bytes = [], 0


class MemoryState:
    """The twin in memory."""

    def __init__(self, fence_of: FenceOf = unknown_fence) -> None:
        self._fence_of = fence_of
        self._values: dict[tuple[TenantId, bytes], bytes] = {}
        self._fences: dict[tuple[TenantId, bytes], int] = {}
        self._lock = threading.Lock()

    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a value for each key, in their order; None where there is none."""
        check_keys(tenant, keys)
        with self._lock:
            return [self._values.get((tenant, key)) for key in keys]

    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        """Return the keys in `[first, end)` with their values, in order, at most so many."""
        check_keys(tenant, [first, end])
        with self._lock:
            found = sorted(
                (key, value) for (of, key), value in self._values.items() if of == tenant and first <= key < end
            )
        return found[:limit]

    def put_first(self, tenant: TenantId, key: bytes, value: bytes) -> bytes:
        """Set a key unless it is there, and return its value then."""
        last_operations(tenant, [Put(key, value)], None)
        with self._lock:
            return self._values.setdefault((tenant, key), value)

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        """Apply operations, all or none; the last one on a key holds."""
        puts, deletes = last_operations(tenant, operations, writer)
        with self._lock:
            if writer is not None:
                known = self._fence_of(writer.tenant, writer.run_id, writer.shard_id)
                shard = (tenant, format_fence_key(writer))
                check_fence(writer, self._fences.get(shard) if known is None else known)
                self._fences[shard] = writer.fence
            self._values.update(((tenant, put.key), put.value) for put in puts)
            for key in deletes:
                self._values.pop((tenant, key), None)


def last_operations(
    tenant: TenantId, operations: Sequence[Put | Delete], writer: WriteContext | None
) -> tuple[list[Put], list[bytes]]:
    """Return the net effect of a batch: values to set and keys to delete, each key once."""
    if writer is not None and writer.tenant != tenant:
        raise InvalidInput("the writer is of another tenant")
    check_keys(tenant, [operation.key for operation in operations])
    if any(operation.key.startswith(_FENCES) for operation in operations):
        raise InvalidInput("a key is one of the store's own", hint="begin keys of scanners with something else")
    last = {operation.key: operation for operation in operations}
    puts = [operation for operation in last.values() if isinstance(operation, Put)]
    _check_values(puts)
    return puts, [operation.key for operation in last.values() if isinstance(operation, Delete)]


def check_keys(tenant: TenantId, keys: Sequence[bytes]) -> None:
    """Refuse keys that are too many, too long, or not bytes."""
    if len(tenant) != DIGEST_BYTES:
        raise InvalidInput(f"a tenant id is not {DIGEST_BYTES} bytes")
    if len(keys) > BATCH_ROWS_MAX:
        raise BatchTooLarge(len(keys), what="keys")
    for key in keys:
        if not isinstance(key, bytes):
            raise InvalidInput("a key is not bytes", hint="encode text with .encode()")
        if not 0 < len(key) <= STATE_KEY_BYTES_MAX:
            raise InvalidInput(f"a key of {len(key):,} bytes is not within 1 and {STATE_KEY_BYTES_MAX:,}")


def _check_values(puts: Iterable[Put]) -> None:
    for put in puts:
        if not isinstance(put.value, bytes):
            raise InvalidInput("a value is not bytes", hint="encode text with .encode()")
        if len(put.value) > STATE_VALUE_BYTES_MAX:
            raise RecordTooLarge(len(put.value), STATE_VALUE_BYTES_MAX, "value")
