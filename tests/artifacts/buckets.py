"""Buckets on a real server: writing to them, and what they hold."""

import asyncio

import nats
import numpy as np

from strandline.kv import StoreConfig, UpdateBatch
from strandline.kv.nats import NatsConnection
from tests.servers_nats import NatsServer


def write(server: NatsServer, bucket: str, pairs: dict[str, bytes | None], config: StoreConfig | None = None) -> int:
    """Write to a bucket, which is made if it is not there; None deletes. Return the last revision."""

    async def main() -> int:
        async with NatsConnection(server.url) as connection:
            store = await connection.store(bucket, config or StoreConfig())
            writer, watcher = store.writer(), store.watcher()
            assert writer is not None
            assert watcher is not None
            for key, value in pairs.items():
                await (writer.delete(key) if value is None else writer.put(key, value))
            return (await watcher.retention()).last_revision

    return asyncio.run(main())


def current_values(server: NatsServer, bucket: str) -> dict[str, bytes]:
    """Return what a bucket holds, as nats-py reads it."""

    async def main() -> dict[str, bytes]:
        client = await nats.connect(server.url)
        try:
            entries = await client.jetstream().key_value(bucket)
            return {key: (await entries.get(key)).value or b"" for key in await entries.keys()}
        finally:
            await client.close()

    return asyncio.run(main())


class Counted:
    """Counts the updates of the log that a fold was told."""

    def __init__(self) -> None:
        self.updates = 0

    def __call__(self, batch: UpdateBatch) -> None:
        self.updates += int(np.count_nonzero(batch.versions))  # deletes of what has left a mirror have no version
