"""Verification of a lake: every object is read, and every id derived again, by the checks that databases have too.

Invariants: nothing is changed; a problem is told with a count, and never with an id that touches a secret. Pages are
listed before they are read: what writers add meanwhile is left for the next time.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow.compute as pc

from strandline.errors import Damaged
from strandline.pipeline.coordination.codec import format_run, format_shard
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.lake.columns import ledger_rows
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.layout import POLICIES, STATE, parse_policy, parse_tenant
from strandline.pipeline.lake.overview import STATE_KEYS_END, lake_runs, lake_shards
from strandline.pipeline.lake.state_log import StateLog, Value
from strandline.pipeline.lake.stores import LakeStores, open_lake
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.verify import Problem, Verified

Row = tuple[Any, ...]
Check = Callable[[Iterable[Row]], Iterator[str]]


def verify_lake(database: LakeDatabase, tell: Callable[[int], None], checks: Mapping[str, Check]) -> Verified:
    """Read and check every row of a lake; `tell` gets the number of rows of each table."""
    lake = open_lake(database)
    rows: dict[str, int] = {}
    problems: list[Problem] = []
    for table, read in _READERS.items():
        try:
            found = list(read(database, lake))
        except Damaged as error:  # an object that cannot be read hides its rows: tell, and look at the other tables
            problems.append(Problem("storage", str(error), 1))
            continue
        rows[table] = len(found)
        tell(len(found))
        problems += [Problem(table, problem, count) for problem, count in Counter(checks[table](found)).items()]
    state = _verify_state(lake, database)
    rows["scanner_state"] = len(state)
    tell(len(state))
    problems += [Problem("scanner_state", problem, count) for problem, count in Counter(filter(None, state)).items()]
    if not problems:
        problems += _between(database, lake)
    return Verified(rows, problems)


def _verify_state(lake: LakeStores, database: LakeDatabase) -> list[str]:
    """Read every value of scanner state; return the problem of each key, empty where there is none."""
    found: list[str] = []
    for tenant in sorted({parse_tenant(info.key) for info in database.store.list(STATE)}):
        log = lake.state.log(tenant)
        try:
            entries = log.read(lambda fold: list(fold.between(b"", STATE_KEYS_END)))
        except Damaged as error:  # without its log nothing is known of a tenant's keys
            found.append(str(error))
            continue
        found += [_value_problem(log, value) for _, value in entries]
    return found


def _value_problem(log: StateLog, value: Value) -> str:
    try:
        log.fetch([value])
    except Damaged as error:
        return str(error)
    return ""


def _ledger(_: LakeDatabase, lake: LakeStores) -> Iterator[Row]:
    for scope in lake.cache.scopes():
        for table in lake.cache.ledger(*scope).tables():
            yield from ledger_rows(table, lake.cache.store.address)


def _findings(_: LakeDatabase, lake: LakeStores) -> Iterator[Row]:
    yield from lake.cache.findings().findings.values()


def _occurrences(_: LakeDatabase, lake: LakeStores) -> Iterator[Row]:
    yield from lake.cache.findings().occurrences.values()


def _observations(_: LakeDatabase, lake: LakeStores) -> Iterator[Row]:
    for row in lake.cache.findings().observations.values():
        yield row.tenant, row.observation_id, row.occurrence_id, row.policy, row.seen_at, row.location_seen_at


def _decisions(_: LakeDatabase, lake: LakeStores) -> Iterator[Row]:
    for events in lake.cache.findings().triage.values():
        yield from ((named, *event) for named, event in events.items())


def _policies(database: LakeDatabase, lake: LakeStores) -> Iterator[Row]:
    for info in database.store.list(POLICIES):
        tenant, policy = parse_tenant(info.key), parse_policy(info.key)
        record = lake.findings.get_policy(tenant, policy)
        if record is not None:
            rules: list[bytes | None] = [rule for _, rule in record.rules]
            yield from ((tenant, policy, record.frame_digest, rule) for rule in rules or [None])


def _runs(database: LakeDatabase, _: LakeStores) -> Iterator[Row]:
    for run in lake_runs(database):
        yield run.tenant, run.run, run.status, format_run(run)


def _shards(database: LakeDatabase, _: LakeStores) -> Iterator[Row]:
    for shard in lake_shards(database):
        yield (*shard.key, shard.status, shard.fence, shard.deadline, format_shard(shard))


_READERS: dict[str, Callable[[LakeDatabase, LakeStores], Iterator[Row]]] = {
    "ledger": _ledger,
    "findings": _findings,
    "occurrences": _occurrences,
    "observations": _observations,
    "triage_events": _decisions,
    "policies": _policies,
    "runs": _runs,
    "shards": _shards,
}


def _between(database: LakeDatabase, lake: LakeStores) -> Iterator[Problem]:
    """Yield what is missing between rows; parents of findings are checked when they are read."""
    tables = lake.cache.findings()
    observed: dict[tuple[TenantId, PolicyHash, bytes], set[bytes]] = defaultdict(set)
    for row in tables.observations.values():
        finding = tables.occurrences[row.tenant, row.occurrence_id].finding_id
        observed[row.tenant, row.policy, row.ovid].add(finding)
    lost = 0
    for scope in lake.cache.scopes():
        for table in lake.cache.ledger(*scope).tables():
            said = table.filter(pc.equal(table["status"], int(DoneStatus.SCANNED_WITH_FINDINGS)))
            for entry in ledger_rows(said, database.describe()):
                lost += len(observed[entry.key]) < entry.findings_count
    if lost:
        yield Problem("ledger", "says more findings than were observed", lost)
    runs = {(run.tenant, run.run) for run in lake_runs(database)}
    orphans = sum((shard.tenant, shard.run) not in runs for shard in lake_shards(database))
    if orphans:
        yield Problem("shards", "name runs that do not exist", orphans)
