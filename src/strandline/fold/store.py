"""The contract of a fold's store: data and cursor in one step, and questions about what is there.

Invariants, for every implementation:

* **The cursor never runs ahead of the data.** Whatever happens, whenever the store is opened, everything that its
  cursor covers is in it. Data may be ahead of the cursor: applying a change twice ends where applying it once does.
* What `apply` returned from is there when the store is opened again: after the death of the process in any case, after
  the loss of power if the store is `SYNCED`.
* The store is a pure function of what was applied; last write per key wins, also within a batch.
* After `apply` failed with `CommitFailed` the store takes nothing more (`Poisoned`); what was acknowledged can still be
  read, and opening it again tells how much of the failed batch is there.

One thread applies; any thread may ask. A question sees one moment between two batches, never half of one.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from strandline.fold.batches import FoldBatch, Pages, PutColumns, VersionPages
from strandline.fold.records import FoldEntry
from strandline.kv import WatchCursor

PAGE_ROWS = 4096


class Held(NamedTuple):
    """What a store held when it was asked: a cursor, `NO_CURSOR` if there is none, and whether there is any key."""

    cursor: WatchCursor
    has_data: bool


class Verified(NamedTuple):
    """The state at a cursor has this many entries and this digest, the same for every backend."""

    cursor: WatchCursor
    entries: int
    digest: bytes


class StoreFiles(NamedTuple):
    """What keeps a store, for an exporter: its backend's name, the version of its format, and its paths.

    A store in memory has no paths. A path may be a folder, or not exist yet.
    """

    backend: str
    version: int
    paths: tuple[Path, ...]


class StoreSnapshot(Protocol):
    """One moment of a store, for an exporter: later batches change nothing of it. Any one thread may use it.

    `backend` and `version` name the format that `copy_to` writes.
    """

    @property
    def backend(self) -> str:
        """Return the name of the backend that opens the copy."""
        ...

    @property
    def version(self) -> int:
        """Return the version of that backend's format."""
        ...

    def cursor(self) -> WatchCursor:
        """Return the cursor of this moment."""
        ...

    def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        """Yield all rows by key, in columns of at most so many, in bounded memory."""
        ...

    def copy_to(self, folder: Path) -> None:
        """Write the store's own files into a new folder, below the name `fold`; nothing is synced yet."""
        ...

    def close(self) -> None:
        """Let go of this moment; twice is harmless."""
        ...


class FoldReader(Protocol):
    """A fold that can be asked. Every call on a closed one is `Closed`."""

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing: no key and no cursor."""
        ...

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        ...

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry for each key in the order asked for, None for those that are missing."""
        ...

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key; an empty list if there is none."""
        ...

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many; what `visit` raises ends it."""
        ...

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns of at most `rows_max` rows each, by key, and the cursor of the same moment."""
        ...

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        ...

    def verify(self) -> Verified:
        """Read everything from where it is kept, and return its digest; `Damaged` if it is not whole."""
        ...

    def close(self) -> None:
        """Let go of files and locks; twice is harmless."""
        ...


class SnapshotStore(FoldReader, Protocol):
    """Where a fold is kept."""

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Make a batch and the cursor after it part of the store, in one step; `NO_CURSOR` leaves the cursor as it is.

        Deleting a key that is missing is no error. An empty batch moves the cursor.
        """
        ...

    def files(self) -> StoreFiles:
        """Return what keeps the store, and where; between `settle` and the next `apply` those files hold all of it."""
        ...

    def settle(self) -> None:
        """Do now what is otherwise done later (compaction, checkpoints), so that reads are quick; no entry changes."""
        ...

    def snapshot(self, beside: Path) -> StoreSnapshot:
        """Return the present moment, quickly: what takes long is done by its `rows` and `copy_to`.

        `beside` is a path on the store's file system that does not exist; a store may keep the moment there, and
        removes it when the snapshot is closed.
        """
        ...


def versions_of(fold: FoldReader) -> VersionPages:
    """Return keys and versions of a whole fold, in no order; quick for a store that has `versions`, else by its pages.

    Close the columns unless all are taken.
    """
    quick: Callable[[], VersionPages] | None = getattr(fold, "versions", None)
    if quick is not None:
        return quick()
    cursor, pages = fold.pages()
    return VersionPages(cursor, _key_columns(pages))


def _key_columns(pages: Generator[PutColumns]) -> Generator[tuple[pa.BinaryArray, pa.BinaryArray]]:
    with closing(pages):
        for page in pages:
            yield page.keys, page.versions
