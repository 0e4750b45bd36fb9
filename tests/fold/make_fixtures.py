"""Writes the folds of `tests/fixtures/fold/v1`; run once, and never again for a version that was released.

python -m tests.fold.make_fixtures <folder>
"""

import shutil
import sys
from pathlib import Path

from strandline.fold import SnapshotStore
from strandline.journal import SYNCED
from strandline.testing.snapshot_stores import changes
from tests.fold.helpers import DURABLE

BACKENDS = ["append log", "sqlite", "rocksdb"]
NOT_DATA = ["LOG", "LOG.old.*", "LOCK", "*.lock", "*-shm"]


BATCHES = [
    changes(1, ("größe".encode(), b"1"), (b"empty", b""), (b"gone", b"x"), (b"\xff\xff", bytes(range(256)))),
    changes(5, (b"gone", None), (b"empty.not", b"y" * 1000)),
    changes(7, (b"purged", b"z"), (b"purged", None), purged=True),
]


def fill(store: SnapshotStore, *, settle: bool = False) -> None:
    """Apply what every fold of the fixtures holds; with `settle`, the first of it is brought to where it stays."""
    for batch, cursor in BATCHES:
        store.apply(batch, cursor)
        if settle and cursor == BATCHES[0][1]:
            store.settle()


def make(folder: Path) -> None:
    """Write a fold of each backend; each is copied while it is open, as a killed process leaves it."""
    for backend in BACKENDS:
        place = folder / "open" / backend.replace(" ", "-")
        store = DURABLE[backend](place, SYNCED)
        fill(store, settle=backend != "append log")
        copy = folder / place.name
        shutil.copytree(place, copy, ignore=shutil.ignore_patterns(*NOT_DATA))
        store.close()
    shutil.rmtree(folder / "open")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
