"""A store in memory: the twin of the durable ones, for tests and for folds that may be built again.

Invariants: it keeps the whole contract of `SnapshotStore` but one promise: nothing outlives the object.
"""

from collections.abc import Callable, Sequence
from typing import Self

from strandline.errors import Closed
from strandline.fold.batches import FoldBatch, check_cursor
from strandline.fold.records import FoldEntry
from strandline.fold.resident import ResidentFold
from strandline.fold.store import Held, Verified
from strandline.kv import WatchCursor


class MemoryStore:
    """A `SnapshotStore` that forgets everything with its process."""

    def __init__(self) -> None:
        self._fold: ResidentFold | None = ResidentFold()

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return self._open().held()

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Make a batch and the cursor after it part of the store."""
        fold = self._open()
        check_cursor(cursor)
        fold.apply(batch, cursor)

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        return self._open().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        return self._open().multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        return self._open().entries(prefix)

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        return self._open().visit(prefix, visit)

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        return self._open().cursor

    def settle(self) -> None:
        """There is nothing to do later."""
        self._open()

    def verify(self) -> Verified:
        """Return the digest of everything."""
        return self._open().verified()

    def close(self) -> None:
        """Forget everything."""
        self._fold = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> ResidentFold:
        if self._fold is None:
            raise Closed("the store")
        return self._fold
