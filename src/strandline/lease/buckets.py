"""A lease's record as a key of a bucket; the key's revision is the version.

A bucket is asyncio's and a lease blocks, so the connection has a loop and a thread of its own. Invariants: a bucket
that may drop the current value of a key (age, time to live, a limit that drops the oldest) is refused, for it would
forget the epoch; a connection that was lost is made again with the next call.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from strandline.kv import Connection, KvStore, KvWriter, NotSupported, format_revision, parse_revision, validate_key
from strandline.lease.errors import InvalidLease
from strandline.lease.records import format_record, parse_record
from strandline.lease.stores import StoredRecord
from strandline.protocol.leadership import LeaseRecord

Result = TypeVar("Result")


class BucketLeaseStore:
    """The record as a key of a bucket that exists; the connection becomes this store's own."""

    def __init__(self, connection: Connection, bucket: str, key: str, *, server: str = "") -> None:
        self.address = f"{server}/{bucket}/{validate_key(key)}" if server else f"{bucket}/{key}"
        self._connection = connection
        self._bucket = bucket
        self._key = key
        self._store: KvStore | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease bucket", daemon=True)
        self._thread.start()
        try:
            self._run(self._check())
        except BaseException:
            self.close()
            raise

    def read(self) -> StoredRecord | None:
        """Return the record, None where there is none."""
        return self._run(self._read())

    def write(self, record: LeaseRecord, expected: str | None) -> str:
        """Replace the record of this version, None where there is none; return the new version."""
        return self._run(self._write(record, expected))

    def close(self) -> None:
        """Shut the connection down, and end the loop."""
        if not self._loop.is_running():
            return
        try:
            self._run(self._connection.shutdown())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def _check(self) -> None:
        store = await self._opened()
        self._writer(store)
        watcher = store.watcher()
        if watcher is not None and (await watcher.retention()).evicts_current_values:
            raise InvalidLease(
                f"bucket {self._bucket!r} may drop the current value of a key, and with it the epoch",
                hint="use a bucket without age, time to live, or a limit that discards the oldest",
            )

    async def _read(self) -> StoredRecord | None:
        found = await (await self._opened()).reader().get(self._key)
        if found is None:
            return None
        return StoredRecord(parse_record(found.value, self.address), str(parse_revision(found.version)))

    async def _write(self, record: LeaseRecord, expected: str | None) -> str:
        writer = self._writer(await self._opened())
        if expected is None:
            version = await writer.create(self._key, format_record(record))
        else:
            version = await writer.update(self._key, format_record(record), format_revision(int(expected)))
        return str(parse_revision(version))

    async def _opened(self) -> KvStore:
        await self._connection.connect()  # which does nothing if it is connected
        if self._store is None:
            self._store = await self._connection.store(self._bucket)
        return self._store

    def _writer(self, store: KvStore) -> KvWriter:
        writer = store.writer()
        if writer is None or not self._connection.capabilities.compare_and_swap:
            raise NotSupported(f"compare-and-swap in bucket {self._bucket!r}")
        return writer
