"""`strandline fold status`: the cursor of a fold, the process that keeps it, and how far its bucket is ahead."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.fold_options import (
    Creds,
    FoldPath,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    connection_settings,
    open_existing,
)
from strandline.cli.output import AsJson, emit
from strandline.clock import SystemClock
from strandline.fold.addresses import connect_bucket
from strandline.fold.backends import existing_backend, holder_of
from strandline.fold.cursor import UNKNOWN, FoldCursor, parse_fold_cursor
from strandline.fold.repair.decisions import decide
from strandline.fold.repair.policy import decided_mode
from strandline.fold.scopes import Scope, StoredScope
from strandline.kv import NotSupported
from strandline.nats.settings import NatsSettings
from strandline.protocol.fold_modes import FoldMode, chosen_mode
from strandline.protocol.repairs import RepairMode


def status(
    path: FoldPath,
    address: Annotated[
        str | None, typer.Option("--bucket", metavar="BUCKET", help="Also ask the bucket: nats://HOST:PORT/NAME.")
    ] = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Print the cursor of a fold; with --bucket, also its lag and what `fold run` would do."""
    reader = open_existing(path)
    try:
        held = reader.load()
    finally:
        reader.close()
    cursor = parse_fold_cursor(held.cursor) if held else FoldCursor()
    backend = existing_backend(path)
    record: dict[str, object] = {
        "path": path,
        "backend": backend.value if backend else None,
        "revision": cursor.revision or None,
        "has_data": bool(held and held.has_data),
        "bucket_identity": None if cursor.identity == UNKNOWN else cursor.identity.hex(),
        "scope": _scope(cursor.scope),
        "mode": _mode(cursor),
        "complete_from": cursor.floor or None if cursor.mode is FoldMode.ARCHIVE else None,
        "seen_evicting": cursor.seen_evicting,
        "everything_before": _time(cursor.since_ns),
        "kept_by": holder_of(path),
        "bytes": _size(path),
    }
    if address is not None:
        settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
        record |= asyncio.run(_asked(address, settings, cursor, has_data=bool(held and held.has_data)))
    emit(record, as_json=as_json)


async def _asked(address: str, settings: NatsSettings, cursor: FoldCursor, *, has_data: bool) -> Mapping[str, object]:
    async with connect_bucket(address, settings) as store:
        watcher = store.watcher()
        if watcher is None:
            raise NotSupported(f"watching bucket {store.name!r}")
        retention = await watcher.retention()
    cursor = cursor._replace(mode=decided_mode(cursor, store.name, None, asked=False))
    decision = decide(cursor, retention, RepairMode.AUTO, SystemClock().now_ns(), has_data=has_data)
    return {
        "bucket": store.name,
        "bucket_first": retention.first_revision,
        "bucket_last": retention.last_revision,
        "behind": max(0, retention.last_revision - cursor.revision),
        "next": decision.course.name.lower().replace("_", " "),
        "because": decision.reason,
    }


def _scope(scope: StoredScope) -> str | None:
    if isinstance(scope, Scope):
        return str(scope)
    return None if scope == UNKNOWN else f"digest {scope.hex()}"


def _mode(cursor: FoldCursor) -> str | None:
    """Return the mode; for a fold written before modes existed, the mode that it will get."""
    if not cursor.revision and cursor.mode is FoldMode.UNKNOWN:
        return None
    return chosen_mode(cursor.mode, None, seen_evicting=cursor.seen_evicting).name.lower()


def _time(since_ns: int) -> str | None:
    return datetime.fromtimestamp(since_ns / 1e9, UTC).isoformat(timespec="milliseconds") if since_ns else None


def _size(path: Path) -> int:
    files = [path, *path.parent.glob(f"{path.name}-*")] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())
