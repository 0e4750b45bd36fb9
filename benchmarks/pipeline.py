"""The pipeline's stores beside the floor of their own database, and coordination beside a bare conditional write.

For new rows the peer writes the same rows, in batches of the same size and as many transactions, into the same tables
of an empty database: `executemany` of a plain INSERT on SQLite, binary COPY on PostgreSQL. It validates nothing, merges
nothing and knows no fence. For coordination the peer is one conditional write of a value of the same size. Rows are
read back and compared before a figure counts. PostgreSQL and etcd are real servers on this machine, with fsync.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from blake3 import blake3

from benchmarks._harness import Row, alone, compare, medians, report, scratch
from strandline.clock import ManualClock
from strandline.pipeline import (
    Boundary,
    BoundaryKind,
    CommitScope,
    DoneStatus,
    FindingRecord,
    FindingsBatch,
    FindingsReceipt,
    LedgerRecord,
    ObservationRecord,
    OccurrenceRecord,
    Units,
    WriteContext,
)
from strandline.pipeline.coordination import Coordinator, MemoryRecords, RecordStore
from strandline.pipeline.coordination.etcd import EtcdRecords
from strandline.pipeline.coordination.etcd_client import EtcdClient, absent, present, put
from strandline.pipeline.coordination.postgres import PostgresRecords
from strandline.pipeline.coordination.sqlite import SqliteRecords
from strandline.pipeline.identity import (
    OvidHash,
    PolicyHash,
    TenantId,
    finding_ids,
    observation_ids,
    occurrence_ids,
)
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.findings import PostgresFindings, SqliteFindings
from strandline.pipeline.sql.ledger import PostgresLedger, SqliteLedger
from strandline.pipeline.sql.postgres import PostgresDatabase
from strandline.pipeline.sql.sqlite import SqliteDatabase
from strandline.protocol.leases import Acquired
from strandline.protocol.operations import op_id
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, OpKind, RunKey, ShardSpec
from tests.servers_etcd import running_etcd
from tests.servers_postgres import running_postgres

ROUNDS = 3
BATCH = 10_000
BATCHES = 10
FLAT_ROWS = 1_000_000
FLAT_MAX = 1.2
CONTEXT = WriteContext(TenantId(b"t" * 32), PolicyHash(b"p" * 32), 7, 1, 0)
LEDGER = ("ledger_entries",)
LAYERS = ("findings", "occurrences", "observations")
SHARDS = 200
CHECKPOINTS = 5

AnyDatabase = SqliteDatabase | PostgresDatabase
T = TypeVar("T")
Open = Callable[[], AnyDatabase]


# Rows


def digests(count: int) -> list[bytes]:
    """Return so many random ids."""
    data = os.urandom(32 * count)
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def scope_of(ovids: Sequence[bytes]) -> CommitScope:
    """Return the scope of a page with these keys."""
    boundary = Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"k"))
    return CommitScope(CONTEXT, Units.of(map(OvidHash, ovids)), boundary)


def ledger_page(count: int = BATCH) -> tuple[list[LedgerRecord], FindingsReceipt]:
    """Return rows of new objects, and the receipt that lets them in."""
    ovids = digests(count)
    clean = DoneStatus.SCANNED_CLEAN
    rows = [
        LedgerRecord(*CONTEXT[:2], OvidHash(ovid), False, clean, 4096, 0, 0, 0, 0, *CONTEXT[2:], at, at + 1, None)  # noqa: FBT003
        for at, ovid in enumerate(ovids)
    ]
    return rows, FindingsReceipt(scope_of(ovids))


def findings_page(count: int = BATCH) -> FindingsBatch:
    """Return new findings, each with one occurrence and one observation."""
    items, rules, secrets, versions, ovids = (digests(count) for _ in range(5))
    columns: Any
    named = finding_ids(CONTEXT.tenant, items, rules, secrets).to_pylist()
    occurring = occurrence_ids(named, versions, [10] * count, [20] * count).to_pylist()
    observed = observation_ids(CONTEXT.tenant, CONTEXT.policy, occurring).to_pylist()
    tenant, policy = CONTEXT[:2]
    columns = zip(named, items, rules, secrets, strict=True)
    findings = [FindingRecord(tenant, *row) for row in columns]
    columns = zip(occurring, named, versions, strict=True)
    occurrences = [OccurrenceRecord(tenant, row_id, finding, version, 10, 20) for row_id, finding, version in columns]
    columns = zip(observed, occurring, ovids, strict=True)
    observations = [
        ObservationRecord(tenant, row_id, occurrence, policy, ovid, *CONTEXT[2:], 5, 5, "src/main.py:12")
        for row_id, occurrence, ovid in columns
    ]
    return FindingsBatch(scope_of(ovids), findings, occurrences, observations)


# Writing


def ledger_of(database: AnyDatabase) -> SqliteLedger | PostgresLedger:
    """Return the ledger in a database."""
    return SqliteLedger(database) if isinstance(database, SqliteDatabase) else PostgresLedger(database)


def write_ledger(database: AnyDatabase) -> float:
    """Write new rows and return rows per second."""
    pages = [ledger_page() for _ in range(BATCHES)]
    ledger = ledger_of(database)
    begin = time.perf_counter()
    for rows, receipt in pages:
        ledger.batch_upsert(rows, after=receipt)
    seconds = time.perf_counter() - begin
    rows = pages[-1][0]
    assert ledger.batch_get(CONTEXT.tenant, CONTEXT.policy, [row.ovid for row in rows]) == rows
    return BATCH * BATCHES / seconds


def write_findings(database: AnyDatabase) -> float:
    """Write new findings with an occurrence and an observation each; return rows of all layers per second."""
    pages = [findings_page() for _ in range(BATCHES)]
    sink = SqliteFindings(database) if isinstance(database, SqliteDatabase) else PostgresFindings(database)
    begin = time.perf_counter()
    for page in pages:
        sink.upsert_batch(page)
    seconds = time.perf_counter() - begin
    for table in LAYERS:
        assert count(database, table) == BATCH * BATCHES
    return 3 * BATCH * BATCHES / seconds


def query(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return [tuple(row) for row in database.read(lambda connection: connection.execute(sql).fetchall())]


def count(database: Database, table: str) -> int:
    """Return how many rows a table has."""
    return int(query(database, f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - a table of ours


def rows_of(database: Database, table: str) -> list[tuple[Any, ...]]:
    """Return a table, in the order in which it was written where the database keeps that."""
    order = "ORDER BY rowid" if database.dialect == "sqlite" and table in LEDGER else ""
    return query(database, f"SELECT * FROM {table} {order}")  # noqa: S608 - a table of ours


def plain_write(database: Database, tables: dict[str, list[tuple[Any, ...]]]) -> float:
    """Write the same rows with nothing around them; return rows per second."""
    begin = time.perf_counter()
    for at in range(0, BATCH * BATCHES, BATCH):
        batch = {table: rows[at : at + BATCH] for table, rows in tables.items()}
        database.write(partial(_insert, batch))
    seconds = time.perf_counter() - begin
    for table, rows in tables.items():
        assert count(database, table) == len(rows)
    return sum(map(len, tables.values())) / seconds


def _insert(batch: dict[str, list[tuple[Any, ...]]], connection: AnyConnection) -> None:
    for table, rows in batch.items():
        if isinstance(connection, psycopg.Connection):
            _copy(connection, table, rows)
        else:
            marks = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - a table of ours


def _copy(connection: "psycopg.Connection[Any]", table: str, rows: list[tuple[Any, ...]]) -> None:
    columns = connection.execute(
        "SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = %s::regclass AND a.attnum > 0 ORDER BY a.attnum",
        [table],
    ).fetchall()
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types([oid for (oid,) in columns])
        for row in rows:
            copy.write_row(row)


def new_rows(name: str, open_empty: Open, peer: str) -> Iterator[Row]:
    """Compare new rows of the ledger and of findings with the plain write of the same rows."""
    cases: list[tuple[str, Callable[[AnyDatabase], float], Sequence[str]]] = [
        ("ledger", write_ledger, LEDGER),
        ("findings", write_findings, LAYERS),
    ]
    for what, write, tables in cases:
        written: dict[str, list[tuple[Any, ...]]] = {}

        def ours(
            write: Callable[[AnyDatabase], float] = write,
            tables: Sequence[str] = tables,
            written: dict[str, list[tuple[Any, ...]]] = written,
        ) -> float:
            with open_empty() as database:
                rate = write(database)
                written.update({table: rows_of(database, table) for table in tables})
                return rate

        def plain(written: dict[str, list[tuple[Any, ...]]] = written) -> float:
            with open_empty() as database:
                return plain_write(database, written)

        mine, floor = medians(ROUNDS, [ours, plain])
        yield compare(f"{what}, new rows on {name}", mine, peer, floor, "rows/s", goal=0.5)


def merged_rows(name: str, open_empty: Open) -> Row:
    """Measure rows of the ledger that are there already, and are merged."""
    with open_empty() as database:
        rows, receipt = ledger_page()
        ledger = ledger_of(database)
        ledger.batch_upsert(rows, after=receipt)
        begin = time.perf_counter()
        for _ in range(5):
            ledger.batch_upsert(rows, after=receipt)
        rate = 5 * BATCH / (time.perf_counter() - begin)
        assert count(database, LEDGER[0]) == BATCH
    return alone(f"ledger, rows that are there on {name}", rate, "rows/s")


def flat(name: str, open_empty: Open, peer: str) -> Row:
    """Measure how much more a new row costs at a million rows than at ten thousand, for us and for the plain write."""
    with open_empty() as database:
        ledger = ledger_of(database)
        growth = growth_of(database, lambda rows, receipt: ledger.batch_upsert(rows, after=receipt))
    with open_empty() as database:
        if database.dialect == "sqlite":
            database.write(partial(_insert, {"ledger_scopes": [(1, CONTEXT.tenant, CONTEXT.policy)]}))
        floor = growth_of(
            database, lambda rows, _: database.write(partial(_insert, {LEDGER[0]: _plain(database, rows)}))
        )
    title = f"ledger, cost of a row at 10^6 over 10^4 on {name}"
    return Row(title, growth, peer, floor, "times", floor / growth, FLAT_MAX, growth <= FLAT_MAX)


def growth_of(database: Database, write: Callable[[list[LedgerRecord], FindingsReceipt], object]) -> float:
    """Write a million new rows, and return what the last batches cost over what the first did."""
    costs = []
    for _ in range(FLAT_ROWS // BATCH):
        rows, receipt = ledger_page()
        begin = time.perf_counter()
        write(rows, receipt)
        costs.append(time.perf_counter() - begin)
    assert count(database, LEDGER[0]) == FLAT_ROWS
    window = 10
    return sum(costs[-window:]) / sum(costs[1 : window + 1])


def _plain(database: Database, rows: list[LedgerRecord]) -> list[tuple[Any, ...]]:
    """Return clean rows as the table holds them."""
    times = (None, None, None, None, 5, None)
    return [(1, *row[2:], *times) if database.dialect == "sqlite" else (*row, *times) for row in rows]


# Coordination


def coordinate(records: RecordStore) -> dict[str, float]:
    """Let one worker claim, checkpoint, renew and complete every shard of a run; return operations per second."""
    clock = ManualClock()
    coordinator = Coordinator(records)
    run = RunKey(CONTEXT.tenant, int.from_bytes(os.urandom(7), "big"))
    coordinator.create_run(clock.now_ns(), run, 1)
    shards = [InitialShard(number, ShardSpec(b"%04d" % number, b"%04d" % (number + 1))) for number in range(SHARDS)]
    coordinator.register_shards(clock.now_ns(), run, shards, 2)
    seconds = dict.fromkeys(("claim", "checkpoint", "renew", "complete"), 0.0)

    def timed(what: str, work: Callable[[], T]) -> T:
        begin = time.perf_counter()
        result = work()
        seconds[what] += time.perf_counter() - begin
        return result

    for _ in range(SHARDS):
        held = timed("claim", lambda: coordinator.claim_next_available(clock.now_ns(), run, 5))
        assert isinstance(held, Acquired)
        lease, now = held.lease, clock.now_ns()
        cursor = Cursor(held.spec.start)
        for number in range(CHECKPOINTS):
            cursor = Cursor(held.spec.start + b"%d" % number)
            op = op_id(run.run, lease.shard, lease.fence, OpKind.CHECKPOINT, number)
            timed("checkpoint", partial(coordinator.checkpoint, now, lease, cursor, op))
        timed("renew", partial(coordinator.renew, now, lease))
        op = op_id(run.run, lease.shard, lease.fence, OpKind.COMPLETE)
        timed("complete", partial(coordinator.complete, now, lease, cursor, op))
    assert coordinator.progress(run).done == SHARDS
    return {what: SHARDS * (CHECKPOINTS if what == "checkpoint" else 1) / spent for what, spent in seconds.items()}


def bare_sql(database: Database) -> float:
    """Write a value conditionally in a transaction of its own; return writes per second."""
    mark, kind = ("?", "BLOB") if database.dialect == "sqlite" else ("%s", "BYTEA")
    value, times = os.urandom(300), 300

    def run(sql: str, values: Sequence[object], connection: AnyConnection) -> None:
        connection.execute(sql, values)

    database.write(partial(run, f"CREATE TABLE bare (id BIGINT PRIMARY KEY, version BIGINT, record {kind})", []))
    database.write(partial(run, f"INSERT INTO bare VALUES (1, 0, {mark})", [value]))  # noqa: S608 - no value is in it
    sql = f"UPDATE bare SET version = version + 1, record = {mark} WHERE id = 1 AND version = {mark}"  # noqa: S608
    begin = time.perf_counter()
    for version in range(times):
        database.write(partial(run, sql, [value, version]))
    rate = times / (time.perf_counter() - begin)
    assert query(database, "SELECT version FROM bare") == [(times,)]
    return rate


def bare_etcd(client: EtcdClient) -> float:
    """Write a value conditionally; return writes per second."""
    key, value, times = b"/bare", os.urandom(300), 300
    assert client.transact([absent(key)], [put(key, value)])
    begin = time.perf_counter()
    for _ in range(times):
        assert client.transact([present(key)], [put(key, value)])
    return times / (time.perf_counter() - begin)


def coordination_rows(name: str, records: RecordStore, bare: float | None) -> Iterator[Row]:
    """Yield the figures of one backend."""
    for what, rate in coordinate(records).items():
        title = f"{what} on {name}"
        if bare is None:
            yield alone(title, rate, "ops/s")
        else:
            yield compare(title, rate, "one bare conditional write", bare, "ops/s")


# Servers


@contextmanager
def postgres() -> Iterator[Callable[[], PostgresDatabase]]:
    """Run a PostgreSQL that syncs; yields how to open an empty schema in it."""
    with running_postgres(fsync="on", shared_buffers="512MB", max_wal_size="4GB") as server:
        numbers = itertools.count(1)

        def open_empty() -> PostgresDatabase:
            database = PostgresDatabase(server.dsn, schema=f"bench{next(numbers)}")
            database.migrate()
            return database

        yield open_empty


def ids() -> Row:
    """Compare a column of ids with a plain loop."""
    keys = digests(BATCH)
    begin_with = CONTEXT.tenant + CONTEXT.policy

    def ours() -> float:
        begin = time.perf_counter()
        column = observation_ids(CONTEXT.tenant, CONTEXT.policy, keys)
        rate = BATCH / (time.perf_counter() - begin)
        assert len(column) == BATCH
        return rate

    def plain() -> float:
        begin = time.perf_counter()
        for key in keys:
            blake3(begin_with + key, derive_key_context="gossip/observation/v1").digest()
        return BATCH / (time.perf_counter() - begin)

    mine, loop = medians(9, [ours, plain])
    return compare("observation ids, a column of 10,000", mine, "a loop over blake3", loop, "ids/s")


def main() -> None:
    """Run all and report."""
    rows = [ids()]
    with scratch() as folder, postgres() as open_postgres:
        numbers = itertools.count(1)

        def open_sqlite() -> SqliteDatabase:
            database = SqliteDatabase(folder / f"{next(numbers)}.db")
            database.migrate()
            return database

        rows += new_rows("SQLite", open_sqlite, "executemany of a plain INSERT")
        rows += new_rows("PostgreSQL", open_postgres, "COPY, binary")
        rows += [merged_rows("SQLite", open_sqlite), merged_rows("PostgreSQL", open_postgres)]
        rows += [
            flat("SQLite", open_sqlite, "the same plain INSERT"),
            flat("PostgreSQL", open_postgres, "the same COPY"),
        ]
        rows += coordination_rows("memory", MemoryRecords(), None)
        with open_sqlite() as database:
            rows += coordination_rows("SQLite", SqliteRecords(database), bare_sql(database))
        with open_postgres() as server:
            rows += coordination_rows("PostgreSQL", PostgresRecords(server), bare_sql(server))
        with running_etcd() as etcd, EtcdClient(etcd.endpoint) as client:
            rows += coordination_rows("etcd", EtcdRecords(client), bare_etcd(client))
    report("pipeline", rows)


if __name__ == "__main__":
    main()
