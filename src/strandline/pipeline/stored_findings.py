"""All observations of a tenant with their findings, as columns: for readers of all of them at once.

A hundred thousand rows as objects take seconds and hundreds of megabytes. The tables are read one after the other, by
the thousand rows, and joined here: SQLite would look each row of a join up in two other tables.

Invariants: an answer is one snapshot of the database (of a lake, page by page); a row is an observation, in no order;
nothing is written.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import DIGEST_BYTES, FindingId, OvidHash, PolicyHash, TenantId
from strandline.pipeline.reads import Observed, PipelineReads
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.stores import Stores
from strandline.pipeline.triage import TriageEvent, TriageState, order

_ROWS = 10_000
_UNUSUAL_MAX = 2_000
"""More locations that do not sort as their URLs do take longer than everything as columns."""
_HASH = pa.binary(DIGEST_BYTES)
OBSERVATIONS = pa.schema(
    [
        *((name, _HASH) for name in ("policy", "finding", "item", "rule", "secret", "ovid")),
        *((name, pa.int64()) for name in ("first_ns", "byte_offset", "byte_length")),
        ("url", pa.string()),
    ]
)
"""An observation: its finding, the first commit of that, and the URL of its location, null where it has none."""

_FINDINGS = pa.schema(
    [*((name, _HASH) for name in ("finding", "item", "rule", "secret")), ("first_ns", pa.int64())],
)
_OCCURRENCES = pa.schema(
    [("occurrence", _HASH), ("finding", _HASH), ("byte_offset", pa.int64()), ("byte_length", pa.int64())]
)
_SEEN = pa.schema([("occurrence", _HASH), ("policy", _HASH), ("ovid", _HASH), ("url", pa.string())])


class StoredFindings(NamedTuple):
    """The observations of a tenant, and the latest decision about each finding that has one."""

    observations: pa.Table
    decisions: Mapping[FindingId, TriageEvent]


def read_stored_findings(stores: Stores, tenant: TenantId) -> StoredFindings:
    """Return everything that was found for a tenant, as of now."""
    database = stores.database
    if database.dialect == "objects":
        return _of_pages(stores.reads, tenant)
    sql = {name: statements(database.dialect, part)[name] for part, name in _STATEMENTS}

    def look(connection: AnyConnection) -> StoredFindings:
        def rows(name: str) -> Iterable[tuple[Any, ...]]:
            found: Iterable[tuple[Any, ...]] = connection.execute(sql[name], {"tenant": tenant})
            return found

        tables = _fetched(rows("all_findings"), _FINDINGS), _fetched(rows("all_occurrences"), _OCCURRENCES)
        observations = _joined(*tables, _fetched(rows("all_observations"), _SEEN))
        events = [
            TriageEvent._make((tenant, finding, TriageState(state), *rest))
            for finding, state, *rest in rows("all_events")
        ]
        return StoredFindings(observations, {event.finding_id: event for event in sorted(events, key=order)})

    return database.read(look)


class FirstSeen(NamedTuple):
    """Findings that are first in the order of paths: each object version in which they were seen, by policy.

    Every observation at a path before `frontier` is of one of them; None where there are no others at all.
    """

    seen: Sequence[tuple[FindingId, PolicyHash, OvidHash]]
    frontier: str | None


def read_first_seen(stores: Stores, tenant: TenantId, rows: int, also: Sequence[FindingId] = ()) -> FirstSeen | None:
    """Return the findings of the first rows by path, and some others; None for a lake, and where paths are unusual.

    The database sorts, and sends few rows: this takes a tenth of the time of `read_stored_findings`.
    """
    database = stores.database
    if database.dialect == "objects":
        return None
    sql = statements(database.dialect, "reads")

    def look(connection: AnyConnection) -> FirstSeen | None:
        def fetch(name: str, **wanted: object) -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = connection.execute(sql[name], {"tenant": tenant, **wanted}).fetchall()
            return found

        def findings(name: str, ids: Collection[bytes]) -> list[tuple[Any, ...]]:
            ordered, found = sorted(ids), list[tuple[Any, ...]]()
            for at in range(0, len(ordered), BATCH_ROWS_MAX):
                found += fetch(name, ids=database.array(ordered[at : at + BATCH_ROWS_MAX]))
            return found

        first = fetch("first_by_path", limit=rows + _UNUSUAL_MAX + 1)
        unusual = sum(path == "" for _, path in first)
        if unusual > _UNUSUAL_MAX:
            return None
        frontier = first[unusual + rows][1] if len(first) > unusual + rows else None
        known = findings("findings_of_occurrences", {occurrence for occurrence, _ in first[: unusual + rows]})
        return FirstSeen(findings("seen_of", {row[0] for row in known} | set(also)), frontier)

    return database.read(look)


_STATEMENTS = (
    ("reads", "all_findings"),
    ("reads", "all_occurrences"),
    ("reads", "all_observations"),
    ("triage", "all_events"),
)


def _fetched(cursor: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return the rows of a cursor as columns, by the thousand: never all of them as objects."""
    batches, rows = [], iter(cursor)
    while part := list(islice(rows, _ROWS)):
        arrays = [pa.array(column, kind) for column, kind in zip(zip(*part, strict=True), schema.types, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _joined(findings: pa.Table, occurrences: pa.Table, seen: pa.Table) -> pa.Table:
    """Return observations with their occurrences and findings, each of which has one row for its id."""
    at = occurrences.take(pc.index_in(seen["occurrence"], value_set=occurrences["occurrence"].combine_chunks()))
    of = findings.take(pc.index_in(at["finding"], value_set=findings["finding"].combine_chunks()))
    columns = {name: table[name] for table in (seen, at, of) for name in table.column_names}
    return pa.table([columns[name] for name in OBSERVATIONS.names], schema=OBSERVATIONS).combine_chunks()


def _of_pages(reads: PipelineReads, tenant: TenantId) -> StoredFindings:
    tables, decisions = [OBSERVATIONS.empty_table()], {}
    for counts in reads.counts_by_policy(tenant):
        after = None
        while page := reads.observed(tenant, counts.policy, after=after):
            after = page[-1].observation.observation_id
            tables.append(_fetched(map(_row, page), OBSERVATIONS))
            decisions.update({one.finding.finding_id: one.decision for one in page if one.decision is not None})
    return StoredFindings(pa.concat_tables(tables).combine_chunks(), decisions)


def _row(one: Observed) -> tuple[Any, ...]:
    finding, at, seen = one.finding, one.occurrence, one.observation
    ids = seen.policy, finding.finding_id, finding.item, finding.rule, bytes(finding.secret), seen.ovid
    return (*ids, one.first_ns, at.byte_offset, at.byte_length, seen.location_url)
