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
from strandline.pipeline.commit import check_items
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, KeyMismatch
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import DoneStatus, LedgerRecord, fold, receipt, validate_all
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql import arrays
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.fences import check_fence
from strandline.pipeline.sql.ledger_copy import copy_data
from strandline.pipeline.sql.sqlite_rows import insert_or_merge
from strandline.pipeline.sql.statements import statements

if TYPE_CHECKING:
    from psycopg import errors as postgres_errors
else:
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
        validate_all(records)
        check_items(records, after)
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

    @abstractmethod
    def _send(self, connection: AnyConnection, rows: Sequence[LedgerRecord], context: WriteContext) -> int:
        """Merge distinct rows and return how many of them were inserted or merged."""


class SqliteLedger(SqlLedger):
    """The done-ledger in SQLite."""

    def _send(self, connection: AnyConnection, rows: Sequence[LedgerRecord], context: WriteContext) -> int:
        connection.execute(self._sql["add_scope"], context._asdict())
        (scope,) = connection.execute(self._sql["scope"], context._asdict()).fetchone()
        rest = scope, self._database.clock.now_ns()
        return insert_or_merge(connection, self._sql["insert"], self._sql["upsert"], rows, rest)


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


def _records(tenant: TenantId, policy: PolicyHash, rows: list[tuple[Any, ...]], where: str) -> Iterator[LedgerRecord]:
    """Return rows without the columns that all share as records."""
    ovids, weak, ranks, *rest = zip(*rows, strict=True)
    known = {rank: read_status(rank, where) for rank in set(ranks)}
    statuses = map(known.__getitem__, ranks)
    return map(LedgerRecord, repeat(tenant), repeat(policy), ovids, map(bool, weak), statuses, *rest)
