"""Scanner state in object storage, as a log of batches for each tenant.

A writer's fence is checked twice: against the shard's, which is read before, and against the highest fence that wrote
for the shard, which stands in the log itself. The second check is exact: no batch comes between it and its own.
"""

import threading
from collections.abc import Sequence
from itertools import islice

from strandline.objects import ObjectStore
from strandline.pipeline.identity import TenantId
from strandline.pipeline.lake.state_log import Operation, StateLog, Value, delete_key, set_key
from strandline.pipeline.scope import FenceOf, WriteContext, check_fence, unknown_fence
from strandline.pipeline.state import Delete, Put, check_keys, format_fence_key, last_operations


class LakeState:
    """Scanner state in a store of objects."""

    def __init__(self, store: ObjectStore, fence_of: FenceOf = unknown_fence) -> None:
        self._store = store
        self._fence_of = fence_of
        self._logs: dict[TenantId, StateLog] = {}
        self._lock = threading.Lock()

    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a value for each key, in their order, as of one moment; None where there is none."""
        check_keys(tenant, keys)
        log = self.log(tenant)
        return log.fetch(log.read(lambda fold: [fold.get(key) for key in keys]))

    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        """Return the keys in `[first, end)` with their values, in order, at most so many."""
        check_keys(tenant, [first, end])
        log = self.log(tenant)
        found: list[tuple[bytes, Value]] = log.read(lambda fold: list(islice(fold.between(first, end), limit)))
        values = log.fetch(value for _, value in found)
        return [(key, value) for (key, _), value in zip(found, values, strict=True) if value is not None]

    def put_first(self, tenant: TenantId, key: bytes, value: bytes) -> bytes:
        """Set a key unless it is there, durably, and return its value then."""
        last_operations(tenant, [Put(key, value)], None)
        log = self.log(tenant)
        log.append(lambda fold: None if fold.get(key) is not None else [set_key(key, value)])
        (found,) = log.fetch(log.read(lambda fold: [fold.get(key)]))
        return value if found is None else found

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        """Apply operations, all or none, and return once they are durable; the last one on a key holds."""
        puts, deletes = last_operations(tenant, operations, writer)
        if not (puts or deletes):
            return
        changes = [*(set_key(*put) for put in puts), *map(delete_key, deletes)]
        known = None if writer is None else self._fence_of(writer.tenant, writer.run_id, writer.shard_id)

        def decide(fold: StateLog) -> list[Operation]:
            if writer is None:
                return changes
            written = fold.get(format_fence_key(writer))
            highest = None if written is None else int.from_bytes(written.data, "big")
            check_fence(writer, known if highest is None else max(highest, known or 0))
            if highest == writer.fence:
                return changes
            return [set_key(format_fence_key(writer), writer.fence.to_bytes(8, "big")), *changes]

        self.log(tenant).append(decide)

    def log(self, tenant: TenantId) -> StateLog:
        """Return the log of a tenant."""
        with self._lock:
            return self._logs.setdefault(tenant, StateLog(self._store, tenant))
