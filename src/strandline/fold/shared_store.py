"""A store that a restarting watch and its readers share, so that readers are answered meanwhile.

Invariants: at most one store is open. A watch that closes a store which has not failed only gives it back; one that
failed is closed, and the next watch opens it anew. Readers wait while there is none, but not for ever.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from strandline.errors import Closed, StrandlineError
from strandline.fold.batches import FoldBatch, Pages, VersionPages
from strandline.fold.records import FoldEntry
from strandline.fold.store import PAGE_ROWS, Held, SnapshotStore, StoreFiles, StoreSnapshot, Verified, versions_of
from strandline.kv import WatchCursor

WAIT_S = 30.0


class SharedStore:
    """Opens a store once, lends it to watches, and answers readers from it."""

    def __init__(self, open_store: Callable[[], SnapshotStore], name: str) -> None:
        self._open_store = open_store
        self._name = name
        self._changed = threading.Condition()
        self._store: SnapshotStore | None = None
        self._is_closed = False

    def open(self) -> "StoreHandle":
        """Lend the store, opened if it is not."""
        with self._changed:
            if self._is_closed:
                raise Closed(self._name)
            if self._store is None:
                self._store = self._open_store()
                self._changed.notify_all()
            return StoreHandle(self, self._store)

    def reader(self) -> SnapshotStore:
        """Return the store to ask; waits while it is being opened again, and is `Closed` if it will not be."""
        with self._changed:
            self._changed.wait_for(lambda: self._store is not None or self._is_closed, WAIT_S)
            if self._store is None:
                raise Closed(self._name)
            return self._store

    def give_up(self, store: SnapshotStore) -> None:
        """Close a store that has failed."""
        with self._changed:
            if self._store is store:
                self._store = None
        store.close()

    def close(self) -> None:
        """Close the store for good; twice is harmless."""
        with self._changed:
            store, self._store, self._is_closed = self._store, None, True
            self._changed.notify_all()
        if store is not None:
            store.close()


class StoreHandle:
    """A `SnapshotStore` that is given back rather than closed, unless it has failed."""

    def __init__(self, lender: SharedStore, store: SnapshotStore) -> None:
        self._lender = lender
        self._store = store
        self._has_failed = False

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Make a batch and the cursor after it part of the store."""
        try:
            self._store.apply(batch, cursor)
        except (StrandlineError, OSError):
            self._has_failed = True
            raise

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return self._store.load()

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        return self._store.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        return self._store.multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        return self._store.range(prefix)

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        return self._store.for_each_in_range(prefix, visit)

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns, and the cursor of the same moment."""
        return self._store.pages(prefix, rows_max)

    def versions(self) -> VersionPages:
        """Return keys and versions of everything, in no order."""
        return versions_of(self._store)

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        return self._store.cursor()

    def files(self) -> StoreFiles:
        """Return what keeps the store, and where."""
        return self._store.files()

    def snapshot(self, beside: Path) -> StoreSnapshot:
        """Return the present moment."""
        return self._store.snapshot(beside)

    def prepare_snapshot(self) -> None:
        """Do beforehand what would make the next snapshot slow, where the store has such work."""
        prepare: Callable[[], None] | None = getattr(self._store, "prepare_snapshot", None)
        if prepare is not None:
            prepare()

    def settle(self) -> None:
        """Do now what is otherwise done later."""
        self._store.settle()

    def verify(self) -> Verified:
        """Read everything from where it is kept, and return its digest."""
        return self._store.verify()

    def close(self) -> None:
        """Give the store back; close it if it has failed."""
        if self._has_failed:
            self._lender.give_up(self._store)
