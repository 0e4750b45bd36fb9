"""A bucket of a NATS server, whose address is in NATS_URL."""

import asyncio
import os

from strandline.kv import StoreConfig
from strandline.kv.nats import NatsConnection


async def main() -> None:
    """Put and get a key."""
    async with NatsConnection(os.environ["NATS_URL"]) as connection:
        bucket = await connection.store("prices", StoreConfig())
        writer = bucket.writer()
        assert writer is not None
        await writer.put("fruit.apple", b"3")
        entry = await bucket.reader().get("fruit.apple")
        assert entry is not None
        assert entry.value == b"3"


asyncio.run(main())
