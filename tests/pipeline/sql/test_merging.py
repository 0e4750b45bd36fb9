"""What SQL makes of rows is what the pure functions make of them, in every order of arrival."""

import os
from functools import reduce
from itertools import permutations
from typing import Any

from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from strandline.pipeline import findings as findings_rules
from strandline.pipeline import ledger as ledger_rules
from strandline.pipeline.findings import FindingsBatch, ObservationRecord
from strandline.pipeline.identity import OvidHash, TenantId, observation_id
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql import SqlReads
from tests.effort import examples
from tests.pipeline.row_strategies import ledger_rows, observation_rows
from tests.pipeline.rows import POLICY, digest, done, found, occurrence_of, receipt_for, scope_of
from tests.pipeline.sql.stores import AnyDatabase, findings_over, ledger_over

# A tenant of its own separates one example from the next.
over_a_database = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def new_tenant() -> TenantId:
    return TenantId(os.urandom(32))


def groups(count: int) -> list[tuple[int, int, list[int]]]:
    """Return for each step and each row the orders in which the row comes at that step: all orders in few batches."""
    orders = list(enumerate(permutations(range(count))))
    return [
        (step, row, [number for number, order in orders if order[step] == row])
        for step in range(count)
        for row in range(count)
    ]


@st.composite
def near_ties(draw: st.DrawFn) -> list[LedgerRecord]:
    """Draw rows that differ in one column of those that decide, or in two."""
    row = draw(ledger_rows())
    small = st.integers(0, 1)
    columns: dict[str, st.SearchStrategy[Any]] = {"run_id": small, "shard_id": small, "fence": small}
    if not row.status.is_scanned:
        columns["error_code"] = st.sampled_from(["A", "a", "B"])
    names = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=2, unique=True))
    changes = st.fixed_dictionaries({name: columns[name] for name in names})
    return [row._replace(**change) for change in draw(st.lists(changes, min_size=2, max_size=3))]


FAILED = done(1)._replace(status=DoneStatus.FAILED_PERMANENT)


@over_a_database
@given(rows=st.lists(ledger_rows(), min_size=1, max_size=4) | near_ties())
@example(rows=[FAILED._replace(error_code=code) for code in ("a", "B", "_")])
def test_ledger_rows_merge_the_same_in_every_order(database: AnyDatabase, rows: list[LedgerRecord]) -> None:
    ledger, tenant = ledger_over(database), new_tenant()
    rows = [row._replace(tenant=tenant) for row in rows]
    for _, row, orders in groups(len(rows)):
        copies = [rows[row]._replace(ovid=OvidHash(digest(number))) for number in orders]
        ledger.batch_upsert(copies, after=receipt_for(copies))
    expected = reduce(ledger_rules.merge, rows)
    ovids = [OvidHash(digest(number)) for number, _ in enumerate(permutations(rows))]
    assert ledger.batch_get(tenant, POLICY, ovids) == [expected._replace(ovid=ovid) for ovid in ovids]


@over_a_database
@given(st.lists(ledger_rows(st.integers(0, 2)), min_size=1, max_size=8))
def test_rows_of_one_key_in_a_batch_are_folded(database: AnyDatabase, rows: list[LedgerRecord]) -> None:
    ledger, tenant = ledger_over(database), new_tenant()
    rows = [row._replace(tenant=tenant, run_id=1, shard_id=1, fence=1) for row in rows]
    receipt = ledger.batch_upsert(rows, after=receipt_for(rows))
    folded = ledger_rules.fold(rows)
    assert receipt == ledger_rules.receipt(folded, receipt_for(rows))
    assert ledger.batch_get(tenant, POLICY, [row.ovid for row in folded]) == folded


@st.composite
def near_tied_observations(draw: st.DrawFn) -> list[ObservationRecord]:
    """Draw observations that differ in one column of those that decide, or in two."""
    row = draw(observation_rows())
    small = st.integers(0, 1)
    columns: dict[str, st.SearchStrategy[Any]] = {"run_id": small, "shard_id": small, "fence": small}
    if row.location_display is not None:
        columns |= {"location_display": st.sampled_from("aZé"), "location_url": st.sampled_from([None, "a", "Z"])}
    names = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=2, unique=True))
    changes = st.fixed_dictionaries({name: columns[name] for name in names})
    return [row._replace(**change) for change in draw(st.lists(changes, min_size=2, max_size=3))]


@over_a_database
@given(st.lists(observation_rows(), min_size=1, max_size=3) | near_tied_observations())
def test_observations_merge_the_same_in_every_order(database: AnyDatabase, rows: list[ObservationRecord]) -> None:
    sink, tenant = findings_over(database), new_tenant()
    finding, *_ = found(1, WriteContext(tenant, POLICY, 1, 1, 1))
    orders = list(permutations(rows))
    places = [occurrence_of(finding.finding_id, number, tenant) for number, _ in enumerate(orders)]
    expected = []
    for occurrence in places:
        made = observation_id(tenant, POLICY, occurrence.occurrence_id)
        merged = reduce(findings_rules.merge, rows)
        expected.append(merged._replace(tenant=tenant, observation_id=made, occurrence_id=occurrence.occurrence_id))
    for _, row, numbers in groups(len(rows)):
        context = WriteContext(tenant, POLICY, *rows[row][5:8])
        copies = [rows[row]._replace(**expected[number]._asdict() | _told(rows[row])) for number in numbers]
        sink.upsert_batch(FindingsBatch(scope_of([rows[row].ovid], context), [finding], places, copies))
    history = SqlReads(database).history(tenant, finding.finding_id)
    assert history is not None
    assert {seen.observation for seen in history.seen} == set(expected)


def _told(row: ObservationRecord) -> dict[str, object]:
    """Return the columns that differ from one observation of an occurrence to another."""
    return dict(list(row._asdict().items())[5:])
