"""The memory twin: buckets in this process with all that a server's have, and faults on demand.

A `MemoryServer` holds the buckets, and any number of `MemoryConnection`s share it, as clients share a server. It is a
twin for tests and simulations, and a bucket for programs that need no server.

Invariants: everything happens in one event loop. Time is the clock's, looked at with every call; nothing expires
between calls. A dropped connection cuts its watches off and refuses calls until it is restored; then the watches go on
without a gap or a repeat, or tell `CursorExpired`.
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict

from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, InvalidInput, StrandlineError
from strandline.kv.config import Capabilities, ConnectionState, Retention, StoreConfig, format_differences
from strandline.kv.contracts import KvReader, KvStore, KvWatcher, KvWriter, Watch
from strandline.kv.entries import (
    KvEntry,
    KvUpdate,
    UpdateBatch,
    UpdateKind,
    VersionToken,
    WatchCursor,
    format_revision,
    make_update,
    parse_cursor,
    parse_revision,
)
from strandline.kv.errors import (
    AlreadyExists,
    BucketExists,
    BucketNotFound,
    NotConnected,
    NotSupported,
    RevisionMismatch,
)
from strandline.kv.faults import Faults
from strandline.kv.keys import key_filter, validate_bucket, validate_key
from strandline.kv.memory_log import MemoryLog, Record
from strandline.kv.memory_watch import MemoryWatch, to_batch
from strandline.kv.watch_forms import WatchForms
from strandline.nats.errors import ConnectionDropped
from strandline.nats.read_plan import Overrun

SCAN_BATCH = 4096
TTL_S_MIN = 1.0


class MemoryServer:
    """Buckets by name, shared by connections; hand in a `ManualClock` to decide what time it is."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.buckets: dict[str, MemoryLog] = {}

    def bucket(self, name: str) -> MemoryLog:
        """Return a bucket's log, with what is too old removed; `BucketNotFound`."""
        if name not in self.buckets:
            raise BucketNotFound(name)
        log = self.buckets[name]
        log.expire(self.clock.now_ns())
        return log

    def remove_bucket(self, name: str) -> None:
        """Remove a bucket with all it holds; its watches end with `BucketNotFound`."""
        log = self.buckets.pop(name, None)
        for listener in list(log.listeners) if log else ():
            listener.lose(BucketNotFound(name))


class MemoryConnection:
    """A `Connection` to a `MemoryServer`; `faults` and `drop` make trouble."""

    def __init__(self, server: MemoryServer | None = None, *, watch: bool = True, write: bool = True) -> None:
        self.server = server or MemoryServer()
        self.faults = Faults()
        self._state = ConnectionState.NEW
        self._is_dropped = False
        self._watches: list[MemoryWatch] = []
        self._capabilities = Capabilities(watch, write, write, watch, watch, write, write)

    @property
    def state(self) -> ConnectionState:
        """Return where it stands in its life."""
        return self._state

    @property
    def capabilities(self) -> Capabilities:
        """Return what its buckets can do."""
        return self._capabilities

    async def connect(self) -> None:
        """Connect; does nothing if it is connected."""
        await self.faults.before("connect")
        self._state = ConnectionState.CONNECTED

    async def shutdown(self) -> None:
        """End every watch and disconnect; does nothing if it is not connected."""
        if self._state is not ConnectionState.CONNECTED:
            return
        self._state = ConnectionState.SHUTDOWN
        for watch in self._watches:
            watch.fail(Closed("the connection"))
        self._watches.clear()

    async def is_healthy(self) -> bool:
        """Tell whether a request would be answered now; never raises."""
        return self._state is ConnectionState.CONNECTED and not self._is_dropped

    async def store(self, name: str, config: StoreConfig | None = None) -> KvStore:
        """Return a bucket; it is created if there is none and a config is given, else `BucketNotFound`."""
        validate_bucket(name)
        failure = await self.check("store")
        if config is not None and name not in self.server.buckets:
            self.server.buckets[name] = MemoryLog(name, config)
        log = self.server.bucket(name)
        if config is not None and log.config != config:
            raise BucketExists(name, format_differences(asdict(config), asdict(log.config)))
        if failure is not None:
            raise failure
        return MemoryStore(self, name)

    def drop(self) -> None:
        """Lose the connection: calls raise `ConnectionDropped`, watches hear nothing."""
        self._is_dropped = True
        for watch in self._watches:
            watch.cut()

    def restore(self) -> None:
        """Have the connection back; watches catch up, or fail if the bucket has lost what they missed."""
        self._is_dropped = False
        for watch in self._watches:
            watch.mend(self.server.buckets.get(watch.name))

    async def check(self, call: str) -> StrandlineError | None:
        """Raise what stands in the way of a call; return what is to be raised after it."""
        if self._state is not ConnectionState.CONNECTED:
            raise NotConnected(self._state.value)
        if self._is_dropped:
            raise ConnectionDropped
        return await self.faults.before(call)

    def add_watch(self, watch: MemoryWatch) -> MemoryWatch:
        """Have a watch share the connection's fate."""
        self._watches.append(watch)
        return watch


