"""Coordination records in the tables `runs` and `shards` of the pipeline's SQLite file.

Invariants: a plan is one transaction that holds the writer's lock from its first statement; a change applies only to
the version it was decided on. The columns beside a record repeat it and are written with it, never alone.
"""

from collections.abc import Sequence
from typing import Any

from strandline.extras import needs
from strandline.pipeline.coordination.codec import format_run, format_shard, parse_run, parse_shard
from strandline.pipeline.coordination.record_store import Claimable, Plan, Result, RunChange, ShardChange, Versioned
from strandline.pipeline.sql.sqlite import SqliteDatabase
from strandline.pipeline.sql.statements import statements
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import RunKey, ShardKey, ShardRecord, ShardStatus

with needs("sqlite"):
    import apsw

_SMALLEST = -(2**63)


class _Changed(Exception):
    """A record has changed since the read; rolls the transaction back."""


class SqliteRecords:
    """Runs and shards in a database that the caller migrates before and closes after."""

    records_per_commit_max = 10_000
    registers_in_one_commit = True

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._sql = statements("sqlite", "coordination")

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None."""
        row = self._database.read(lambda connection: connection.execute(self._sql["load_run"], key).fetchone())
        return Versioned(parse_run(row[0]), row[1]) if row else None

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        sql = self._sql["load_shard"]
        rows = self._database.read(lambda connection: [connection.execute(sql, key).fetchone() for key in keys])
        return [Versioned(parse_shard(row[0]), row[1]) if row else None for row in rows]

    def commit(self, plan: Plan) -> Result:
        """Write a plan in one transaction."""
        try:
            self._database.write(lambda connection: self._write(connection, plan))
        except _Changed:
            return Result.CHANGED
        return Result.DONE

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a valid lease."""
        rows = self._rows("claimable", *run, max(shards_max, 1))
        keys = tuple(ShardKey(*run, shard) for shard, deadline in rows if deadline is None or deadline <= now)
        return Claimable(keys, rows[0][1] if rows and not keys else None)

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        counts = dict(self._rows("progress", *run))
        return Progress(*(counts.get(status, 0) for status in ShardStatus))

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        return [parse_shard(record) for (record,) in self._page("list_shards", after, shards_max, *run)]

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        return [parse_run(record) for (record,) in self._page("list_runs", after, runs_max, tenant)]

    def close(self) -> None:
        """Do nothing: the caller owns the database."""

    def _rows(self, statement: str, *values: bytes | int) -> list[tuple[Any, ...]]:
        sql = self._sql[statement]
        return self._database.read(lambda connection: connection.execute(sql, values).fetchall())

    def _page(self, statement: str, after: int | None, most: int, tenant: bytes, run: int = 0) -> list[tuple[Any, ...]]:
        first = _SMALLEST if after is None else after
        values = {"tenant": tenant, "run": run, "first": first, "after": after, "most": most}
        sql = self._sql[statement]
        return self._database.read(lambda connection: connection.execute(sql, values).fetchall())

    def _write(self, connection: apsw.Connection, plan: Plan) -> None:
        if plan.unchanged_run:
            run, version = plan.unchanged_run
            _check(connection.execute(self._sql["run_version"], run.key).fetchone() == (version,))
        if plan.run:
            self._write_run(connection, plan.run)
        for change in plan.shards:
            self._write_shard(connection, change)

    def _write_run(self, connection: apsw.Connection, change: RunChange) -> None:
        run = change.after
        row = {"tenant": run.tenant, "run": run.run, "status": run.status, "record": format_run(run)}
        if change.before:
            connection.execute(self._sql["change_run"], {**row, "version": change.before.version})
        else:
            connection.execute(self._sql["add_run"], row)
        _check(connection.changes() == 1)

    def _write_shard(self, connection: apsw.Connection, change: ShardChange) -> None:
        shard = change.after
        row = {
            "tenant": shard.tenant,
            "run": shard.run,
            "shard": shard.shard,
            "status": shard.status,
            "fence": shard.fence,
            "deadline": shard.deadline,
            "record": format_shard(shard),
        }
        if change.before:
            connection.execute(self._sql["change_shard"], {**row, "version": change.before.version})
        else:
            connection.execute(self._sql["add_shard"], row)
        _check(connection.changes() == 1)


def _check(unchanged: bool) -> None:  # noqa: FBT001 - a condition
    if not unchanged:
        raise _Changed
