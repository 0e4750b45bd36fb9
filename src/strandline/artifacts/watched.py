"""Export of a fold while it is watched: only the taking of the snapshot comes between two batches.

Invariants: everything that was received before the request is in the artifact. What the export raises goes to its
caller, and the watch goes on.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from strandline.artifacts.exporter import export_snapshot, prepare_snapshot, take_snapshot
from strandline.artifacts.manifest import Manifest
from strandline.fold import Exports, FoldCursor, SnapshotStore, StoreSnapshot

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
    try:
        manifest = await asyncio.to_thread(export, snapshot, Path(destination))
    finally:
        await asyncio.to_thread(snapshot.close)
    return WatchedExport(manifest, pause_s)


def _store(store: SnapshotStore, _: FoldCursor) -> SnapshotStore:
    return store


def _snapshot(store: SnapshotStore, _: FoldCursor) -> tuple[StoreSnapshot, float]:
    started = perf_counter()
    return take_snapshot(store), perf_counter() - started
