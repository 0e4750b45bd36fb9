"""Export of a fold while it is watched: only the taking of the snapshot comes between two batches.

Invariants: everything that was received before the request is in the artifact. What the export raises goes to its
caller, and the watch goes on.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from strandline.artifacts.exporter import export_snapshot, prepare_snapshot, take_snapshot
from strandline.artifacts.manifest import Manifest
from strandline.errors import Closed
from strandline.fold import Exports, FoldCursor, PutColumns, SnapshotStore, StoreSnapshot
from strandline.fold.store import PAGE_ROWS
from strandline.kv import WatchCursor

Export = Callable[[StoreSnapshot, Path], Manifest]
"""Makes an artifact of a snapshot at a path."""


class WatchedExport(NamedTuple):
    """The manifest of an artifact, and how long the watch stood still for it."""

    manifest: Manifest
    pause_s: float


async def export_watched(
    exports: Exports, destination: Path | str, *, export: Export = export_snapshot
) -> WatchedExport:
    """Export a fold that is being watched; `exports` is the one that was given to its watch."""
    store = await exports.request(_store)
    await asyncio.to_thread(prepare_snapshot, store)
    snapshot, pause_s = await exports.request(_snapshot)
    is_over = threading.Event()

    def exported() -> Manifest:
        with contextlib.closing(snapshot):
            return export(_EndingSnapshot(snapshot, is_over), Path(destination))

    working = asyncio.ensure_future(asyncio.to_thread(exported))
    try:
        return WatchedExport(await asyncio.shield(working), pause_s)
    finally:
        is_over.set()  # a cancelled export ends with its next page, before its caller goes on
        await asyncio.wait([working])


class _EndingSnapshot:
    """A snapshot whose rows end with `Closed` when the export is over."""

    def __init__(self, snapshot: StoreSnapshot, is_over: threading.Event) -> None:
        self._snapshot = snapshot
        self._is_over = is_over
        self.backend = snapshot.backend
        self.version = snapshot.version

    def cursor(self) -> WatchCursor:
        return self._snapshot.cursor()

    def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        for page in self._snapshot.rows(rows_max):
            if self._is_over.is_set():
                raise Closed("the export")
            yield page

    def copy_to(self, folder: Path) -> None:
        self._snapshot.copy_to(folder)

    def close(self) -> None:
        self._snapshot.close()


def _store(store: SnapshotStore, _: FoldCursor) -> SnapshotStore:
    return store


def _snapshot(store: SnapshotStore, _: FoldCursor) -> tuple[StoreSnapshot, float]:
    started = perf_counter()
    return take_snapshot(store), perf_counter() - started
