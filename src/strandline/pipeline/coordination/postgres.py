"""Coordination records in PostgreSQL: a row each, changed only by a writer that read its latest version.

Invariants: a commit is one transaction; a row's `version` grows by one with every write, and a write names the version
that it was decided on, so of two rivals the row's lock lets one win and the other see that it lost. A run that was only
read is held (`FOR SHARE`) until the commit. Rows are locked run first, then shards by id, so that commits cannot block
each other in a circle. The columns beside `record` are derived from it and nothing else.
"""

from collections.abc import Sequence
from typing import Any

from strandline.pipeline.coordination.codec import format_run, format_shard, parse_run, parse_shard
from strandline.pipeline.coordination.record_store import (
    Claimable,
    OwnerChange,
    Plan,
    Result,
    RunChange,
    ShardChange,
    Versioned,
    owner_change,
)
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.postgres import PostgresDatabase
from strandline.pipeline.sql.statements import statements
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import INITIAL_SHARDS_MAX, RunKey, ShardKey, ShardRecord, ShardStatus


class _Changed(Exception):
    """A record has changed since the read; raised to roll the transaction back."""


class PostgresRecords:
    """Runs and shards in a database that the caller migrates before and closes after."""

    records_per_commit_max = INITIAL_SHARDS_MAX
    registers_in_one_commit = True

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._sql = statements("postgres", "coordination")

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None."""
        rows = self._rows("load_run", key)
        return Versioned(parse_run(rows[0][0]), rows[0][1]) if rows else None

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        columns = [list(column) for column in zip(*keys, strict=True)] or [[], [], []]
        rows = self._rows("load_shards", columns)
        found = {position: Versioned(parse_shard(record), version) for position, record, version in rows}
        return [found.get(position) for position in range(1, len(keys) + 1)]

    def commit(self, plan: Plan) -> Result:
        """Write a plan: everything, durably, or nothing."""
        try:
            self._database.write(lambda connection: self._write(connection, plan))
        except _Changed:
            return Result.CHANGED
        return Result.DONE

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a valid lease."""
        rows = self._rows("claimable", (*run, max(shards_max, 1)))
        keys = tuple(ShardKey(*run, shard) for shard, deadline in rows if deadline is None or deadline <= now)
        return Claimable(keys, rows[0][1] if rows and not keys else None)

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        counts = dict(self._rows("progress", run))
        return Progress(*(counts.get(status, 0) for status in ShardStatus))

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        rows = self._rows("list_shards", (*run, _first(after), shards_max))
        return [parse_shard(record) for (record,) in rows]

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        rows = self._rows("list_runs", (tenant, _first(after), runs_max))
        return [parse_run(record) for (record,) in rows]

    def close(self) -> None:
        """Do nothing: the caller owns the database."""

    def _rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        def look(connection: AnyConnection) -> list[tuple[Any, ...]]:
            return list(connection.execute(self._sql[statement], values))

        return self._database.read(look)

    def _write(self, connection: AnyConnection, plan: Plan) -> None:
        if plan.unchanged_run is not None:
            held = (*plan.unchanged_run.record.key, plan.unchanged_run.version)
            _expect(1, connection.execute(self._sql["hold_run"], held).rowcount)
        if plan.run is not None:
            self._write_run(connection, plan.run)
        for change in sorted(plan.shards, key=lambda change: change.after.key):
            if change.before is not None:
                self._write_shard(connection, change)
        added = sorted(change.after for change in plan.shards if change.before is None)
        if added:
            columns = [list(column) for column in zip(*map(_columns, added), strict=True)]
            _expect(len(added), connection.execute(self._sql["add_shards"], columns).rowcount)

    def _write_run(self, connection: AnyConnection, change: RunChange) -> None:
        run = change.after
        row = {"tenant": run.tenant, "run": run.run, "status": run.status, "record": format_run(run)}
        version = {"version": change.before.version} if change.before else {}
        statement = "change_run" if change.before else "add_run"
        _expect(1, connection.execute(self._sql[statement], row | version).rowcount)

    def _write_shard(self, connection: AnyConnection, change: ShardChange) -> None:
        row = dict(zip(_COLUMNS, _columns(change.after), strict=True))
        version = {"version": change.before.version if change.before else None}
        statement = "take_shard" if owner_change(change) is OwnerChange.TAKEN else "change_shard"
        _expect(1, connection.execute(self._sql[statement], row | version).rowcount)


_COLUMNS = ("tenant", "run", "shard", "status", "fence", "deadline", "record")


def _columns(shard: ShardRecord) -> tuple[object, ...]:
    return *shard.key, shard.status, shard.fence, shard.deadline, format_shard(shard)


def _expect(rows: int, written: int) -> None:
    if written != rows:
        raise _Changed


def _first(after: int | None) -> int:
    return -(2**63) if after is None else after + 1
