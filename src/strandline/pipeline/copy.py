"""A copy of a state into another one: between SQLite, PostgreSQL and lakes, in any direction.

Rows are written through the same stores that scans write through, and merged by the same rules, under the times of
their first commits. So a copy into an empty state has exactly its rows, a copy into another is the union of both, and a
copy that was interrupted is repeated: what is there already is merged with itself.

    policies, findings, occurrences, observations, ledger, triage     merged
    scanner state                                                     replaced, key by key
    runs and shards                                                   added; replaced by those that went further

Invariants: nothing of the source is changed; parents come before their children, and the ledger after the findings;
results under two keys of one tenant are never mixed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from strandline.errors import Conflict, InvalidInput
from strandline.pipeline.commit import check_items
from strandline.pipeline.coordination.record_store import Plan, RecordStore, Result, RunChange, ShardChange
from strandline.pipeline.copy_source import Row, StateRows, with_rows
from strandline.pipeline.findings import (
    FindingRecord,
    FindingsBatch,
    FindingsSink,
    ObservationRecord,
    OccurrenceRecord,
)
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import DoneLedger, DoneStatus, LedgerRecord
from strandline.pipeline.policy import Policies
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind, CommitScope, Units, WriteContext
from strandline.pipeline.state import Put, ScannerState, parse_fence_key
from strandline.pipeline.stores import AnyDatabase, open_database, record_store_of, require_current
from strandline.pipeline.tenant_keys import CHECK_KEY, ROTATION_KEY
from strandline.pipeline.triage import Triage, TriageEvent, TriageState
from strandline.protocol.shards import Cursor, ShardRecord, ShardStatus

_STATE_BYTES = 4 << 20
_NO_POLICY = PolicyHash(bytes(32))
_STATUSES = {int(status): status for status in DoneStatus}


class _CopyClock:
    """The time at which the copied row was first committed."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        """Return that time."""
        return self.ns


@dataclass(frozen=True)
class _Target:
    findings: FindingsSink
    ledger: DoneLedger
    triage: Triage
    policies: Policies
    state: ScannerState
    records: RecordStore
    clock: _CopyClock


def copy_state(source: str, target: str, tell: Callable[[str, int], None] = lambda *_: None) -> dict[str, int]:
    """Copy a state into another, which is made if it does not exist; return how many rows of each table there were."""
    if source == target:
        raise InvalidInput("a state cannot be copied into itself", hint="give two different addresses")
    clock, counts = _CopyClock(), Counter[str]()

    def count(table: str, rows: int) -> None:
        counts[table] += rows
        tell(table, rows)

    with open_database(source) as reading, open_database(target, clock=clock) as writing:
        require_current(reading)
        writing.migrate()
        require_current(writing)
        opened = _opened(writing, clock)
        with_rows(reading, lambda rows: _copy(rows, opened, count))
    return dict(counts)


def _opened(database: AnyDatabase, clock: _CopyClock) -> _Target:
    """Open the stores of a target without fences: the rows were accepted where they come from."""
    records = record_store_of(database)
    if database.dialect == "objects":
        from strandline.pipeline.lake.stores import open_lake  # noqa: PLC0415 - only lakes need it

        lake = open_lake(database)
        return _Target(lake.findings, lake.ledger, lake.findings, lake.findings, lake.state, records, clock)
    from strandline.pipeline.sql.findings import PostgresFindings, SqliteFindings  # noqa: PLC0415 - as above
    from strandline.pipeline.sql.ledger import PostgresLedger, SqliteLedger  # noqa: PLC0415
    from strandline.pipeline.sql.state import SqlState  # noqa: PLC0415

    is_sqlite = database.dialect == "sqlite"
    findings = (SqliteFindings if is_sqlite else PostgresFindings)(database, is_fenced=False)
    ledger = (SqliteLedger if is_sqlite else PostgresLedger)(database, is_fenced=False)
    return _Target(findings, ledger, findings, findings, SqlState(database), records, clock)


def _copy(rows: StateRows, target: _Target, count: Callable[[str, int], None]) -> None:
    _check_keys(rows, target)
    for tenant, policy in rows.policies():
        target.policies.register_policy(tenant, policy)
        count("policies", 1)
    _copy_findings(rows, target, count)
    for page in rows.ledger():
        _copy_ledger(page, target)
        count("ledger", len(page))
    for page in rows.triage():
        for (_, ns), group in _grouped(page, lambda row: (row[0], row[-1])):
            target.clock.ns = ns
            target.triage.record_triage([TriageEvent(*row[:-1])._replace(state=TriageState(row[2])) for row in group])
        count("triage", len(page))
    _copy_state(rows, target, count)
    _copy_runs(rows, target, count)


def _copy_findings(rows: StateRows, target: _Target, count: Callable[[str, int], None]) -> None:
    """Write findings, then their places, then where they were seen."""
    for page in rows.findings():
        for (tenant, ns), group in _grouped(page, lambda row: (row[0], row[-1])):
            target.clock.ns = ns
            records = [FindingRecord(*row[:-1]) for row in group]
            target.findings.upsert_batch(FindingsBatch(_scope(_context(tenant)), findings=records))
        count("findings", len(page))
    for page in rows.occurrences():
        for (tenant, ns), group in _grouped(page, lambda row: (row[0], row[-1])):
            target.clock.ns = ns
            places = [OccurrenceRecord(*row[:-1]) for row in group]
            target.findings.upsert_batch(FindingsBatch(_scope(_context(tenant)), occurrences=places))
        count("occurrences", len(page))
    for page in rows.observations():
        for (*context, ns), group in _grouped(page, lambda row: (row[0], row[3], *row[5:8], row[-1])):
            target.clock.ns = ns
            seen = [ObservationRecord(*row[:-1]) for row in group]
            target.findings.upsert_batch(FindingsBatch(_scope(WriteContext(*context)), observations=seen))
        count("observations", len(page))


def _check_keys(rows: StateRows, target: _Target) -> None:
    """Refuse a source whose key is being rotated, and a target whose tenant has another key."""
    for tenant, key, value in rows.state():
        if key == ROTATION_KEY:
            raise Conflict("a tenant's key is being rotated", hint="finish `strandline pipeline rotate-key` first")
        if key == CHECK_KEY:
            known, rotation = target.state.multi_get(tenant, [CHECK_KEY, ROTATION_KEY])
            if rotation is not None:
                raise Conflict(
                    "a tenant's key is being rotated there", hint="finish `strandline pipeline rotate-key` first"
                )
            if known not in (None, value):
                raise Conflict(
                    "the results of a tenant are under another key there, and must not be mixed",
                    hint="copy into an empty state, or rotate the keys of both to the same one",
                )


def _copy_ledger(page: list[Row], target: _Target) -> None:
    """Write rows once for each status that they ever had, under the time of it."""
    dated = [(row, ns) for full in page for row, ns in _histories(full)]
    groups: dict[tuple[WriteContext, int], list[LedgerRecord]] = defaultdict(list)
    for row, ns in dated:
        groups[WriteContext(row.tenant, row.policy, row.run_id, row.shard_id, row.fence), ns].append(row)
    for (context, ns), group in sorted(groups.items(), key=lambda one: one[0][1]):
        target.clock.ns = ns
        after = FindingsReceipt(_scope(context, [row.ovid for row in group]))
        check_items(group, after)
        target.ledger.batch_upsert(group, after=after)


def _histories(full: Row) -> Iterator[tuple[LedgerRecord, int]]:
    """Yield a row, and for each lesser status that it had a row that merges into it without a trace but its time."""
    columns, times = full[:16], full[16:]
    row = LedgerRecord(*columns)._replace(weak=bool(columns[3]), status=_STATUSES[columns[4]])
    for status, ns in zip(DoneStatus, times, strict=True):
        if ns is None:
            continue
        if status == row.status:
            yield row, ns
        else:
            yield _lesser(row, status), ns


def _lesser(row: LedgerRecord, status: DoneStatus) -> LedgerRecord:
    gaps = row.gaps
    if status == DoneStatus.SCANNED_CLEAN:
        gaps = (0, 0, 0)
    elif status == DoneStatus.SCANNED_PARTIAL and not any(gaps):
        gaps = (1, 0, 0)
    findings = 0 if status.is_scanned else row.findings_count
    code = None if status.is_scanned else row.error_code or "UNKNOWN"
    return row._replace(
        status=status,
        findings_count=findings,
        members_skipped=gaps[0],
        decodes_skipped=gaps[1],
        findings_dropped=gaps[2],
        error_code=code,
    )


def _copy_state(rows: StateRows, target: _Target, count: Callable[[str, int], None]) -> None:
    waiting: list[Put] = []
    owner: TenantId | None = None

    def flush() -> None:
        if owner is not None and waiting:
            target.state.apply_batch(owner, waiting)
            count("scanner_state", len(waiting))
            waiting.clear()

    for tenant, key, value in rows.state():
        if parse_fence_key(key) is not None:  # runs and shards are copied, which have the fences
            continue
        if tenant != owner or sum(len(put.value) for put in waiting) + len(value) > _STATE_BYTES:
            flush()
            owner = tenant
        waiting.append(Put(bytes(key), bytes(value)))
        if len(waiting) >= 1_000:  # noqa: PLR2004 - a batch
            flush()
    flush()


def _copy_runs(rows: StateRows, target: _Target, count: Callable[[str, int], None]) -> None:
    """Copy shards before the runs that make them claimable; parts before the parents that name them."""
    for shard in _parts_first(list(rows.shards())):
        (known,) = target.records.load_shards([shard.key])
        if known is None or _is_further(shard, known.record):
            _commit(target, Plan(0, (ShardChange(known, shard),)))
        count("shards", 1)
    for run in rows.runs():
        before = target.records.load_run(run.key)
        if before is None or not (before.record.over or before.record.status > run.status):
            _commit(target, Plan(0, run=RunChange(before, run)))
        count("runs", 1)


def _is_further(shard: ShardRecord, known: ShardRecord) -> bool:
    """Return whether a shard went further than the target's: under one fence, an end comes after all else."""
    is_same_fence = shard.fence == known.fence and known.status == ShardStatus.ACTIVE
    return shard.fence > known.fence or (is_same_fence and shard != known)


def _parts_first(shards: list[ShardRecord]) -> list[ShardRecord]:
    """Return shards with those that were split off later before: a parent is never there without its parts."""
    known = {shard.key: shard for shard in shards}

    def depth(shard: ShardRecord) -> int:
        found, steps = shard, 0
        while found.parent is not None and (above := known.get(found.key._replace(shard=found.parent))) is not None:
            found, steps = above, steps + 1
        return steps

    return sorted(shards, key=depth, reverse=True)


def _commit(target: _Target, plan: Plan) -> None:
    if target.records.commit(plan) is not Result.DONE:
        raise Conflict("a run or shard of the target changed while it was copied", hint="run the command again")


def _grouped(page: Iterable[Row], key: Callable[[Row], tuple[object, ...]]) -> list[tuple[Row, list[Row]]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in page:
        groups[key(row)].append(row)
    return sorted(groups.items(), key=lambda one: one[0][-1])


def _context(tenant: TenantId) -> WriteContext:
    return WriteContext(tenant, _NO_POLICY, 0, 0, 0)


def _scope(context: WriteContext, ovids: Iterable[OvidHash] = ()) -> CommitScope:
    units = Units.of(ovids) if ovids else Units(1, bytes(32))
    return CommitScope(context, units, Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"copy")))
