"""Verification of a database: every row is read, and every id derived again.

Invariants: nothing is changed; everything is read as of one moment, in one transaction, whatever writers do meanwhile;
rows are streamed, so that memory does not grow with the database; a problem is told with a count and never with an id
that touches a secret.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from strandline.errors import StrandlineError
from strandline.pipeline import ledger
from strandline.pipeline.coordination.codec import parse_run, parse_shard
from strandline.pipeline.identity import (
    FindingId,
    ObjectVersionId,
    OccurrenceId,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
    finding_id,
    observation_id,
    occurrence_id,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.policy import hash_of
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.migrations import Dialect
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.stores import AnyDatabase
from strandline.pipeline.triage import TriageEvent, event_id

PAGE_ROWS = 10_000
Row = tuple[Any, ...]


class Problem(NamedTuple):
    """A problem and the number of rows that have it."""

    table: str
    problem: str
    rows: int


class Verified(NamedTuple):
    """The number of rows read, and their problems."""

    rows: Mapping[str, int]
    problems: list[Problem]


def verify(database: AnyDatabase, tell: Callable[[int], None]) -> Verified:
    """Read and check every row; `tell` gets the number of rows of each page."""
    if database.dialect == "objects":
        from strandline.pipeline.lake.verify import verify_lake  # noqa: PLC0415 - only lakes need it

        return verify_lake(database, tell, CHECKS)
    sql = statements(database.dialect, "verify")

    def look(connection: AnyConnection) -> Verified:
        rows: dict[str, int] = {}
        problems = [Problem("storage", said, 1) for (said,) in connection.execute(sql["storage"]) if said != "ok"]
        for table, check in CHECKS.items():
            rows[table] = 0

            def counted(table: str = table) -> Iterator[Row]:
                for page in stream_pages(connection, database.dialect, sql[table]):
                    rows[table] += len(page)
                    tell(len(page))
                    yield from page

            wrong = Counter(check(counted()))
            problems += [Problem(table, problem, count) for problem, count in wrong.items()]
        for name, (table, problem) in _BETWEEN.items():
            (count,) = connection.execute(sql[name]).fetchone()
            problems += [Problem(table, problem, count)] if count else []
        return Verified(rows, problems)

    return database.read(look)


def stream_pages(connection: AnyConnection, dialect: Dialect, sql: str) -> Iterator[list[Row]]:
    """Yield the rows of a query as they come."""
    cursor = connection.cursor() if dialect == "sqlite" else connection.cursor("verify")
    if dialect == "postgres":
        cursor.itersize = PAGE_ROWS
    with closing(cursor):
        cursor.execute(sql)
        rows = iter(cursor)
        while page := list(islice(rows, PAGE_ROWS)):
            yield page


def _ledger(rows: Iterable[Row]) -> Iterator[str]:
    known = {int(status) for status in DoneStatus}
    for row in rows:
        if row[4] not in known:
            yield f"a status that does not exist ({row[4]})"
            continue
        try:
            ledger.validate(LedgerRecord(*row))
        except StrandlineError as error:
            yield str(error)


def _findings(rows: Iterable[Row]) -> Iterator[str]:
    for tenant, named, item, rule, secret in rows:
        parts = TenantId(tenant), StableItemId(item), RuleFingerprint(rule), SecretHash(secret)
        if finding_id(*parts) != named:
            yield "an id that is not that of its content"


def _occurrences(rows: Iterable[Row]) -> Iterator[str]:
    for _, named, finding, version, offset, length in rows:
        if occurrence_id(FindingId(finding), ObjectVersionId(version), offset, length) != named:
            yield "an id that is not that of its content"


def _observations(rows: Iterable[Row]) -> Iterator[str]:
    for tenant, named, occurrence, policy, seen_at, located_at in rows:
        if observation_id(TenantId(tenant), PolicyHash(policy), OccurrenceId(occurrence)) != named:
            yield "an id that is not that of its content"
        if seen_at < 0 or (located_at is not None and not 0 <= located_at <= seen_at):
            yield "a time that cannot be"


def _decisions(rows: Iterable[Row]) -> Iterator[str]:
    for named, *row in rows:
        if event_id(TriageEvent(*row)) != named:
            yield "an id that is not that of its content"


def _policies(rows: Iterable[Row]) -> Iterator[str]:
    for _, group in groupby(rows, key=itemgetter(0, 1)):
        together = list(group)
        _, policy, frame_digest, _ = together[0]
        if hash_of([rule for *_, rule in together if rule is not None], frame_digest) != policy:
            yield "a name that is not that of its rules"


def _runs(rows: Iterable[Row]) -> Iterator[str]:
    for tenant, run_id, status, data in rows:
        try:
            record = parse_run(data)
        except StrandlineError as error:
            yield str(error)
            continue
        if (record.tenant, record.run, record.status) != (tenant, run_id, status):
            yield "columns that differ from the record beside them"


def _shards(rows: Iterable[Row]) -> Iterator[str]:
    for *columns, data in rows:
        try:
            record = parse_shard(data)
        except StrandlineError as error:
            yield str(error)
            continue
        if [*record.key, record.status, record.fence, record.deadline] != columns:
            yield "columns that differ from the record beside them"


CHECKS: dict[str, Callable[[Iterable[Row]], Iterator[str]]] = {
    "ledger": _ledger,
    "findings": _findings,
    "occurrences": _occurrences,
    "observations": _observations,
    "triage_events": _decisions,
    "policies": _policies,
    "runs": _runs,
    "shards": _shards,
}
"""The checks of single rows, by table; every kind of store has the same."""
_BETWEEN = {
    "lost_findings": ("ledger", "says more findings than were observed"),
    "orphan_occurrences": ("occurrences", "name findings that do not exist"),
    "orphan_observations": ("observations", "name occurrences that do not exist"),
    "orphan_decisions": ("triage_events", "name findings that do not exist"),
    "orphan_shards": ("shards", "name runs that do not exist"),
}
