"""`strandline fold status`: the cursor of a fold, the process that keeps it, and how far its bucket is ahead."""

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from strandline.artifacts import NoArtifact, log_continues
from strandline.cli.artifact_options import WHERE, artifacts_at, scope_text, unix_time
from strandline.cli.fold_options import (
    BucketOption,
    Creds,
    FoldPath,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    bucket_retention,
    connection_settings,
    open_existing,
)
from strandline.cli.output import AsJson, emit
from strandline.clock import NS_PER_S, SystemClock
from strandline.fold.backends import existing_backend, holder_of
from strandline.fold.cursor import UNKNOWN, FoldCursor, parse_fold_cursor
from strandline.fold.last_repair import read_last_repair
from strandline.fold.repair.decisions import decide
from strandline.fold.repair.policy import decided_mode
from strandline.kv import Retention
from strandline.protocol.fold_modes import FoldMode, chosen_mode
from strandline.protocol.repairs import RepairMode


def status(  # noqa: PLR0913, PLR0917 - one parameter for each option
    path: FoldPath,
    address: BucketOption = None,
    artifacts: Annotated[
        str | None, typer.Option("--artifacts", metavar="ADDRESS", help=f"Also look at its artifacts: {WHERE}.")
    ] = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Print the cursor of a fold; with --bucket, also its lag and what `fold run` would do.

    With --artifacts, also the newest artifact and its age; with both, whether the log still continues it. Exit code 1
    if a new fold could not start from an artifact: there is none, or it is older than the log's floor.
    """
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
        "scope": scope_text(cursor.scope),
        "mode": _mode(cursor),
        "complete_from": cursor.floor or None if cursor.mode is FoldMode.ARCHIVE else None,
        "seen_evicting": cursor.seen_evicting,
        "everything_before": _time(cursor.since_ns),
        "kept_by": holder_of(path),
        "bytes": _size(path),
        **_last_repair(path),
    }
    retention = alarm = None
    if address is not None:
        settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
        name, retention = asyncio.run(bucket_retention(address, settings))
        record |= _asked(name, retention, cursor, has_data=bool(held and held.has_data))
    if artifacts is not None:
        record |= _newest(artifacts, cursor, retention)
        alarm = record["artifact_alarm"]
    emit(record, as_json=as_json)
    if alarm is not None:
        print(f"alarm: {alarm}", file=sys.stderr)
        print("hint: publish a newer artifact with `strandline fold publish`, and more often", file=sys.stderr)
        raise typer.Exit(1)


def _newest(address: str, cursor: FoldCursor, retention: Retention | None) -> Mapping[str, object]:
    """Return what the newest artifact is, and why no fold can start from it, if that is so."""
    record: dict[str, object] = {"artifacts": address}
    try:
        with artifacts_at(address, is_read_only=True) as artifacts:
            manifest = artifacts.newest()
    except NoArtifact as none:
        return {**record, "artifact_revision": None, "artifact_alarm": none.reason}
    now_ns = SystemClock().now_ns()
    record |= {
        "artifact_revision": manifest.rank,
        "artifact_entries": manifest.entries,
        "artifact_created": unix_time(manifest.created_unix),
        "artifact_age_s": max(0, now_ns // NS_PER_S - manifest.created_unix),
        "artifact_behind": max(0, cursor.revision - manifest.rank),
        "artifact_alarm": None,
    }
    if retention is not None:
        continuity = log_continues(manifest, retention, now_ns)
        record |= {"artifact_continues": continuity.continues}
        record["artifact_alarm"] = None if continuity.continues else continuity.reason
    return record


def _asked(name: str, retention: Retention, cursor: FoldCursor, *, has_data: bool) -> Mapping[str, object]:
    cursor = cursor._replace(mode=decided_mode(cursor, name, None, asked=False))
    decision = decide(cursor, retention, RepairMode.AUTO, SystemClock().now_ns(), has_data=has_data)
    return {
        "bucket": name,
        "bucket_first": retention.first_revision,
        "bucket_last": retention.last_revision,
        "behind": max(0, retention.last_revision - cursor.revision),
        "next": decision.course.name.lower().replace("_", " "),
        "because": decision.reason,
    }


def _last_repair(path: Path) -> Mapping[str, object]:
    repair = read_last_repair(path)
    if repair is None:
        return {"last_repair": None}
    return {
        "last_repair": repair.plan,
        "last_repair_because": repair.reason,
        "last_repair_ended": unix_time(repair.ended_unix),
        "last_repair_put": repair.put,
        "last_repair_deleted": repair.deleted,
    }


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
