"""Buckets and folds for the tests of folds that Spark builds and reads."""

import asyncio
from pathlib import Path

from strandline.fold import FoldBatch
from strandline.fold.backends import Backend, open_fold
from strandline.fold.scopes import Scope
from strandline.fold.store import Verified
from strandline.fold.watch import catch_up
from strandline.kv import WatchCursor
from strandline.kv.nats import NatsConnection
from tests.spark.streams.helpers import ServerLog


def watched(world: ServerLog, path: Path, scope: Scope | None = None) -> Verified:
    """Fold the bucket by watching it, as people do without Spark."""

    async def run() -> None:
        async with NatsConnection(world.url) as connection:
            store = await connection.store(world.target.name)
            await catch_up(store, scope or Scope(), lambda: open_fold(path))

    asyncio.run(run())
    return verified(path)


def verified(path: Path) -> Verified:
    with open_fold(path) as store:  # type: ignore[attr-defined]
        digest: Verified = store.verify()
        return digest


def fill(path: Path, backend: Backend, count: int, *, cursor: int = 1) -> None:
    keys = [b"k%05d" % number for number in range(count)]
    values = [b"value %d" % number for number in range(count)]
    versions = [number.to_bytes(8, "big") for number in range(1, count + 1)]
    with open_fold(path, backend) as store:  # type: ignore[attr-defined]
        store.apply(FoldBatch(keys, values, versions), WatchCursor(cursor.to_bytes(8, "big")))
