"""The stores that the contract is checked over: in memory, in an SQLite file, in a real PostgreSQL, and as objects."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from strandline.clock import ManualClock
from strandline.objects import LocalObjects, MemoryObjects, ObjectStore, open_objects
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.pipeline.coordination.record_store import Plan, ShardChange
from strandline.pipeline.identity import TenantId
from strandline.pipeline.lake import LakeFindings, LakeLedger, LakeReads, LakeState, PageCache
from strandline.pipeline.memory import MemoryFindings, MemoryLedger, MemoryTables
from strandline.pipeline.memory_reads import MemoryReads
from strandline.pipeline.sql.findings import PostgresFindings, SqliteFindings
from strandline.pipeline.sql.ledger import PostgresLedger, SqliteLedger
from strandline.pipeline.sql.postgres import PostgresDatabase
from strandline.pipeline.sql.reads import SqlReads
from strandline.pipeline.sql.sqlite import SqliteDatabase
from strandline.pipeline.sql.state import SqlState
from strandline.pipeline.state import MemoryState
from strandline.protocol.shards import ShardRecord, ShardSpec
from strandline.testing import CheckedPersistence, SetFence
from tests.servers_postgres import PostgresServer, fresh_schema
from tests.servers_seaweed import fresh_address

QUICK = ("memory", "sqlite", "postgres")
LAKES = ("objects in memory", "objects in a folder", "objects on SeaweedFS")


def memory_stores() -> CheckedPersistence:
    """Return empty stores in memory that know the fences they are told."""
    fences: dict[tuple[TenantId, int, int], int] = {}
    clock = ManualClock()
    tables = MemoryTables(clock, lambda *shard: fences.get(shard))
    findings = MemoryFindings(tables)

    def set_fence(tenant: TenantId, run_id: int, shard_id: int, fence: int) -> None:
        fences[tenant, run_id, shard_id] = fence

    return CheckedPersistence(
        MemoryLedger(tables),
        findings,
        findings,
        findings,
        MemoryReads(tables),
        MemoryState(tables.fence_of),
        clock,
        set_fence,
    )


@contextmanager
def sqlite_stores(folder: Path) -> Iterator[CheckedPersistence]:
    """Open empty stores in a file of their own."""
    clock = ManualClock()
    with SqliteDatabase(folder / "pipeline.db", clock=clock) as database:
        database.migrate()
        findings = SqliteFindings(database)
        yield CheckedPersistence(
            SqliteLedger(database),
            findings,
            findings,
            findings,
            SqlReads(database),
            SqlState(database),
            clock,
            _set_fence(database.write, "INSERT INTO shards VALUES (?, ?, ?, 0, ?, NULL, 1, x'')"),
        )


@contextmanager
def postgres_stores(dsn: str, schema: str) -> Iterator[CheckedPersistence]:
    """Open the stores of a migrated schema, emptied of whoever was there before."""
    _empty(dsn, schema)
    clock = ManualClock()
    with PostgresDatabase(dsn, schema=schema, clock=clock) as database:
        findings = PostgresFindings(database)
        yield CheckedPersistence(
            PostgresLedger(database),
            findings,
            findings,
            findings,
            SqlReads(database),
            SqlState(database),
            clock,
            _set_fence(database.write, "INSERT INTO shards VALUES (%s, %s, %s, 0, %s, NULL, 1, '')"),
        )


def object_stores(store: ObjectStore) -> CheckedPersistence:
    """Return the stores of a lake over an empty store of objects."""
    clock = ManualClock()
    records, cache = ObjectRecords(store), PageCache(store, clock)
    state = LakeState(store, records.fence_of)
    findings = LakeFindings(cache, state, records.fence_of)

    def set_fence(tenant: TenantId, run_id: int, shard_id: int, fence: int) -> None:
        whole = ShardSpec(b"a", b"z")
        shard = ShardRecord(tenant, run_id, shard_id, whole, fence=fence, parent=1 if shard_id < 0 else None)
        parent = [ShardRecord(tenant, run_id, 1, whole, spawned=(shard_id,))] if shard_id < 0 else []
        records.commit(Plan(0, tuple(ShardChange(None, one) for one in [shard, *parent])))

    ledger = LakeLedger(cache, records.fence_of)
    return CheckedPersistence(ledger, findings, findings, findings, LakeReads(cache), state, clock, set_fence)


@contextmanager
def opened_objects(backend: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[ObjectStore]:
    """Open an empty store of objects of the kind that a backend is named after."""
    if backend == "objects in memory":
        yield MemoryObjects()
    elif backend == "objects in a folder":
        with closing(LocalObjects(folder / "objects")) as local:
            yield local
    else:
        environ = request.getfixturevalue("seaweed_server").environ
        with closing(open_objects(fresh_address(), conditional=True, environ=environ)) as remote:
            yield remote


@pytest.fixture(scope="session")
def postgres_pipeline(postgres_server: PostgresServer) -> Iterator[tuple[str, str]]:
    """A migrated schema that the checks of one process use one after another."""
    with fresh_schema(postgres_server.dsn) as schema:
        with PostgresDatabase(postgres_server.dsn, schema=schema) as database:
            database.migrate()
        yield postgres_server.dsn, schema


@pytest.fixture
def stores(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckedPersistence]:
    """Empty stores of the backend that the test is for."""
    opened: AbstractContextManager[CheckedPersistence]
    match backend:
        case "memory":
            opened = nullcontext(memory_stores())
        case "sqlite":
            opened = sqlite_stores(tmp_path)
        case _ if backend.startswith("objects"):
            with opened_objects(backend, request, tmp_path) as store:
                yield object_stores(store)
            return
        case _:
            opened = postgres_stores(*request.getfixturevalue("postgres_pipeline"))
    with opened as found:
        yield found


def _set_fence(write: Callable[[Callable[[Any], None]], None], statement: str) -> SetFence:
    def set_fence(tenant: TenantId, run_id: int, shard_id: int, fence: int) -> None:
        write(lambda connection: connection.execute(statement, (tenant, run_id, shard_id, fence)))

    return set_fence


def _empty(dsn: str, schema: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        tables = [sql.Identifier(schema, name) for (name,) in rows if name != "schema_migrations"]
        # To truncate a table makes new files for it and its indexes; most are empty.
        probe = sql.SQL("SELECT 1 FROM {} LIMIT 1")
        filled = [table for table in tables if connection.execute(probe.format(table)).fetchone()]
        if filled:
            connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(filled)))
