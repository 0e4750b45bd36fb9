"""The stores of coordination that every test of the contract runs over: one entry per backend.

A backend is a function of pytest's request, from which it gets a folder or a server, that opens an empty store.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from strandline.objects import LocalObjects, MemoryObjects, open_objects
from strandline.pipeline.coordination import Coordinator, MemoryRecords, RecordStore, SqliteRecords
from strandline.pipeline.coordination.etcd import EtcdRecords
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.pipeline.coordination.postgres import PostgresRecords
from strandline.pipeline.sql import PostgresDatabase, SqliteDatabase
from strandline.testing.coordination_helpers import LEASE_TTL_NS
from tests.servers_etcd import connected
from tests.servers_seaweed import fresh_address

Opens = Callable[[pytest.FixtureRequest], AbstractContextManager[RecordStore]]


@contextmanager
def open_memory(_: pytest.FixtureRequest) -> Iterator[RecordStore]:
    yield MemoryRecords()


@contextmanager
def open_small(_: pytest.FixtureRequest) -> Iterator[RecordStore]:
    store = MemoryRecords()
    store.records_per_commit_max = 5
    yield store


@contextmanager
def open_sqlite(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    with sqlite_records(request.getfixturevalue("tmp_path")) as records:
        yield records


@contextmanager
def open_postgres(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    dsn, schema = request.getfixturevalue("postgres_server").dsn, request.getfixturevalue("postgres_schema")
    with PostgresDatabase(dsn, schema=schema) as database:
        database.migrate()
        yield PostgresRecords(database)


@contextmanager
def open_etcd(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    with connected(request.getfixturevalue("etcd_server").endpoint) as client:
        yield EtcdRecords(client, prefix=request.getfixturevalue("etcd_prefix"))


@contextmanager
def open_objects_in_memory(_: pytest.FixtureRequest) -> Iterator[RecordStore]:
    yield ObjectRecords(MemoryObjects())


@contextmanager
def open_local_objects(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    with closing(LocalObjects(request.getfixturevalue("tmp_path") / "objects")) as store:
        yield ObjectRecords(store)


@contextmanager
def open_seaweed(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    environ = request.getfixturevalue("seaweed_server").environ
    with closing(open_objects(fresh_address(), conditional=True, environ=environ)) as store:
        yield ObjectRecords(store)


BACKENDS: dict[str, Opens] = {
    "memory": open_memory,
    "memory, small commits": open_small,
    "sqlite": open_sqlite,
    "postgres": open_postgres,
    "etcd": open_etcd,
    "objects in memory": open_objects_in_memory,
    "objects in a folder": open_local_objects,
    "objects on SeaweedFS": open_seaweed,
}


@contextmanager
def sqlite_records(folder: Path) -> Iterator[SqliteRecords]:
    """Open the records of a database in a folder, which may have been used before."""
    with SqliteDatabase(folder / "pipeline.db") as database:
        database.migrate()
        yield SqliteRecords(database)


@contextmanager
def open_coordinator(name: str, request: pytest.FixtureRequest) -> Iterator[Coordinator]:
    """Open a coordinator over an empty store."""
    with BACKENDS[name](request) as store, Coordinator(store, lease_ttl_ns=LEASE_TTL_NS) as coordinator:
        yield coordinator
