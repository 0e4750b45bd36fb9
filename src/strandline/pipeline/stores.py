"""All of the pipeline's stores behind one address.

    pipeline.db, sqlite:pipeline.db              a SQLite file: the embedded default
    postgresql://user@host/database              a PostgreSQL server
    s3://bucket/prefix, file:///folder, …        a lake: objects below a prefix, and no server (`pipeline.lake`)
    etcd://host:2379, etcd://host:2379/prefix    an etcd, for coordination alone

Invariants: stores are opened on a schema of exactly this version, or not at all; with coordination in the same
database, writes under an older fence than a shard's are refused.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import urlsplit

from strandline.clock import Clock
from strandline.errors import FormatError, InvalidInput
from strandline.pipeline.coordination.coordinator import LEASE_TTL_NS, Coordinator
from strandline.pipeline.coordination.record_store import RecordStore
from strandline.pipeline.findings import FindingsSink
from strandline.pipeline.identity import TenantSecretKey
from strandline.pipeline.ledger import DoneLedger
from strandline.pipeline.policy import Policies
from strandline.pipeline.reads import PipelineReads
from strandline.pipeline.scope import unknown_fence
from strandline.pipeline.sql.findings import PostgresFindings, SqliteFindings
from strandline.pipeline.sql.ledger import PostgresLedger, SqliteLedger
from strandline.pipeline.sql.reads import SqlReads
from strandline.pipeline.sql.state import SqlState
from strandline.pipeline.state import ScannerState
from strandline.pipeline.tenant_keys import check_value
from strandline.pipeline.triage import Triage

if TYPE_CHECKING:  # each is imported when its address is opened: others need neither its package nor its modules
    from strandline.pipeline.coordination.etcd_client import EtcdClient
    from strandline.pipeline.lake.database import LakeDatabase
    from strandline.pipeline.sql.postgres import PostgresDatabase
    from strandline.pipeline.sql.sqlite import SqliteDatabase

SqlAnyDatabase: TypeAlias = "SqliteDatabase | PostgresDatabase"
AnyDatabase: TypeAlias = "SqliteDatabase | PostgresDatabase | LakeDatabase"
LAKES = ("s3://", "gs://", "az://", "file://", "memory://")
_POSTGRES = ("postgresql://", "postgres://")
_SETTING = re.compile(r"password\s*=|^\s*(?:host|hostaddr|port|user|dbname|service)\s*=", re.IGNORECASE)
"""libpq's own form, `host=… user=…`; of a folder of such a name `./` comes before it."""


class NoPipeline(FormatError):
    """The database has no tables of a pipeline."""

    def __init__(self, where: str) -> None:
        super().__init__(
            where, "holds no pipeline", hint="make one with `strandline pipeline init`, or check the address"
        )


@dataclass(frozen=True)
class Stores:
    """The open stores of a pipeline; close them, or use a `with` statement."""

    database: AnyDatabase
    findings: FindingsSink
    ledger: DoneLedger
    triage: Triage
    policies: Policies
    reads: PipelineReads
    state: ScannerState
    coordinator: Coordinator
    etcd: "EtcdClient | None" = None

    @property
    def sql(self) -> SqlAnyDatabase:
        """Return the database, for what only SQL can do; `InvalidInput` for a lake."""
        if self.database.dialect == "objects":
            raise InvalidInput(
                "this needs a database, and the state is a lake, whose pages never change",
                hint="copy it into a folder with `strandline pipeline copy`, and copy the result to a new prefix",
            )
        return self.database

    def close(self) -> None:
        """Close connections; calling it twice is harmless."""
        self.coordinator.close()
        if self.etcd is not None:
            self.etcd.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_like_server(path: str) -> bool:
    """Return whether a path looks like the address of a server, which may hold a password and is never shown."""
    return "://" in path or _SETTING.search(path) is not None


def open_database(address: str, *, clock: Clock | None = None) -> AnyDatabase:
    """Return the database at an address, without connecting to it."""
    if address.startswith(_POSTGRES):
        from strandline.pipeline.sql.postgres import PostgresDatabase  # noqa: PLC0415 - see above

        return PostgresDatabase(address, clock=clock)
    if address.startswith(LAKES):
        from strandline.pipeline.lake.database import LakeDatabase  # noqa: PLC0415 - see above

        return LakeDatabase(address, clock=clock)
    path = address.removeprefix("sqlite:")
    if not path or is_like_server(path) or path.lower().startswith("postgres"):
        raise InvalidInput(
            "the address is neither a path nor the address of a supported server",
            hint="give the path of a SQLite file, postgresql://user@host/database, s3://bucket/prefix or file:///folder",
        )
    from strandline.pipeline.sql.sqlite import SqliteDatabase  # noqa: PLC0415 - see above

    return SqliteDatabase(Path(path), clock=clock)


