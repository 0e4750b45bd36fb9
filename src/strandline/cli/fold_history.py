"""`strandline fold history`: the updates of a key that a bucket still holds."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

import typer

from strandline.cli.fold_options import (
    BucketAddress,
    Creds,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    connection_settings,
    revision_of,
)
from strandline.cli.output import AsJson, emit_rows
from strandline.cli.shown import escape, json_field
from strandline.errors import InvalidInput
from strandline.fold import history
from strandline.fold.addresses import connect_bucket
from strandline.kv import KvUpdate, Put
from strandline.nats.settings import NatsSettings


def history_(
    address: BucketAddress,
    key: Annotated[str, typer.Argument(help="The key.", show_default=False)],
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Print the updates of a key that its bucket still holds, oldest first.

    The bucket's history setting limits them: 1 by default.
    """
    settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
    updates = asyncio.run(_history(address, settings, key))
    if not updates:
        raise InvalidInput(f"the bucket holds nothing of key {key!r}", hint="check the key; it may have been purged")
    emit_rows((_record(update, as_json=as_json) for update in updates), as_json=as_json)


async def _history(address: str, settings: NatsSettings, key: str) -> list[KvUpdate]:
    async with connect_bucket(address, settings) as bucket:
        return await history(bucket, key)


def _record(update: KvUpdate, *, as_json: bool) -> Mapping[str, object]:
    value = update.value if isinstance(update, Put) else b""
    record: dict[str, object] = {"revision": revision_of(update.version), "kind": type(update).__name__.lower()}
    if as_json:
        return {**record, **dict([json_field("value", value)])} if isinstance(update, Put) else record
    return {**record, "value": escape(value)}
