"""`strandline replica restore`: a database as it was after a transaction, or at a time."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit, emit_rows, progress
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.errors import Damaged, InvalidInput
from strandline.replica import Applied, find_plan
from strandline.replica import restore as restore_database
from strandline.replica.check import integrity_problems

To = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the database; there must be no file yet.")]
Txid = Annotated[int | None, typer.Option("--txid", min=1, help="As it was after this transaction.")]
At = Annotated[
    str | None,
    typer.Option(
        "--timestamp", metavar="TIME", help="As it was at a time, such as 2026-01-31T12:00:00Z; UTC if it has no zone."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the files that would be applied, and write nothing.")]
Verify = Annotated[bool, typer.Option("--verify", help="Run SQLite's integrity check on what was restored.")]


def restore(
    address: ReplicaAddress,
    to: To,
    txid: Txid = None,
    timestamp: At = None,
    dry_run: DryRun = False,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Write a database as it was after a transaction, or at a time, to a file.

    Replicas of litestream 0.5 are restored too. An existing file is never touched.
    """
    if txid is not None and timestamp is not None:
        raise InvalidInput("--txid and --timestamp exclude each other")
    at = None if timestamp is None else parse_time(timestamp)
    with replica_at(address) as (store, layout):
        if dry_run:
            plan = find_plan(store, layout.all_files(), txid=txid, at=at)
            emit_rows(({"level": one.level, "file": one.key, "bytes": one.size} for one in plan), as_json=as_json)
            return
        with progress("restoring", 1000) as advance:

            def tell(applied: Applied) -> None:
                advance(applied.number * 1000 // applied.of - (applied.number - 1) * 1000 // applied.of)

            restored = restore_database(store, layout, to, txid=txid, at=at, tell=tell)
    if verify and (problems := integrity_problems(to)):
        raise Damaged(str(to), f"SQLite finds it damaged: {problems[0]}", safe="restore to an earlier transaction")
    emit(
        {
            "database": to,
            "txid": restored.position.txid,
            "timestamp": format_time(restored.timestamp_ms),
            "files": restored.files,
            "bytes": restored.size,
        },
        as_json=as_json,
    )


def parse_time(text: str) -> datetime:
    """Return a time as people write it; UTC where it names no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no time", hint="write it as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def format_time(ms: int) -> str:
    """Return a time for people and programs."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
