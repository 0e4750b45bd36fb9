"""Random pages, written to SQL and to the twin in memory, leave both with the same answers to every question."""

import os
import random
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from strandline.errors import StrandlineError
from strandline.pipeline.commit import Page
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.memory import MemoryFindings, MemoryLedger, MemoryTables
from strandline.pipeline.memory_reads import MemoryReads
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql import SqlReads
from strandline.pipeline.triage import TriageEvent, TriageState
from tests.effort import examples
from tests.pipeline.rows import digest, found, ovid, scope_of
from tests.pipeline.sql.stores import AnyDatabase, clock_of, findings_over, ledger_over

NUMBERS = range(4)
POLICIES = [PolicyHash(digest(number, 9)) for number in (1, 2)]


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_sql_and_memory_answer_the_same(database: AnyDatabase, seed: int, pages: int) -> None:
    choose = random.Random(seed)
    tenants = [TenantId(os.urandom(32)) for _ in range(2)]
    tables = MemoryTables(clock=clock_of(database))
    memory: tuple[Any, ...] = (MemoryLedger(tables), MemoryFindings(tables), MemoryReads(tables))
    sql: tuple[Any, ...] = (ledger_over(database), findings_over(database), SqlReads(database))
    times = [clock_of(database).now_ns()]
    for _ in range(pages):
        tenant = choose.choice(tenants)
        page, decisions = random_page(choose, tenant), random_decisions(choose, tenant)
        assert written(page, decisions, *sql[:2]) == written(page, decisions, *memory[:2])
        times.append(clock_of(database).now_ns())
        clock_of(database).advance(choose.choice([0.0, 1e-9, 5.0]))
    for tenant in tenants:
        assert answers(tenant, times, *sql) == answers(tenant, times, *memory)


def written(page: Page, decisions: list[TriageEvent], ledger: Any, sink: Any) -> list[object]:  # noqa: ANN401
    """Return what a store said to a page: receipts, or the kinds of errors."""
    said: list[object] = []
    try:
        receipt = sink.upsert_batch(page.findings)
        said += [receipt, ledger.batch_upsert(page.items, after=receipt)]
        sink.record_triage(decisions)
    except StrandlineError as error:
        said.append(type(error))
    return said


def answers(tenant: TenantId, times: list[int], ledger: Any, sink: Any, reads: Any) -> list[object]:  # noqa: ANN401
    """Return all that can be asked about a tenant."""
    rows = [found(number, WriteContext(tenant, POLICIES[0], 0, 0, 0))[0] for number in NUMBERS]
    ids = [row.finding_id for row in rows]
    said: list[object] = [
        reads.counts_by_policy(tenant),
        reads.needing_triage(tenant),
        reads.needing_triage(tenant, 1),
        [reads.history(tenant, finding) for finding in ids],
        [reads.findings_of_secret(tenant, row.secret) for row in rows],
        sink.triage_of(tenant, [*ids, ids[0]]),
        [reads.policy_diff(tenant, old, new) for old in POLICIES for new in POLICIES],
    ]
    for policy in POLICIES:
        said.append(ledger.batch_get(tenant, policy, [ovid(number) for number in (*NUMBERS, 0)]))
        said.append(ledger.list_done_hashes(tenant, policy))
        said.append(reads.coverage(tenant, policy))
        said += [reads.known_at(tenant, policy, at_ns + early) for at_ns in times for early in (-1, 0)]
    return said


def random_page(choose: random.Random, tenant: TenantId) -> Page:
    """Return a page over a small world: every part of it may have been there before, and a parent may be missing."""
    context = WriteContext(
        tenant, choose.choice(POLICIES), choose.choice([-5, 7]), choose.choice([-1, 2]), choose.randint(0, 2)
    )
    items = [random_item(choose, context) for _ in range(choose.randint(1, 4))]
    rows = [found(choose.choice(NUMBERS), context, choose.randint(0, 2)) for _ in range(choose.randint(0, 4))]
    findings, occurrences, observations = ([list(layer) for layer in zip(*rows, strict=True)]) if rows else ([], [], [])
    if choose.random() < 0.2:
        choose.choice([findings, occurrences]).clear()
    places: list[tuple[Any, ...]] = [(None, None, None), (1, "é", None), (1, "Z", "https://x/1"), (0, "a", "b")]
    seen = [type(row)(*row[:9], *choose.choice(places)) for row in observations]
    scope = scope_of([item.ovid for item in items], context)
    return Page(FindingsBatch(scope, findings, occurrences, seen), items)


def random_item(choose: random.Random, context: WriteContext) -> LedgerRecord:
    status, number, started = choose.choice(list(DoneStatus)), choose.choice(NUMBERS), choose.randint(0, 3)
    may_have_gaps = status != DoneStatus.SCANNED_CLEAN and (status.is_scanned or choose.random() < 0.3)
    return LedgerRecord(
        *context[:2],
        ovid(number),
        number == 0,
        status,
        choose.choice([0, 9, 2**63 - 1]),
        choose.randint(1, 3) if status == DoneStatus.SCANNED_WITH_FINDINGS else 0,
        *((choose.randint(1, 2), 2**63 - 1, choose.randint(0, 2)) if may_have_gaps else (0, 0, 0)),
        *context[2:],
        started,
        started + choose.randint(0, 2),
        None if status.is_scanned else choose.choice(["A", "B"]),
    )


def random_decisions(choose: random.Random, tenant: TenantId) -> list[TriageEvent]:
    context = WriteContext(tenant, POLICIES[0], 0, 0, 0)
    return [
        TriageEvent(
            tenant,
            found(choose.choice(NUMBERS), context)[0].finding_id,
            choose.choice(list(TriageState)),
            choose.randint(1, 3),
            choose.choice(["ann", "Zoë"]),
            choose.choice(["", "why not"]),
        )
        for _ in range(choose.randint(0, 2))
    ]
