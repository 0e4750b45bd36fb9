"""A process that applies batches to a store, and says what it was told; and what it would be after each of them."""

from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from strandline.errors import StrandlineError
from strandline.fold import AppendLogStore, FoldEntry, RocksDbStore, SnapshotStore, SqliteStore, append_log
from strandline.journal import SYNCED, Durability
from strandline.kv import format_revision
from strandline.lazy_imports import leave_pandas_out
from strandline.testing.snapshot_stores import changes
from tests.straced import let_anyone_trace

BATCHES = 24
LIVES = 2
ROWS_MAX = 12
Rows = list[tuple[bytes, bytes | None]]


def open_store(backend: str, folder: Path, sync: Durability = SYNCED) -> SnapshotStore:
    """Open a store that compacts often; a log has an index however small it is."""
    append_log.INDEX_BYTES_MIN = 0
    if backend == "append log":
        return AppendLogStore.open(folder / "fold.log", sync=sync, compact_bytes=3000)
    if backend == "sqlite":
        return SqliteStore.open(folder / "fold.db", sync=sync)
    return RocksDbStore.open(folder / "fold", sync=sync, cache_bytes=1024 * 1024)


def rows_of(number: int) -> Rows:
    """Return the rows of a batch, which are always the same."""
    random = Random(number)
    values = [None, b"", b"x" * 300]
    return [(b"key %d" % random.randrange(30), random.choice(values)) for _ in range(random.randrange(1, ROWS_MAX))]


def revision_of(number: int) -> int:
    """Return the first revision of a batch; its cursor is that of its last row."""
    return 100 * number


def states(number: int) -> list[dict[bytes, FoldEntry]]:
    """Return the state after a batch, then what it becomes with each record of the next in the order of a log."""
    state: dict[bytes, FoldEntry] = {}
    for past in range(1, number + 1):
        state = steps(state, past)[-1]
    return [state, *steps(state, number + 1)]


def steps(state: dict[bytes, FoldEntry], number: int) -> list[dict[bytes, FoldEntry]]:
    """Return the states that lead from one batch to the next: puts in order, then deletes."""
    last = {key: (at, value) for at, (key, value) in enumerate(rows_of(number), revision_of(number))}
    found = [dict(state)]
    for key, (at, value) in sorted(last.items(), key=lambda row: (row[1][1] is None, row[1][0])):
        after = dict(found[-1])
        if value is None:
            after.pop(key, None)
        else:
            after[key] = FoldEntry(key, value, format_revision(at))
        found.append(after)
    return found


def serve(pipe: Connection, backend: str, folder: str, sync: Durability = SYNCED) -> None:
    """Wait until somebody watches, then live twice: apply, settle now and then, close."""
    let_anyone_trace()
    leave_pandas_out()
    pipe.send("ready")
    pipe.recv()
    number = 0
    try:
        for _ in range(LIVES):
            store = open_store(backend, Path(folder), sync)
            for _ in range(BATCHES):
                number += 1
                store.apply(*changes(revision_of(number), *rows_of(number)))
                pipe.send(number)
                if number % 10 == 0:
                    store.settle()
            store.close()
        pipe.send("done")
    except StrandlineError as error:
        pipe.send(f"error {type(error).__name__}")
    pipe.close()
