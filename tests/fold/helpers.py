"""Opening every store, for the tests of all of them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from strandline.fold import AppendLogStore, MemoryStore, RocksDbStore, SnapshotStore, SqliteStore
from strandline.journal import SYNCED, WRITTEN, Durability
from strandline.testing import CheckedSnapshotStore

Opens = Callable[[Path, Durability], SnapshotStore]
DURABLE: dict[str, Opens] = {
    "append log": lambda folder, sync: AppendLogStore.open(folder / "fold.log", sync=sync),
    "append log, tiny": lambda folder, sync: AppendLogStore.open(folder / "fold.log", sync=sync, compact_bytes=100),
    "sqlite": lambda folder, sync: SqliteStore.open(folder / "fold.db", sync=sync),
    "rocksdb": lambda folder, sync: RocksDbStore.open(folder / "fold", sync=sync),
}
MODES = [SYNCED, WRITTEN]


@contextmanager
def durable(backend: str, folder: Path, sync: Durability = SYNCED) -> Iterator[CheckedSnapshotStore]:
    """Open a store under check."""

    def reopen() -> SnapshotStore:
        checked.store.close()
        return DURABLE[backend](folder, sync)

    checked = CheckedSnapshotStore(DURABLE[backend](folder, sync), reopen)
    try:
        yield checked
    finally:
        checked.store.close()


@contextmanager
def resident(made: Callable[[], SnapshotStore] = MemoryStore) -> Iterator[CheckedSnapshotStore]:
    """Make a store that lives as long as its object."""
    store = made()
    yield CheckedSnapshotStore(store, lambda: store)


def opened(backend: str, folder: Path, sync: Durability = SYNCED) -> AbstractContextManager[CheckedSnapshotStore]:
    """Open any store under check."""
    return resident() if backend == "memory" else durable(backend, folder, sync)