class MemoryStore:
    """A bucket of a `MemoryServer`, with its reader, watcher and writer."""

    def __init__(self, connection: MemoryConnection, name: str) -> None:
        self._connection = connection
        self._name = name

    @property
    def name(self) -> str:
        """Return the bucket's name."""
        return self._name

    def reader(self) -> KvReader:
        """Return the bucket's reader."""
        return MemoryReader(self._connection, self._name)

    def watcher(self, *, overrun: Overrun = Overrun.PROBE) -> KvWatcher | None:
        """Return the bucket's watcher, None if the connection was made without."""
        return MemoryWatcher(self._connection, self._name, overrun) if self._connection.capabilities.watch else None

    def writer(self) -> KvWriter | None:
        """Return the bucket's writer, None if the connection was made without."""
        return MemoryWriter(self._connection, self._name) if self._connection.capabilities.write else None


class _Role:
    """What reader, watcher and writer share: each call asks for the bucket anew, so that a removed one is noticed."""

    def __init__(self, connection: MemoryConnection, name: str) -> None:
        self._connection = connection
        self._name = name

    async def _log(self, call: str) -> MemoryLog:
        """Return the bucket for a call that changes nothing, so that failing after it is failing."""
        failure = await self._connection.check(call)
        if failure is not None:
            raise failure
        return self._connection.server.bucket(self._name)

    def _now_ns(self) -> int:
        return self._connection.server.clock.now_ns()


def _entry(record: Record) -> KvEntry:
    return KvEntry(record.key, record.value, format_revision(record.revision), record.created_ns, record.expires_ns)


def _is_live(record: Record | None) -> bool:
    return record is not None and record.kind is UpdateKind.PUT


