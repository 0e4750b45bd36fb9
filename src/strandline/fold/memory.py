"""A store in memory: the twin of the durable ones, for tests and for folds that may be built again.

Invariants: it keeps the whole contract of `SnapshotStore` but one promise: nothing outlives the object.
"""

from pathlib import Path

from strandline.errors import Closed
from strandline.fold.batches import FoldBatch, check_cursor
from strandline.fold.log_format import VERSION, format_batch
from strandline.fold.log_snapshot import LogSnapshot
from strandline.fold.resident import ResidentFold, ResidentReader
from strandline.fold.store import StoreFiles
from strandline.kv import WatchCursor

COMPACT_BYTES = 10 * 1024 * 1024


class MemoryStore(ResidentReader):
    """A `SnapshotStore` that forgets everything with its process."""

    def __init__(self) -> None:
        self._fold: ResidentFold | None = ResidentFold()
        self._compact_at = COMPACT_BYTES

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Make a batch and the cursor after it part of the store."""
        fold = self._open()
        check_cursor(cursor)
        fold.apply(batch, cursor, format_batch(batch, cursor))
        if fold.size >= self._compact_at and fold.is_half_dead():
            self._compact(fold)

    def files(self) -> StoreFiles:
        """Return that there are no files."""
        return StoreFiles("memory", VERSION, ())

    def snapshot(self, beside: Path) -> LogSnapshot:  # noqa: ARG002 - memory keeps the moment
        """Return this moment; its copy is a compacted log."""
        return self._open().snapshot()

    def settle(self) -> None:
        """Forget what no longer counts."""
        self._compact(self._open())

    def close(self) -> None:
        """Forget everything."""
        self._fold = None

    def _compact(self, fold: ResidentFold) -> None:
        fold.adopt(fold.compacted())
        self._compact_at = fold.size + COMPACT_BYTES

    def _open(self) -> ResidentFold:
        if self._fold is None:
            raise Closed("the store")
        return self._fold
