"""What the stores have in common that answer from memory.

Invariants: every question goes to the fold in memory; a closed store has none, and says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

from strandline.fold.batches import Pages
from strandline.fold.records import FoldEntry
from strandline.fold.resident import ResidentFold
from strandline.fold.store import PAGE_ROWS, Held, Verified
from strandline.kv import WatchCursor


class ResidentReader(ABC):
    """A `FoldReader` that answers from memory."""

    @abstractmethod
    def _open(self) -> ResidentFold:
        """Return the fold; `Closed` if it is."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; twice is harmless."""

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return self._open().held()

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        return self._open().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        return self._open().multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        return list(self._open().entries(prefix))

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        return self._open().visit(prefix, visit)

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns, and the cursor of the same moment."""
        return self._open().pages(prefix, rows_max)

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        return self._open().cursor

    def verify(self) -> Verified:
        """Return the digest of everything."""
        return self._open().verified()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
