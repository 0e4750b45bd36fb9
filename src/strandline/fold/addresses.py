"""The address of a bucket, as people write it: `nats://host:port/bucket`, `tls://user:password@host/bucket`.

Invariants: no error shows the user info of an address. NATS is imported only when an address is used.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.errors import InvalidInput
from strandline.kv import KvStore

if TYPE_CHECKING:
    from strandline.nats.settings import NatsSettings

HINT = "give nats://host:port/bucket, or tls://…"


def parse_address(address: str, settings: "NatsSettings | None" = None) -> "tuple[NatsSettings, str]":
    """Return how to reach the server of an address, and the bucket's name; `settings` say the rest (creds, TLS)."""
    from strandline.nats.settings import NatsSettings  # noqa: PLC0415 - only who uses NATS pays for it

    servers, slash, bucket = address.rpartition("/")
    if not slash or not bucket or servers.endswith((":", "/")) or "@" in bucket:
        raise InvalidInput("the address names no bucket", hint=HINT)
    if settings is None:
        return NatsSettings(servers), bucket
    given = NatsSettings(servers)
    return replace(settings, servers=given.servers, user_info=given.user_info or settings.user_info), bucket


@asynccontextmanager
async def connect_bucket(address: str, settings: "NatsSettings | None" = None) -> AsyncIterator[KvStore]:
    """Connect to the bucket of an address, for as long as the block runs."""
    from strandline.kv.nats.connection import NatsConnection  # noqa: PLC0415 - as above

    reached, bucket = parse_address(address, settings)
    connection = NatsConnection(reached)
    await connection.connect()
    try:
        yield await connection.store(bucket)
    finally:
        await connection.shutdown()
