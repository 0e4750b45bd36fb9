"""`strandline replica status`, `snapshots` and `verify`: what a replica holds."""

from datetime import UTC, datetime

import typer

from strandline.cli.exit_codes import EXIT_DAMAGED
from strandline.cli.output import AsJson, emit, emit_rows, progress
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.objects import ObjectStore
from strandline.replica import discover, find_position
from strandline.replica.check import check_files, reach_problem
from strandline.replica.layout import LEVEL_SNAPSHOT
from strandline.replica.nodes import LEASE_KEY, node_key


def status(address: ReplicaAddress, as_json: AsJson = False) -> None:
    """Show the last transaction of a replica, what it holds, and its nodes.

    The age of a node is the time since its last sign of life; a leader that is older than its lease is gone.
    """
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
                **_nodes_of(store),
            },
            as_json=as_json,
        )


def _nodes_of(store: ObjectStore) -> dict[str, object]:
    """Return the leader and the followers, with the age of their last sign of life; nothing where no node ever led."""
    found, now = discover(store), datetime.now(UTC)
    if LEASE_KEY not in found.modified:
        return {}
    ages_s = {key: max(0.0, round((now - at).total_seconds(), 1)) for key, at in found.modified.items()}
    leader = None if found.leader is None else {**found.leader._asdict(), "age_s": ages_s[LEASE_KEY]}
    followers = [{**node._asdict(), "age_s": ages_s[node_key(node.name)]} for node in found.followers]
    for one in [leader, *followers]:
        if one is not None:
            del one["session"]
    unread = {"unread_registrations": list(found.errors)} if found.errors else {}
    return {"leader": leader, "followers": followers, **unread}


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
