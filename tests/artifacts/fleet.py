"""A fold, its exports, and what is published of them."""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from strandline.artifacts import (
    Manifest,
    NoArtifact,
    Previous,
    Publication,
    PublishedArtifacts,
    export_logical,
    export_snapshot,
    import_fold,
    take_snapshot,
)
from strandline.clock import ManualClock
from strandline.fold import FoldBatch, FoldCursor, FoldMode, MemoryStore, SnapshotStore, format_fold_cursor
from strandline.fold.records import join_version
from strandline.kv import UpdateKind, WatchCursor, format_revision
from strandline.objects import MemoryObjects, ObjectStore

IDENTITY = b"identity"


def cursor(revision: int, identity: bytes = IDENTITY) -> WatchCursor:
    return format_fold_cursor(FoldCursor(revision, identity=identity, mode=FoldMode.MIRROR))


def apply(store: SnapshotStore, revision: int, rows: list[tuple[bytes, bytes | None]], expires_ns: int = 0) -> int:
    """Apply rows with ascending revisions behind one; return the last."""
    kinds = np.array([UpdateKind.DELETE if value is None else UpdateKind.PUT for _, value in rows], np.uint8)
    versions = [join_version(format_revision(revision + at), expires_ns) for at in range(1, len(rows) + 1)]
    batch = FoldBatch([key for key, _ in rows], [value or b"" for _, value in rows], versions, kinds)
    store.apply(batch, cursor(revision + len(rows)))
    return revision + len(rows)


class Fleet:
    """A fold, and what is published of it."""

    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self.objects = objects
        self.folder = folder
        self.artifacts = PublishedArtifacts(objects)
        self.store = MemoryStore()
        self.revision = 0
        self.exports = 0
        self.random = Random(5)

    def write(self, *keys: str) -> None:
        rows = [(key.encode(), self.random.randbytes(400)) for key in keys]
        self.revision = apply(self.store, self.revision, rows)  # type: ignore[arg-type]

    def delete(self, key: str) -> None:
        self.revision = apply(self.store, self.revision, [(key.encode(), None)])

    def export(self, previous: Previous | None = None, *, raw: bool = False) -> Path:
        self.exports += 1
        path = self.folder / f"export-{self.exports}"
        with closing(take_snapshot(self.store)) as snapshot:
            if raw:
                export_snapshot(snapshot, path)
            else:
                export_logical(snapshot, path, previous=previous)
        return path

    def publish(self) -> Publication:
        return self.artifacts.publish(self.export(self.artifacts.previous()))

    def fetched(self, name: str = "fetched", **more: Any) -> Manifest:  # noqa: ANN401 - what `fetch` takes
        return self.artifacts.fetch(self.folder / name, **more)

    def check_whole(self) -> None:
        """Whatever happened: the newest artifact is fetched and imported, or there is none."""
        name = f"check-{len(list(self.folder.iterdir()))}"
        try:
            self.fetched(name)
        except NoArtifact:
            return
        import_fold(self.folder / name, self.folder / f"{name}.fold")


def advance(fleet: Fleet, seconds: float) -> None:
    """Let time pass by the store's clock; some write shows it."""
    assert isinstance(fleet.objects, MemoryObjects)
    clock = fleet.objects._clock  # noqa: SLF001 - the twin's own clock
    assert isinstance(clock, ManualClock)
    clock.advance(seconds)
