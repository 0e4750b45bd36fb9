"""Stores that survive their process, and fail on demand: before a write, after it, in the middle, or for good."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np

from strandline.errors import Closed, CommitFailed, Poisoned, StorageRefused
from strandline.fold import FoldBatch, FoldEntry, Held, MemoryStore, Verified
from strandline.fold.batches import Pages
from strandline.fold.cursor import FoldCursor, parse_fold_cursor
from strandline.fold.store import PAGE_ROWS, StoreFiles, StoreSnapshot
from strandline.kv import NO_CURSOR, WatchCursor


class Killed(BaseException):
    """The process is gone."""


class Fault(Enum):
    """What goes wrong with a write."""

    REFUSED = "nothing is stored, and it says so"
    LOST = "all of it is stored, and it says that it was not"
    TORN = "a part is stored without its cursor, and it says that it was not"
    KILLED_BEFORE = "the process dies before it"
    KILLED_AFTER = "the process dies after it"
    KILLED_TORN = "the process dies with a part stored, without its cursor"


@dataclass
class Shelf:
    """Where a fold is kept between processes; `faults` maps the number of a write, from 1, to what goes wrong."""

    kept: MemoryStore = field(default_factory=MemoryStore)
    faults: dict[int, Fault] = field(default_factory=dict)
    refused_opens: int = 0
    writes: int = 0
    opens: int = 0
    rows: int = 0
    marks: list[FoldCursor] = field(default_factory=list)
    on_write: Callable[[FoldBatch, WatchCursor], None] = lambda _, __: None

    def open(self) -> "ShelfStore":
        """Open the store."""
        self.opens += 1
        if self.refused_opens:
            self.refused_opens -= 1
            raise StorageRefused("shelf", "no", "EIO")
        return ShelfStore(self)

    @property
    def mark(self) -> FoldCursor:
        return parse_fold_cursor(self.kept.cursor())

    @property
    def values(self) -> dict[str, bytes]:
        return {entry.key.decode(): entry.value for entry in self.kept.range()}

    def write(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        self.writes += 1
        fault = self.faults.pop(self.writes, None)
        if fault is Fault.KILLED_BEFORE:
            raise Killed
        if fault is Fault.REFUSED:
            raise CommitFailed("shelf", "refused")
        if fault in (Fault.TORN, Fault.KILLED_TORN):
            self.kept.apply(_half(batch), NO_CURSOR)
            raise Killed if fault is Fault.KILLED_TORN else CommitFailed("shelf", "torn")
        self.on_write(batch, cursor)
        self.kept.apply(batch, cursor)
        self.rows += len(batch)
        self.marks.append(self.mark)
        if fault is Fault.LOST:
            raise CommitFailed("shelf", "the answer was lost")
        if fault is Fault.KILLED_AFTER:
            raise Killed


def _half(batch: FoldBatch) -> FoldBatch:
    """Return the first rows of a batch, in the order that a log is written."""
    count = (len(batch) + 1) // 2
    kinds = None if batch.kinds is None else np.asarray(batch.kinds)[:count]
    return FoldBatch(list(batch.keys)[:count], list(batch.values)[:count], list(batch.versions)[:count], kinds)


class ShelfStore:
    """A `SnapshotStore` over a shelf: poisoned by its first failure, closed for good by `close`."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._failure: str | None = None
        self._is_closed = False

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        self._alive()
        if self._failure is not None:
            raise Poisoned("shelf", self._failure)
        try:
            self._shelf.write(batch, cursor)
        except CommitFailed as failed:
            self._failure = str(failed)
            raise

    def load(self) -> Held | None:
        return self._alive().load()

    def get(self, key: bytes) -> FoldEntry | None:
        return self._alive().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        return self._alive().multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        return self._alive().range(prefix)

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        return self._alive().for_each_in_range(prefix, visit)

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        return self._alive().pages(prefix, rows_max)

    def cursor(self) -> WatchCursor:
        return self._alive().cursor()

    def files(self) -> StoreFiles:
        return self._alive().files()

    def snapshot(self, beside: Path) -> StoreSnapshot:
        return self._alive().snapshot(beside)

    def settle(self) -> None:
        self._alive()

    def verify(self) -> Verified:
        return self._alive().verify()

    def close(self) -> None:
        self._is_closed = True

    def _alive(self) -> MemoryStore:
        if self._is_closed:
            raise Closed("shelf")
        return self._shelf.kept