class MemoryReader(_Role):
    """The reader of a memory bucket."""

    async def get(self, key: str) -> KvEntry | None:
        """Return the key's current value, which may be empty; None if it has none or was deleted."""
        log = await self._log("get")
        record = log.last_of(validate_key(key))
        return _entry(record) if record is not None and _is_live(record) else None

    async def history(self, key: str) -> list[KvUpdate]:
        """Return the key's updates that are kept, oldest first, deletes and purges as what they are."""
        log = await self._log("history")
        records = log.history_of(validate_key(key))
        return [make_update(each.kind, each.key, format_revision(each.revision), each.value) for each in records]

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that have a value, in the order of their revisions."""
        return [record.key for record in await self._live("keys", prefix)]

    async def scan(self, prefix: str = "") -> list[KvEntry]:
        """Return the current values, in the order of their revisions."""
        return [_entry(record) for record in await self._live("scan", prefix)]

    async def scan_batches(self, prefix: str = "") -> AsyncIterator[UpdateBatch]:
        """Yield the current values as columns, in the order of their revisions; all of them are puts."""
        records = await self._live("scan", prefix)
        for start in range(0, len(records), SCAN_BATCH):
            yield to_batch(records[start : start + SCAN_BATCH])

    async def _live(self, call: str, prefix: str) -> list[Record]:
        log = await self._log(call)
        wanted = key_filter([prefix])
        return [record for record in log.latest() if _is_live(record) and wanted(record.key)]


class MemoryWatcher(_Role, WatchForms):
    """The watcher of a memory bucket."""

    def __init__(self, connection: MemoryConnection, name: str, overrun: Overrun = Overrun.PROBE) -> None:
        super().__init__(connection, name)
        self._overrun = overrun

    async def retention(self) -> Retention:
        """Return what the bucket has kept, now."""
        log = await self._log("retention")
        return log.retention()

    async def _watch(self, prefixes: Sequence[str], cursor: WatchCursor | None) -> Watch:
        wanted = key_filter(prefixes)
        position = None if cursor is None else parse_cursor(cursor)
        log = await self._log("watch")
        overrun = Overrun.SENTINEL if "" in prefixes else self._overrun
        return self._connection.add_watch(MemoryWatch(log, wanted, position, overrun))


class MemoryWriter(_Role):
    """The writer of a memory bucket."""

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> VersionToken:
        """Set a key, whatever it was; with a time to live, only for so long."""
        return await self._write("put", UpdateKind.PUT, key, value, ttl_s=ttl_s)

    async def create(self, key: str, value: bytes, *, ttl_s: float | None = None) -> VersionToken:
        """Set a key that has no value, an empty one being one; else `AlreadyExists`."""

        def absent(last: Record | None) -> None:
            if _is_live(last):
                raise AlreadyExists(key)

        return await self._write("create", UpdateKind.PUT, key, value, absent, ttl_s=ttl_s)

    async def update(self, key: str, value: bytes, version: VersionToken) -> VersionToken:
        """Set a key whose last write has this version; else `RevisionMismatch`."""
        return await self._write("update", UpdateKind.PUT, key, value, _same_version(key, version))

    async def delete(self, key: str) -> VersionToken:
        """Mark a key as deleted, whether or not it has a value; its history stays."""
        return await self._write("delete", UpdateKind.DELETE, key, b"")

    async def delete_with_version(self, key: str, version: VersionToken) -> VersionToken:
        """Mark a key as deleted if its last write has this version; else `RevisionMismatch`."""
        return await self._write("delete_with_version", UpdateKind.DELETE, key, b"", _same_version(key, version))

    async def purge(self, key: str) -> VersionToken:
        """Mark a key as deleted and remove its history."""
        return await self._write("purge", UpdateKind.PURGE, key, b"")

    async def _write(
        self,
        call: str,
        kind: UpdateKind,
        key: str,
        value: bytes,
        allow: Callable[[Record | None], None] = lambda _: None,
        *,
        ttl_s: float | None = None,
    ) -> VersionToken:
        validate_key(key)
        failure = await self._connection.check(call)
        log = self._connection.server.bucket(self._name)
        if ttl_s is not None and not log.config.ttl:
            raise NotSupported("a time to live for single values", hint="create the bucket with StoreConfig(ttl=True)")
        if ttl_s is not None and ttl_s < TTL_S_MIN:
            raise InvalidInput(f"a time to live of {ttl_s} s is shorter than a second")
        allow(log.last_of(key))
        record = log.append(kind, key, bytes(value), self._now_ns(), math.ceil(ttl_s) if ttl_s is not None else None)
        if failure is not None:
            raise failure
        return format_revision(record.revision)


def _same_version(key: str, version: VersionToken) -> Callable[[Record | None], None]:
    revision = parse_revision(version)
    if revision is None:
        raise InvalidInput("an unknown version cannot be compared", hint="read the entry to learn its version")

    def check(last: Record | None) -> None:
        if (last.revision if last else 0) != revision:
            raise RevisionMismatch(key)

    return check
