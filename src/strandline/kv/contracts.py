"""The contracts of a bucket: connection, store, reader, watcher, watch, writer; each small enough to write anew.

Invariants, which `strandline.testing.check_kv_store` looks for:

* Revisions of a bucket only grow, and every write has one of its own. A failed write has none.
* What `put` returned, `get` returns, until another write, retention or a time to live takes its place.
* An empty value is a value, as for other clients; a key without a value was never set, deleted, purged, or is gone.
* A watch without a cursor tells the latest update of every key first, in the order of revisions, then each update as
  it is written, nothing twice and nothing out of order. With a cursor, it tells what the bucket still holds after it.
* A cursor before `first_revision - 1` raises `CursorExpired`: at the start of a watch, and in the middle of one that
  fell so far behind. Nothing is skipped in silence. A cursor beyond the last revision does too: it is that of another
  bucket, or of one that has lost its end.
* A prefix is empty or ends with a dot; so it means the same on every backend.
"""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from strandline.kv.config import Capabilities, ConnectionState, Retention, StoreConfig
from strandline.kv.entries import KvEntry, KvUpdate, UpdateBatch, VersionToken, WatchCursor
from strandline.nats.read_plan import Overrun


class KvReader(Protocol):
    """Reads of a moment."""

    async def get(self, key: str) -> KvEntry | None:
        """Return the key's current value, which may be empty; None if it has none or was deleted."""
        ...

    async def history(self, key: str) -> list[KvUpdate]:
        """Return the key's updates that are kept, oldest first, deletes and purges as what they are."""
        ...

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that have a value, in the order of their revisions."""
        ...

    async def scan(self, prefix: str = "") -> list[KvEntry]:
        """Return the current values, in the order of their revisions."""
        ...

    def scan_batches(self, prefix: str = "") -> AsyncIterator[UpdateBatch]:
        """Yield the current values as columns, in the order of their revisions; all of them are puts."""
        ...


class Watch(Protocol):
    """Updates as they come; iterate over it, or take whole batches."""

    @property
    def is_current(self) -> bool:
        """Tell whether everything that was there when the watch began was handed out."""
        ...

    @property
    def frontier(self) -> int:
        """Return the revision up to which everything that it watches was handed out, 0 if unknown; it never falls."""
        ...

    async def batch(self, updates_max: int = 4096) -> UpdateBatch:
        """Wait for updates and return those that are there, at least one; `Closed` after `stop`.

        One that is cancelled while it waits has taken nothing: the next call returns what came meanwhile.
        """
        ...

    async def stop(self) -> None:
        """End the watch; a second time does nothing."""
        ...

    def __aiter__(self) -> AsyncIterator[KvUpdate]:
        """Yield update by update until the watch is stopped."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class KvWatcher(Protocol):
    """Watches of a bucket: those without a cursor begin with its state, `…_from` with what follows the cursor.

    `NO_CURSOR` given to a `…_from` is the same as none.
    """

    async def watch_all(self) -> Watch:
        """Watch every key."""
        ...

    async def watch_prefix(self, prefix: str) -> Watch:
        """Watch the keys below a prefix."""
        ...

    async def watch_prefixes(self, prefixes: Sequence[str]) -> Watch:
        """Watch the keys below any of some prefixes, in one order."""
        ...

    async def watch_all_from(self, cursor: WatchCursor) -> Watch:
        """Watch every key, after a cursor; `CursorExpired` if the bucket does not reach back to it."""
        ...

    async def watch_prefix_from(self, prefix: str, cursor: WatchCursor) -> Watch:
        """Watch the keys below a prefix, after a cursor; `CursorExpired` as above."""
        ...

    async def watch_prefixes_from(self, prefixes: Sequence[str], cursor: WatchCursor) -> Watch:
        """Watch the keys below any of some prefixes, after a cursor; `CursorExpired` as above."""
        ...

    async def retention(self) -> Retention:
        """Return what the bucket has kept, now."""
        ...


class KvWriter(Protocol):
    """Writes of one key at a time; each returns the version it made."""

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> VersionToken:
        """Set a key, whatever it was; with a time to live, only for so long, in whole seconds, rounded up."""
        ...

    async def create(self, key: str, value: bytes, *, ttl_s: float | None = None) -> VersionToken:
        """Set a key that has no value, an empty one being one; else `AlreadyExists`."""
        ...

    async def update(self, key: str, value: bytes, version: VersionToken) -> VersionToken:
        """Set a key whose last write has this version; else `RevisionMismatch`."""
        ...

    async def delete(self, key: str) -> VersionToken:
        """Mark a key as deleted, whether or not it has a value; its history stays."""
        ...

    async def delete_with_version(self, key: str, version: VersionToken) -> VersionToken:
        """Mark a key as deleted if its last write has this version; else `RevisionMismatch`."""
        ...

    async def purge(self, key: str) -> VersionToken:
        """Mark a key as deleted and remove its history."""
        ...


class KvStore(Protocol):
    """One bucket; watcher and writer are None where the backend has none, and capabilities say so before."""

    @property
    def name(self) -> str:
        """Return the bucket's name."""
        ...

    def reader(self) -> KvReader:
        """Return the bucket's reader."""
        ...

    def watcher(self, *, overrun: Overrun = Overrun.PROBE) -> KvWatcher | None:
        """Return the bucket's watcher, None if it cannot be watched; `overrun` is for its watches of prefixes."""
        ...

    def writer(self) -> KvWriter | None:
        """Return the bucket's writer, None if it cannot be written."""
        ...


class Connection(Protocol):
    """A connection that is opened and shut down, perhaps more than once, and hands out buckets."""

    @property
    def state(self) -> ConnectionState:
        """Return where it stands in its life."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Return what its buckets can do; known before it is connected."""
        ...

    async def connect(self) -> None:
        """Connect; does nothing if it is connected."""
        ...

    async def shutdown(self) -> None:
        """End every watch and disconnect; does nothing if it is not connected."""
        ...

    async def is_healthy(self) -> bool:
        """Tell whether a request would be answered now; never raises."""
        ...

    async def store(self, name: str, config: StoreConfig | None = None) -> KvStore:
        """Return a bucket; it is created if there is none and a config is given, else `BucketNotFound`.

        If there is one, and its settings are not those of the config, `BucketExists` names the differences.
        """
        ...
