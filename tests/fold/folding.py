"""A process that keeps a fold of a bucket, and tells what was delivered to it and what is durable."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from strandline.fold import ALL, Backend, SnapshotStore, open_fold, watch_applied
from strandline.fold.watch import Applied, Batching, Hooks
from strandline.kv import UpdateBatch
from strandline.kv.nats import NatsConnection
from strandline.lazy_imports import leave_pandas_out
from tests.straced import let_anyone_trace

SUFFIXES = {Backend.APPEND_LOG: ".log", Backend.SQLITE: ".db", Backend.ROCKSDB: ".rocks"}
BATCHING = Batching(window_s=0.001, updates_max=16)


def fold_path(folder: Path, backend: Backend) -> Path:
    """Return where the fold is."""
    return folder / f"fold{SUFFIXES[backend]}"


def open_small(path: Path) -> SnapshotStore:
    """Open the fold as everybody does."""
    return open_fold(path)


def keep(pipe: Connection, url: str, bucket: str, path: str) -> None:
    """Wait until somebody watches, then keep the fold until killed."""
    let_anyone_trace()
    leave_pandas_out()
    pipe.send("ready")
    pipe.recv()
    asyncio.run(_keep(pipe, url, bucket, Path(path)))


async def _keep(pipe: Connection, url: str, bucket: str, path: Path) -> None:
    def delivered(batch: UpdateBatch) -> UpdateBatch:
        pipe.send(("delivered", batch.versions.tolist()))
        return batch

    def applied(what: Applied) -> None:
        if what.durable:
            pipe.send(("durable", what.cursor.revision))

    async with NatsConnection(url) as connection:
        store = await connection.store(bucket)
        hooks = Hooks(parse=delivered, on_applied=applied)
        await watch_applied(store, ALL, lambda: open_small(path), batching=BATCHING, hooks=hooks)
