"""Writes the folds of `tests/fixtures/fold/v2`; run once, and never again for a version that was released.

python -m tests.fold.make_fixtures <folder>

`BATCHES` is what version 1 holds; version 2 has values with deadlines besides, and a mark with its mode and scope.
"""

import shutil
import sys
from pathlib import Path

from strandline.fold import FoldBatch, FoldCursor, FoldMode, Scope, SnapshotStore, format_fold_cursor
from strandline.fold.records import join_version
from strandline.journal import SYNCED
from strandline.kv import format_revision
from strandline.testing.snapshot_stores import changes
from tests.fold.helpers import DURABLE

BACKENDS = ["append log", "sqlite", "rocksdb"]
NOT_DATA = ["LOG", "LOG.old.*", "LOCK", "*.lock", "*-shm"]


BATCHES = [
    changes(1, ("größe".encode(), b"1"), (b"empty", b""), (b"gone", b"x"), (b"\xff\xff", bytes(range(256)))),
    changes(5, (b"gone", None), (b"empty.not", b"y" * 1000)),
    changes(7, (b"purged", b"z"), (b"purged", None), purged=True),
]


MARK = FoldCursor(
    9, True, b"identity", Scope.of("a.", "b."), 5, FoldMode.ARCHIVE, 3, seen_dropping=True, has_deadlines=True
)
DEADLINE_NS = 1_800_000_000_000_000_000
TIMED = FoldBatch([b"timed", b"and"], [b"1", b"2"], [join_version(format_revision(8), DEADLINE_NS), format_revision(9)])


def fill(store: SnapshotStore, *, settle: bool = False, timed: bool = False) -> None:
    """Apply what every fold of the fixtures holds; with `settle`, the first of it is brought to where it stays."""
    for batch, cursor in BATCHES:
        store.apply(batch, cursor)
        if settle and cursor == BATCHES[0][1]:
            store.settle()
    if timed:
        store.apply(TIMED, format_fold_cursor(MARK))


def make(folder: Path) -> None:
    """Write a fold of each backend; each is copied while it is open, as a killed process leaves it."""
    for backend in BACKENDS:
        place = folder / "open" / backend.replace(" ", "-")
        store = DURABLE[backend](place, SYNCED)
        fill(store, settle=backend != "append log", timed=True)
        copy = folder / place.name
        shutil.copytree(place, copy, ignore=shutil.ignore_patterns(*NOT_DATA))
        store.close()
    shutil.rmtree(folder / "open")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
