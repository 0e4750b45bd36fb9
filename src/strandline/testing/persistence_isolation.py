"""The contract of `PipelineReads`, continued: tenants that use the same ids, and answers equal to those of the twin."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from strandline.pipeline.identity import PolicyHash, SecretHash
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.memory import MemoryFindings, MemoryLedger, MemoryTables
from strandline.pipeline.memory_reads import MemoryReads
from strandline.pipeline.reads import PolicyCounts, PolicyDiff
from strandline.pipeline.state import MemoryState
from strandline.pipeline.triage import TriageState
from strandline.testing.contract import expect, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    OTHER_POLICY,
    OTHER_TENANT,
    POLICY,
    TENANT,
    WRITER,
    CheckedPersistence,
    Location,
    PersistenceCheck,
    as_tenant,
    batch_of,
    decision,
    digest,
    done,
    found,
    known_objects,
    record,
    same_rows,
    write,
)


def tenants_with_the_same_ids_see_their_own(stores: CheckedPersistence) -> None:
    """One has seen another thing than the other, though finding, occurrence and object are called the same."""
    mine = found(location=Location(1, "mine"))
    theirs = as_tenant(found(seen_at=2, location=Location(2, "theirs")), OTHER_TENANT)
    write(stores, mine)
    record(stores, done("a"))
    stores.triage.record_triage([decision(mine, TriageState.OPEN, 1, "me")])
    stores.clock.advance(1)
    write(stores, theirs, as_tenant(found(offset=30), OTHER_TENANT))
    record(stores, done("a", DoneStatus.SCANNED_PARTIAL, ELSEWHERE), done("b", DoneStatus.SKIPPED, ELSEWHERE))
    finding, secret, now_ns = mine.finding.finding_id, mine.finding.secret, stores.clock.now_ns()
    for row, who, sights, status in (
        (mine, "me", 1, DoneStatus.SCANNED_CLEAN),
        (theirs, None, 2, DoneStatus.SCANNED_PARTIAL),
    ):
        tenant = row.finding.tenant
        (pending,) = stores.reads.needing_triage(tenant)
        same("the location", pending.location_display, row.observation.location_display)
        same("who decided", pending.decision and pending.decision.who, who)
        same("the occurrences", pending.occurrences, sights)
        same("the counts", stores.reads.counts_by_policy(tenant), [PolicyCounts(POLICY, 1, sights, sights)])
        same_rows("the findings of the secret", stores.reads.findings_of_secret(tenant, secret), [row.finding])
        history = stores.reads.history(tenant, finding)
        seen = [one.observation for one in history.seen] if history else []
        same("the sights", len(seen), sights)
        same("the tenants of the sights", {one.tenant for one in seen}, {tenant})
        same("the decisions", len(history.decisions) if history else 0, int(who is not None))
        known = stores.reads.known_at(tenant, POLICY, now_ns)
        same("what is known of the object", known_objects(known.objects).get(status), 1)
        same("the findings known", known.findings, [finding])
        same("the objects", sum(stores.reads.coverage(tenant, POLICY).objects.values()), sights)
    before = stores.reads.known_at(OTHER_TENANT, POLICY, now_ns - 1)
    same("what they knew before", (known_objects(before.objects), before.findings), ({}, []))


def orders_are_total(stores: CheckedPersistence) -> None:
    """What was committed in the same moment comes in the order of its ids, however much it is."""
    policies = [PolicyHash(digest(f"policy {number}")) for number in range(8)]
    writers = [WRITER._replace(policy=policy) for policy in policies]
    for writer in writers:
        write(stores, *(found(item=f"item {number}", writer=writer) for number in range(40)))
    spots = [found(item="item 0", offset=100 + at, location=Location(1, f"spot {at}")) for at in range(20)]
    write(stores, *spots)
    keys = [found(item=f"item {number}").observation.ovid for number in range(40)]
    for writer in (WRITER, writers[0]):
        record(stores, *(done("", DoneStatus.SCANNED_PARTIAL, writer)._replace(ovid=key) for key in keys))
    findings = sorted(found(item=f"item {number}").finding for number in range(40))
    ids = [row.finding_id for row in findings]
    counts = [row.policy for row in stores.reads.counts_by_policy(TENANT)]
    expect(counts == sorted([*policies, POLICY]), "counts should come by policy")
    pending = stores.reads.needing_triage(TENANT)
    expect([row.finding.finding_id for row in pending] == ids, "what waits should come by id")
    last = max(spots, key=lambda row: row.observation.observation_id)
    located = [row.location_display for row in pending if row.finding.finding_id == last.finding.finding_id]
    same("the location among many", located, [last.observation.location_display])
    everywhere = stores.reads.findings_of_secret(TENANT, findings[0].secret)
    expect(everywhere == findings, "the findings of a secret should come by id")
    known = stores.reads.known_at(TENANT, policies[0], stores.clock.now_ns())
    expect(known.findings == ids, "the findings known should come by id")
    difference = stores.reads.policy_diff(TENANT, policies[0], OTHER_POLICY)
    same("the difference to a policy that scanned nothing", difference, PolicyDiff(0, [], [], 0))
    record(stores, *(done("", writer=WRITER._replace(policy=OTHER_POLICY))._replace(ovid=key) for key in keys))
    difference = stores.reads.policy_diff(TENANT, policies[0], OTHER_POLICY)
    expect(difference == PolicyDiff(40, ids, [], 0), "what one policy alone found should come by id")
    difference = stores.reads.policy_diff(TENANT, OTHER_POLICY, policies[0])
    expect(difference == PolicyDiff(40, [], ids, 0), "what the other alone found should come by id")
    history = stores.reads.history(TENANT, last.finding.finding_id)
    seen = [row.observation.observation_id for row in history.seen] if history else []
    expect(len(seen) == len(spots) + len(writers) and seen == sorted(seen), "sights should come by id")


def answers_are_those_of_the_twin_in_memory(stores: CheckedPersistence) -> None:
    """Over drawn pages of two policies and two tenants with the same ids, every question has the same answer."""
    tables = MemoryTables(stores.clock)
    findings = MemoryFindings(tables)
    parts = MemoryLedger(tables), findings, findings, findings, MemoryReads(tables)
    twin = CheckedPersistence(*parts, MemoryState(), stores.clock)
    start_ns, source = stores.clock.now_ns(), random.Random(7)  # noqa: S311 - the same pages every time
    for _ in range(25):
        change = _drawn_change(source)
        change(stores)
        change(twin)
        stores.clock.advance(source.randrange(2))
    questions = zip(_answers(stores, start_ns), _answers(twin, start_ns), strict=True)
    for (question, seen), (_, wanted) in questions:
        expect(seen == wanted, f"{question} is not answered as the rows have it")


def _drawn_change(source: random.Random) -> Callable[[CheckedPersistence], None]:
    """Return one page or a few decisions, to be written to any stores."""
    tenant, policy = source.choice((TENANT, OTHER_TENANT)), source.choice((POLICY, OTHER_POLICY))
    writer = WRITER._replace(tenant=tenant, policy=policy, fence=source.randrange(3))
    names = source.sample("abcdefgh", 4)
    rows = [
        found(
            name,
            item=source.choice("xy"),
            version=source.choice("12"),
            writer=writer._replace(tenant=TENANT),
            seen_at=source.randrange(3),
            location=Location(1, source.choice("pq")) if source.random() < 1 / 2 else (None, None, None),
        )
        for name in names
    ]
    rows = [as_tenant(row, tenant) for row in rows]
    keys = {row.observation.ovid for row in rows}
    done_rows = [done("", source.choice(list(DoneStatus)), writer)._replace(ovid=key) for key in sorted(keys)]
    state, when_ns = source.choice(list(TriageState)), source.randrange(4)
    decides = source.random() < 1 / 2
    alone = source.random() < 1 / 4

    def change(stores: CheckedPersistence) -> None:
        batch = batch_of(*rows)
        receipt = stores.findings.upsert_batch(batch)
        if not alone:
            stores.ledger.batch_upsert(done_rows, after=receipt)
        if decides:
            stores.triage.record_triage([decision(rows[0], state, when_ns)])

    return change


def _answers(stores: CheckedPersistence, start_ns: int) -> Iterator[tuple[str, Any]]:
    reads = stores.reads
    for tenant in (TENANT, OTHER_TENANT):
        yield "counts_by_policy", reads.counts_by_policy(tenant)
        pending = reads.needing_triage(tenant, 1000)
        yield "needing_triage", pending
        for secret in "abcdefgh":
            findings = reads.findings_of_secret(tenant, SecretHash(digest(f"hash {secret}")))
            yield "findings_of_secret", findings
            for finding in findings:
                yield "history", reads.history(tenant, finding.finding_id)
        yield "policy_diff", reads.policy_diff(tenant, POLICY, OTHER_POLICY)
        for policy in (POLICY, OTHER_POLICY):
            objects, *sums = reads.coverage(tenant, policy)
            yield "coverage", (known_objects(objects), sums)
            yield "observed", reads.observed(tenant, policy)
            for second in range(-1, 26):
                known = reads.known_at(tenant, policy, start_ns + second * 10**9)
                yield "known_at", (known_objects(known.objects), known.findings)


TWIN_CHECKS: tuple[PersistenceCheck, ...] = (
    tenants_with_the_same_ids_see_their_own,
    orders_are_total,
    answers_are_those_of_the_twin_in_memory,
)
