"""All rows of a state, to be copied: with the times of their first commits, from a database or a lake.

Invariants: a database is read as of one moment; of a lake, runs and scanner state are read before the ledger and the
ledger before the findings, the reverse of how they are written: so no row that is read names one that is not.
"""

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from strandline.pipeline.coordination.codec import parse_run, parse_shard
from strandline.pipeline.identity import SecretHash, TenantId
from strandline.pipeline.lake.columns import TIMES, ledger_rows
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.layout import POLICIES, STATE, parse_policy, parse_tenant
from strandline.pipeline.lake.overview import lake_runs, lake_shards
from strandline.pipeline.lake.stores import open_lake
from strandline.pipeline.policy import PolicyRecord
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.stores import AnyDatabase, SqlAnyDatabase
from strandline.pipeline.verify import PAGE_ROWS, stream_pages
from strandline.protocol.runs import RunRecord
from strandline.protocol.shards import ShardRecord

Row: TypeAlias = tuple[Any, ...]
Pages: TypeAlias = Iterator[list[Row]]
_FIRST, _END = b"\x00", b"\xff" * 2048


class StateRows(NamedTuple):
    """The rows of a state; those with times have them as their last columns."""

    policies: Callable[[], Iterator[tuple[TenantId, PolicyRecord]]]
    findings: Callable[[], Pages]
    occurrences: Callable[[], Pages]
    observations: Callable[[], Pages]
    ledger: Callable[[], Pages]
    triage: Callable[[], Pages]
    state: Callable[[], Iterator[tuple[TenantId, bytes, bytes]]]
    runs: Callable[[], Iterator[RunRecord]]
    shards: Callable[[], Iterator[ShardRecord]]


def with_rows(database: AnyDatabase, work: Callable[[StateRows], None]) -> None:
    """Call `work` with the rows of a state."""
    if database.dialect == "objects":
        work(_lake_rows(database))
    else:
        sql: SqlAnyDatabase = database
        sql.read(lambda connection: work(_sql_rows(connection, sql)))


def _sql_rows(connection: AnyConnection, database: SqlAnyDatabase) -> StateRows:
    named = statements(database.dialect, "copy")

    def pages(table: str) -> Callable[[], Pages]:
        return lambda: stream_pages(connection, database.dialect, named[table])

    def rows(table: str) -> Iterator[Row]:
        for page in pages(table)():
            yield from page

    def policies() -> Iterator[tuple[TenantId, PolicyRecord]]:
        for _, group in groupby(rows("policies"), key=itemgetter(0, 1)):
            found = list(group)
            tenant, policy, frame_digest, *_ = found[0]
            rules = tuple((name, bytes(rule)) for *_, name, rule in found if name is not None)
            yield tenant, PolicyRecord(policy, frame_digest, rules)  # type: ignore[arg-type] # digests are bytes

    return StateRows(
        policies,
        lambda: ([(*row[:4], SecretHash(row[4]), row[5]) for row in page] for page in pages("findings")()),
        pages("occurrences"),
        pages("observations"),
        pages("ledger"),
        pages("triage"),
        lambda: ((tenant, key, value) for tenant, key, value in rows("state")),
        lambda: (parse_run(record) for (record,) in rows("runs")),
        lambda: (parse_shard(record) for (record,) in rows("shards")),
    )


def _lake_rows(database: LakeDatabase) -> StateRows:
    runs, shards = list(lake_runs(database)), list(lake_shards(database))
    lake = open_lake(database)
    tenants = sorted({parse_tenant(info.key) for info in database.store.list(STATE)})
    kept = {tenant: lake.state.log(tenant).read(lambda fold: list(fold.between(_FIRST, _END))) for tenant in tenants}
    ledgers = [lake.cache.ledger(*scope) for scope in lake.cache.scopes()]
    tables = lake.cache.findings()
    first = tables.first_ns

    def policies() -> Iterator[tuple[TenantId, PolicyRecord]]:
        for info in database.store.list(POLICIES):
            record = lake.findings.get_policy(parse_tenant(info.key), parse_policy(info.key))
            if record is not None:
                yield parse_tenant(info.key), record

    def layer(rows: dict[Any, Any]) -> Callable[[], Pages]:
        return lambda: _cut([(*row, first[row[0], row[1]]) for row in rows.values()])

    def ledger() -> Pages:
        for table in chain.from_iterable(one.tables() for one in ledgers):
            times = zip(*(table[name].to_pylist() for name in TIMES), strict=True)
            rows = ledger_rows(table, database.describe())
            yield from _cut([(*row, *seen) for row, seen in zip(rows, times, strict=True)])

    def state() -> Iterator[tuple[TenantId, bytes, bytes]]:
        for tenant, values in kept.items():
            for key, value in values:
                (data,) = lake.state.log(tenant).fetch([value])
                yield tenant, key, data or b""

    decided = [
        (*event, lake.cache.triage_ns[named]) for events in tables.triage.values() for named, event in events.items()
    ]
    return StateRows(
        policies,
        layer(tables.findings),
        layer(tables.occurrences),
        layer(tables.observations),
        ledger,
        lambda: _cut(decided),
        state,
        lambda: iter(runs),
        lambda: iter(shards),
    )


def _cut(rows: list[Row]) -> Pages:
    for at in range(0, len(rows), PAGE_ROWS):
        yield rows[at : at + PAGE_ROWS]
