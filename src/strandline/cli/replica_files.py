"""`strandline replica status`, `snapshots` and `verify`: what a replica holds."""

import typer

from strandline.cli.exit_codes import EXIT_DAMAGED
from strandline.cli.output import AsJson, emit, emit_rows, progress
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.replica import find_position
from strandline.replica.check import check_files, reach_problem
from strandline.replica.layout import LEVEL_SNAPSHOT


def status(address: ReplicaAddress, as_json: AsJson = False) -> None:
    """Show the last transaction of a replica, and what it holds."""
    with replica_at(address) as (store, layout):
        files = layout.all_files()
        if not files:
            emit({"address": store.address, "state": "empty"}, as_json=as_json)
            return
        last = max(files, key=lambda file: file.max_txid)
        snapshots = [file for file in files if file.level == LEVEL_SNAPSHOT]
        emit(
            {
                "address": store.address,
                "state": reach_problem(files, store.address) or "restorable",
                "txid": find_position(store, layout).txid,
                "last_written": last.modified.isoformat(),
                "files": len(files),
                "bytes": sum(file.size for file in files),
                "snapshots": len(snapshots),
                "oldest_restore_point": min((file.max_txid for file in files if file.is_whole), default=None),
            },
            as_json=as_json,
        )


def snapshots(address: ReplicaAddress, as_json: AsJson = False) -> None:
    """List the whole databases of a replica."""
    with replica_at(address) as (_, layout):
        rows = [
            {"txid": file.max_txid, "written": file.modified.isoformat(), "bytes": file.size, "file": file.key}
            for file in layout.all_files()
            if file.is_whole
        ]
        emit_rows(sorted(rows, key=lambda row: str(row["written"])), as_json=as_json)


def verify(address: ReplicaAddress, as_json: AsJson = False) -> None:
    """Read every file of a replica, and say what is damaged or missing.

    The exit code is 3 where a file is damaged, or the last transaction cannot be restored.
    """
    with replica_at(address) as (store, layout):
        files = layout.all_files()
        damaged = []
        with progress("verifying", len(files)) as advance:
            for checked in check_files(store, files):
                advance(1)
                if checked.problem is not None:
                    damaged.append({"file": checked.file.key, "problem": checked.problem})
        unreachable = reach_problem(files, store.address)
    emit_rows(damaged, as_json=as_json)
    emit({"files": len(files), "damaged": len(damaged), "problem": unreachable}, as_json=as_json)
    if damaged or unreachable:
        raise typer.Exit(EXIT_DAMAGED)
