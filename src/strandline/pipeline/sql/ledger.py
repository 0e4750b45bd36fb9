"""The done-ledger in the table `ledger_entries`, merged by SQL exactly as `strandline.pipeline.ledger.merge` merges.

Invariants: a batch is one transaction; rows of equal keys are merged before they are sent, so that a statement meets
each key once; a status that is not in the lattice is `Damaged` when it is read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from strandline.errors import Damaged
from strandline.lazy_imports import deferred
from strandline.pipeline.commit import check_items, check_valid
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, KeyMismatch
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import LEDGER_COLUMNS, DoneStatus, LedgerRecord, fold, receipt
from strandline.pipeline.page_rows import PageRows
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql import arrays
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.fences import check_fence
from strandline.pipeline.sql.ledger_copy import copy_data
from strandline.pipeline.sql.sqlite_rows import insert_or_merge, send
from strandline.pipeline.sql.statements import statements

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import errors as postgres_errors
else:
    pa = deferred("pyarrow")
    postgres_errors = deferred("psycopg.errors", "postgres")

_ovid = itemgetter(LedgerRecord._fields.index("ovid"))
_STATUSES = {int(status): status for status in DoneStatus}


def read_status(rank: int, where: str) -> DoneStatus:
    """Return the status of a rank; one that is not in the lattice is damage."""
    status = _STATUSES.get(rank)
    if status is None:
        raise Damaged(
            where,
            f"a row of the ledger has the status {rank}, which does not exist",
            safe="find the writer of the row; unknown values are never read as a default",
        )
    return status


class SqlLedger(ABC):
    """The code that both dialects share: all but the sending of rows."""

    def __init__(self, database: Database, *, is_fenced: bool = True) -> None:
        """Only a copy of rows that were accepted elsewhere is not fenced."""
        self._database = database
        self._is_fenced = is_fenced
        self._sql = statements(database.dialect, "ledger")

    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        """Return a row for each key, in their order; None where there is none."""
        if len(ovids) > BATCH_ROWS_MAX:
            raise BatchTooLarge(len(ovids))
        if not ovids:
            return []
        wanted = {"tenant": tenant, "policy": policy, "keys": self._database.array(list(set(ovids)))}
        rows = self._database.read(lambda connection: connection.execute(self._sql["get"], wanted).fetchall())
        if not rows:
            return [None] * len(ovids)
        records = _records(tenant, policy, rows, self._database.describe())
        found = {row[2]: row for row in records}
        return list(map(found.get, ovids))

    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        """Return the keys that are done under the policy, sorted."""
        wanted = {"tenant": tenant, "policy": policy}
        rows = self._database.read(lambda connection: connection.execute(self._sql["done"], wanted).fetchall())
        return [row[0] for row in rows]

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        """Merge rows into those that are there, all or none, and return once they are durable."""
        check_valid(records)
        check_items(records, after)
        if isinstance(records, PageRows) and self._sent_at_once(records, after):
            return receipt(records.others, after, clean=len(records.clean.ovids))
        # Sorted, so that two writers of the same rows wait for one another instead of deadlocking.
        is_distinct = len(records) == after.scope.units.count
        rows = sorted(records if is_distinct else fold(records), key=_ovid)

        def write(connection: AnyConnection) -> None:
            if self._is_fenced:
                check_fence(connection, self._database.dialect, after.scope.context)
            if self._send(connection, rows, after.scope.context) != len(rows):
                raise KeyMismatch("ledger rows", "keys")

        self._database.write(write)
        return receipt(rows, after)

    def _sent_at_once(self, rows: PageRows, after: FindingsReceipt) -> bool:  # noqa: ARG002 - others may
        """Write rows that are distinct and all new, and return True; else write nothing."""
        return False

    @abstractmethod
    def _send(self, connection: AnyConnection, rows: Sequence[LedgerRecord], context: WriteContext) -> int:
        """Merge distinct rows and return how many of them were inserted or merged."""


class SqliteLedger(SqlLedger):
    """The done-ledger in SQLite."""

    def get_columns(
        self, tenant: TenantId, policy: PolicyHash, ovids: "pa.Array", names: Sequence[str]
    ) -> "list[pa.Array]":
        """Return some columns of the rows of keys, in their order; null where a key is null or has no row."""
        asked = ovids.drop_null().to_pylist()
        rows = list[tuple[Any, ...]]()
        for at in range(0, len(asked), BATCH_ROWS_MAX):
            rows += self._found(tenant, policy, asked[at : at + BATCH_ROWS_MAX])
        found = dict(zip(LEDGER_COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
        for rank in set(found.get("status", ())) - {None}:
            read_status(rank, self._database.describe())
        columns = [pa.array(found.get(name, ()), _arrow_type(name)) for name in names]
        if not ovids.null_count:
            return columns
        places = iter(range(len(asked)))
        order = pa.array([next(places) if is_asked else None for is_asked in ovids.is_valid().to_pylist()], pa.int64())
        return [column.take(order) for column in columns]

    def _found(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[tuple[Any, ...]]:
        """Return `LEDGER_COLUMNS` of the row of each key; None in each where there is none."""

        def look(connection: AnyConnection) -> list[tuple[Any, ...]]:
            scope = connection.execute(self._sql["scope"], {"tenant": tenant, "policy": policy}).fetchone()
            if scope is None:
                return [(None,) * len(LEDGER_COLUMNS)] * len(ovids)
            wanted = {"scope": scope[0], "keys": self._database.array(ovids)}
            rows: list[tuple[Any, ...]] = connection.execute(self._sql["get_columns"], wanted).fetchall()
            return rows

        return self._database.read(look)

    def _send(self, connection: AnyConnection, rows: Sequence[LedgerRecord], context: WriteContext) -> int:
        rest = self._scope(connection, context), self._database.clock.now_ns()
        return insert_or_merge(connection, self._sql["insert"], self._sql["upsert"], rows, rest)

    def _scope(self, connection: AnyConnection, context: WriteContext) -> int:
        connection.execute(self._sql["add_scope"], context._asdict())
        (scope,) = connection.execute(self._sql["scope"], context._asdict()).fetchone()
        return int(scope)

    def _sent_at_once(self, rows: PageRows, after: FindingsReceipt) -> bool:
        context = after.scope.context
        if not rows.clean.ovids or len(rows) != after.scope.units.count:
            return False
        # Sorted by their keys, which makes neighbours in the index neighbours in time.
        packed = sorted(map(_packed, zip(*rows.clean, strict=True)))
        others = sorted(rows.others, key=_ovid)

        def write(connection: AnyConnection) -> None:
            if self._is_fenced:
                check_fence(connection, self._database.dialect, context)
            scope, now_ns = self._scope(connection, context), self._database.clock.now_ns()
            shared = {**context._asdict(), "scope": scope, "now_ns": now_ns, "rows": self._database.array(packed)}
            before = connection.total_changes()
            connection.execute(self._sql["insert_clean"], shared)
            send(connection, self._sql["insert"], others, (scope, now_ns))
            if connection.total_changes() - before != len(rows):
                raise _KnownRows

        try:
            self._database.write(write)
        except _KnownRows:
            return False
        return True


class PostgresLedger(SqlLedger):
    """The done-ledger in PostgreSQL."""

    def _send(self, connection: AnyConnection, rows: Sequence[LedgerRecord], context: WriteContext) -> int:
        now_ns = self._database.clock.now_ns()
        keys = context._asdict() | {"ovid": arrays.digests(list(map(_ovid, rows)))}
        (known,) = connection.execute(self._sql["count"], keys).fetchone()
        if not known and self._copied(connection, copy_data(rows, context, now_ns)):
            return len(rows)
        columns = dict(zip(LedgerRecord._fields, zip(*rows, strict=True), strict=True))
        arguments = keys | {name: encode(columns[name]) for name, encode in _ENCODERS.items()} | {"now_ns": now_ns}
        return int(connection.execute(self._sql["upsert"], arguments).rowcount)

    def _copied(self, connection: AnyConnection, data: bytes) -> bool:
        """Write rows that are all new, which most batches are; False if another writer wrote one of them meanwhile."""
        try:
            with connection.transaction(), connection.cursor().copy(self._sql["copy"]) as copy:
                copy.write(data)
        except postgres_errors.UniqueViolation:
            return False
        return True


_ENCODERS: dict[str, Any] = {
    "weak": arrays.bools,
    "status": arrays.int2s,
    "bytes_seen": arrays.int8s,
    "findings_count": arrays.int4s,
    "members_skipped": arrays.int8s,
    "decodes_skipped": arrays.int8s,
    "findings_dropped": arrays.int8s,
    "started_at": arrays.int8s,
    "finished_at": arrays.int8s,
    "error_code": arrays.optional_texts,
}


def _arrow_type(name: str) -> "pa.DataType":
    """Return the type of a column, as the ledgers that keep columns have it."""
    return {"status": pa.int8(), "error_code": pa.string(), "findings_count": pa.int32()}.get(name, pa.int64())


class _KnownRows(Exception):
    """Some rows of a page are there already."""


_packed = b"%b%020d%d".__mod__
"""A row as one value of an array: its key, the number of the item, and its bytes."""


def _records(tenant: TenantId, policy: PolicyHash, rows: list[tuple[Any, ...]], where: str) -> Iterator[LedgerRecord]:
    """Return rows without the columns that all share as records."""
    ovids, weak, ranks, *rest = zip(*rows, strict=True)
    known = {rank: read_status(rank, where) for rank in set(ranks)}
    statuses = map(known.__getitem__, ranks)
    return map(LedgerRecord, repeat(tenant), repeat(policy), ovids, map(bool, weak), statuses, *rest)