def open_stores(
    address: str,
    *,
    coordination: str | None = None,
    lease_ttl_ns: int = LEASE_TTL_NS,
    migrate: bool = False,
    clock: Clock | None = None,
    key: TenantSecretKey | None = None,
) -> Stores:
    """Open the stores at an address; `migrate` makes or updates the tables first, otherwise old ones are refused.

    Coordination is in the same database unless `coordination` gives an etcd. With the `key` that findings are derived
    with, findings are refused when it is no longer the tenant's.
    """
    database = open_database(address, clock=clock)
    try:
        if migrate:
            database.migrate()
        require_current(database)
        client = None if coordination is None else _etcd_client(coordination)
        records = record_store_of(database) if client is None or coordination is None else _etcd(client, coordination)
    except BaseException:
        database.close()
        raise
    check = None if key is None else check_value(key)
    coordinator = Coordinator(records, lease_ttl_ns=lease_ttl_ns)
    if database.dialect == "objects":
        return _lake_stores(database, records, coordinator, check, client)
    is_sqlite = database.dialect == "sqlite"
    findings = SqliteFindings(database, check) if is_sqlite else PostgresFindings(database, check)
    ledger = SqliteLedger(database) if is_sqlite else PostgresLedger(database)
    return Stores(
        database, findings, ledger, findings, findings, SqlReads(database), SqlState(database), coordinator, client
    )


def require_current(database: AnyDatabase) -> None:
    """Reject a database whose schema is not of this version."""
    status = database.status()
    if not status.applied:
        raise NoPipeline(database.describe())
    if status.pending:
        raise FormatError(
            database.describe(),
            f"has schema version {len(status.applied)}, and this version needs {status.pending[-1].version}",
            hint="bring it up to date with `strandline pipeline migrate`",
        )


def _lake_stores(
    database: "LakeDatabase",
    records: RecordStore,
    coordinator: Coordinator,
    check: bytes | None,
    client: "EtcdClient | None",
) -> Stores:
    from strandline.pipeline.coordination.objects import ObjectRecords  # noqa: PLC0415 - see above
    from strandline.pipeline.lake.stores import open_lake  # noqa: PLC0415 - see above

    lake = open_lake(database, records.fence_of if isinstance(records, ObjectRecords) else unknown_fence, check)
    findings = lake.findings
    return Stores(database, findings, lake.ledger, findings, findings, lake.reads, lake.state, coordinator, client)


def record_store_of(database: AnyDatabase) -> RecordStore:
    """Return the runs and shards of a database."""
    if database.dialect == "objects":
        from strandline.pipeline.coordination.objects import ObjectRecords  # noqa: PLC0415 - see above

        return ObjectRecords(database.store)
    if database.dialect == "postgres":
        from strandline.pipeline.coordination.postgres import PostgresRecords  # noqa: PLC0415 - see above

        return PostgresRecords(database)
    from strandline.pipeline.coordination.sqlite import SqliteRecords  # noqa: PLC0415 - see above

    return SqliteRecords(database)


def _etcd_client(address: str) -> "EtcdClient":
    from strandline.pipeline.coordination.etcd_client import EtcdClient  # noqa: PLC0415 - see above

    parts = urlsplit(address)
    if parts.scheme != "etcd" or not parts.hostname or "@" in parts.netloc:
        raise InvalidInput("the address of an etcd cannot be read", hint="give etcd://host:2379, without a user")
    return EtcdClient(parts.netloc)


def _etcd(client: "EtcdClient", address: str) -> RecordStore:
    from strandline.pipeline.coordination.etcd import EtcdRecords  # noqa: PLC0415 - see above
    from strandline.pipeline.coordination.etcd_keys import PREFIX  # noqa: PLC0415 - see above

    return EtcdRecords(client, prefix=urlsplit(address).path.rstrip("/") or PREFIX)
