"""`strandline replica compact` and `prune`: what a running replicator does by itself, by hand."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit, emit_rows
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.replica import RetentionPolicy, plan_retention
from strandline.replica.compaction import compact_level, take_snapshot
from strandline.replica.layout import LEVEL_SNAPSHOT
from strandline.replica.retention import prune as prune_files

Level = Annotated[
    int, typer.Option("--level", min=1, max=9, help="1 to 8 merges the level below; 9 writes a snapshot.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the files that would go, and remove nothing.")]
Hours = Annotated[float, typer.Option("--hours", min=0, help="Every moment of so many hours can be restored.")]
Least = Annotated[int, typer.Option("--snapshots-min", min=1, help="Keep so many snapshots, however old.")]


def compact(address: ReplicaAddress, level: Level = 1, as_json: AsJson = False) -> None:
    """Merge the files of a replica, or write a snapshot."""
    with replica_at(address, conditional=True) as (store, layout):
        files = layout.all_files()
        if level == LEVEL_SNAPSHOT:
            snapshot = take_snapshot(store, layout, files)
            made = [] if snapshot is None else [snapshot]
        else:
            made = compact_level(store, layout, files, level)
    emit_rows(({"level": one.level, "file": one.key, "bytes": one.size} for one in made), as_json=as_json)


def prune(
    address: ReplicaAddress,
    hours: Hours = 24.0,
    snapshots_min: Least = 2,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the files that a retention policy does not keep.

    The last transaction and every moment of the time that is kept can be restored afterwards; within it, older moments
    in steps of 30 seconds, the interval of the first merge.
    """
    policy = RetentionPolicy(timedelta(hours=hours), snapshots_min)
    with replica_at(address, conditional=not dry_run) as (store, layout):
        plan = plan_retention(layout.all_files(), datetime.now(UTC), policy)
        if dry_run:
            emit_rows(({"level": one.level, "file": one.key, "bytes": one.size} for one in plan), as_json=as_json)
        else:
            prune_files(store, plan)
        emit({"files": len(plan), "bytes": sum(file.size for file in plan)}, as_json=as_json)
