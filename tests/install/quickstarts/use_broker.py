"""A server inside the process, with buckets that need no client."""

import asyncio

from strandline.broker import serve
from strandline.broker.buckets import EmbeddedConnection
from strandline.kv import StoreConfig


async def main() -> None:
    """Put and get a key."""
    async with serve(port=0, store_dir="data") as server, EmbeddedConnection.to(server) as connection:
        bucket = await connection.store("settings", StoreConfig())
        writer = bucket.writer()
        assert writer is not None
        await writer.put("colour", b"blue")
        entry = await bucket.reader().get("colour")
        assert entry is not None
        assert entry.value == b"blue"


asyncio.run(main())
