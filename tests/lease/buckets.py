"""A bucket for leases on a real server."""

import asyncio

from strandline.kv import StoreConfig
from strandline.kv.nats import NatsConnection
from tests.servers_nats import NatsServer


def make_bucket(server: NatsServer, bucket: str, config: StoreConfig | None = None) -> None:
    async def make() -> None:
        async with NatsConnection(server.url) as connection:
            await connection.store(bucket, config or StoreConfig())

    asyncio.run(make())
