"""The contract of `PipelineReads`: deterministic queries about one tenant, at real times."""

from typing import Any

from strandline.errors import InvalidInput
from strandline.pipeline.identity import FindingId, SecretHash
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.reads import PolicyCounts, PolicyDiff, Seen
from strandline.pipeline.triage import TriageState
from strandline.testing.contract import expect, refuses, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    I64_MAX,
    OTHER_POLICY,
    OTHER_TENANT,
    POLICY,
    TENANT,
    WRITER,
    CheckedPersistence,
    Found,
    Location,
    PersistenceCheck,
    decision,
    digest,
    done,
    found,
    known_objects,
    record,
    same_row,
    same_rows,
    write,
)

OTHERWISE = WRITER._replace(policy=OTHER_POLICY)
RETRYABLE, PERMANENT, SKIPPED, PARTIAL, CLEAN, WITH_FINDINGS = DoneStatus


def nothing_is_known_of_a_tenant_without_results(stores: CheckedPersistence) -> None:
    """Empty lists, zeros and None, also while another tenant has everything."""
    row = found(location=Location(1, "theirs"))
    for time in ("before", "after"):
        reads, known = stores.reads, stores.reads.known_at(OTHER_TENANT, POLICY, stores.clock.now_ns())
        answers: dict[str, tuple[object, object]] = {
            "counts_by_policy": (reads.counts_by_policy(OTHER_TENANT), []),
            "needing_triage": (reads.needing_triage(OTHER_TENANT), []),
            "history": (reads.history(OTHER_TENANT, row.finding.finding_id), None),
            "findings_of_secret": (reads.findings_of_secret(OTHER_TENANT, row.finding.secret), []),
            "policy_diff": (reads.policy_diff(OTHER_TENANT, POLICY, OTHER_POLICY), PolicyDiff(0, [], [], 0)),
            "coverage's objects": (known_objects(reads.coverage(OTHER_TENANT, POLICY).objects), {}),
            "coverage": (tuple(reads.coverage(OTHER_TENANT, POLICY)[1:]), (0,) * 6),
            "known_at": ((known_objects(known.objects), known.findings), ({}, [])),
        }
        for question, (seen, wanted) in answers.items():
            expect(seen == wanted, f"{question} should be empty {time} another tenant wrote, but is not")
        write(stores, row, found("second"))
        record(stores, done("a", PARTIAL), done("b", WITH_FINDINGS)._replace(weak=True))
        stores.triage.record_triage([decision(row, TriageState.OPEN)])


def counts_are_of_distinct_rows_by_policy(stores: CheckedPersistence) -> None:
    """Ordered by policy; a second look under the same policy adds nothing."""
    rows = [found("a"), found("a", offset=30), found("a", version="v2"), found("b")]
    write(stores, *rows)
    write(stores, *rows[:2])
    write(stores, found("a", writer=OTHERWISE))
    write(stores, found("a", writer=ELSEWHERE), found("c", writer=ELSEWHERE))
    wanted = [PolicyCounts(POLICY, 2, 4, 4), PolicyCounts(OTHER_POLICY, 1, 1, 1)]
    same("the counts", stores.reads.counts_by_policy(TENANT), sorted(wanted))
    same("another tenant's", stores.reads.counts_by_policy(OTHER_TENANT), [PolicyCounts(POLICY, 2, 2, 2)])


def findings_wait_for_a_decision_last_committed_first(stores: CheckedPersistence) -> None:
    """Then by id; what was decided is gone until it is opened again, and a new sight brings a finding to the front."""
    rows = sorted((found(name, location=Location(1, name)) for name in "abcd"), key=_id)
    write(stores, rows[2], rows[1])
    stores.clock.advance(1)
    write(stores, rows[0], rows[3])
    same("the order", _waiting(stores), [_id(rows[at]) for at in (0, 3, 1, 2)])
    same("the first two", _waiting(stores, 2), [_id(rows[at]) for at in (0, 3)])
    stores.triage.record_triage([decision(rows[3], state, at) for at, state in enumerate(TriageState)])
    same("the order after a decision", _waiting(stores), [_id(rows[at]) for at in (0, 1, 2)])
    again = decision(rows[3], TriageState.OPEN, 9, "bob", "seen again")
    stores.triage.record_triage([again])
    same("the order after opening it again", _waiting(stores), [_id(rows[at]) for at in (0, 3, 1, 2)])
    same_row("the decision", stores.reads.needing_triage(TENANT)[1].decision, again)
    tied = [
        decision(rows[3], TriageState.OPEN, 10, who, why) for who, why in (("ann", "z"), ("bob", "b"), ("bob", "a"))
    ]
    stores.triage.record_triage(tied)
    same_row("the decision after a tie", stores.reads.needing_triage(TENANT)[1].decision, tied[1])
    stores.triage.record_triage([decision(rows[1], state, 9) for state in (TriageState.OPEN, TriageState.REVOKED)])
    same("the order after a tie", _waiting(stores), [_id(rows[at]) for at in (0, 3, 2)])
    stores.triage.record_triage([decision(rows[1], TriageState.OPEN, 10)])
    stores.clock.advance(1)
    write(stores, found_again := _elsewhere(rows[2]))
    same("the order after a new sight", _waiting(stores), [_id(rows[at]) for at in (2, 0, 3, 1)])
    first = stores.reads.needing_triage(TENANT, 1)[0]
    same_row("the first finding", first.finding, rows[2].finding)
    seen = first.occurrences, first.last_committed_ns, first.location_display, first.decision
    same("what is said of it", seen, (2, stores.clock.now_ns(), found_again.observation.location_display, None))


def a_limit_is_at_least_one(stores: CheckedPersistence) -> None:
    """And a hundred by default."""
    write(stores, *(found(str(number)) for number in range(101)))
    same("how many come without a limit", len(stores.reads.needing_triage(TENANT)), 100)
    for limit in (102, 2**70):
        same(f"how many come of {limit}", len(stores.reads.needing_triage(TENANT, limit)), 101)
    for limit in (0, -1, -(2**70)):
        refuses(f"a limit of {limit}", InvalidInput, stores.reads.needing_triage, TENANT, limit)


def a_history_is_whole_and_oldest_first(stores: CheckedPersistence) -> None:
    """Every sight under every policy, with the times of its first commit, and nothing of other findings."""
    start_ns = stores.clock.now_ns()
    late, early, under = found(version="v2"), found(version="v1"), found(version="v1", writer=OTHERWISE)
    write(stores, early, found("other"))
    stores.clock.advance(1)
    write(stores, late)
    stores.clock.advance(1)
    write(stores, under)
    write(stores, found(version="v1", writer=ELSEWHERE))
    decided = [decision(early, TriageState.CONFIRMED, 2), decision(early, TriageState.OPEN, 3)]
    stores.triage.record_triage([*decided, decision(found("other"), TriageState.REVOKED)])
    history = stores.reads.history(TENANT, early.finding.finding_id)
    expect(history is not None, "the finding should have a history")
    if history:
        same_row("the finding", history.finding, early.finding)
        same("its first commit", history.committed_ns, start_ns)
        wanted = [(early, 0, 0), (late, 1, 1), (under, 0, 2)]
        _same_sights(history.seen, [(row, *_after_s(start_ns, *times)) for row, *times in wanted])
        same_rows("the decisions", history.decisions, decided)


def coverage_adds_up(stores: CheckedPersistence) -> None:
    """Of the policy's merged rows: by status, with gaps, weak ones, and sums of any size."""
    gaps: dict[str, Any] = {"members_skipped": 1, "decodes_skipped": 2, "findings_dropped": 3}
    record(
        stores,
        done("a", CLEAN),
        done("b", PARTIAL)._replace(**gaps),
        done("c", WITH_FINDINGS)._replace(**gaps),
        done("d", WITH_FINDINGS)._replace(weak=True),
        done("e", SKIPPED)._replace(**gaps),
        done("f", RETRYABLE),
        done("g", PERMANENT),
    )
    record(stores, done("f", CLEAN)._replace(bytes_seen=300))
    record(stores, done("z", CLEAN, OTHERWISE))
    record(stores, done("y", CLEAN, ELSEWHERE))
    coverage = stores.reads.coverage(TENANT, POLICY)
    wanted = {CLEAN: 2, PARTIAL: 1, WITH_FINDINGS: 2, SKIPPED: 1, PERMANENT: 1}
    same("objects by status", known_objects(coverage.objects), wanted)
    same("incomplete ones, weak ones and sums", tuple(coverage[1:]), (2, 1, 900, 3, 6, 9))
    large: dict[str, Any] = dict.fromkeys(("bytes_seen", *gaps), I64_MAX)
    record(stores, *(done(name, PARTIAL)._replace(**large) for name in ("h", "i")))
    sums = tuple(stores.reads.coverage(TENANT, POLICY)[1:])
    same("sums of large numbers", sums, (4, 1, *(count + 2 * I64_MAX for count in (900, 3, 6, 9))))
    expect(all(type(number) is int for number in sums), "a sum should be an int, of whatever size")


def what_an_item_hides_is_not_clean(stores: CheckedPersistence) -> None:
    """A partial object counts as incomplete until a scan saw all of it, and at no time as clean."""
    record(stores, done("a", PARTIAL))
    partial_ns = stores.clock.now_ns()
    stores.clock.advance(1)
    for _ in range(2):
        coverage = stores.reads.coverage(TENANT, POLICY)
        same("objects by status", known_objects(coverage.objects), {PARTIAL: 1})
        same("incomplete ones", coverage.incomplete, 1)
        record(stores, done("a", SKIPPED))
    record(stores, done("a", CLEAN))
    objects, *sums = stores.reads.coverage(TENANT, POLICY)
    same("objects once all was seen", (known_objects(objects), sums), ({CLEAN: 1}, [0, 0, 100, 0, 0, 0]))
    before = stores.reads.known_at(TENANT, POLICY, partial_ns)
    same("what was known before", known_objects(before.objects), {PARTIAL: 1})


def a_secret_is_found_everywhere_it_is(stores: CheckedPersistence) -> None:
    """By id, with the hash hidden, and only where this tenant found it."""
    rows = [found("key", item=item) for item in "stuvwxyz"]
    write(stores, *rows, found("other"))
    write(stores, found("key", item="a", writer=ELSEWHERE))
    secret = rows[0].finding.secret
    findings = stores.reads.findings_of_secret(TENANT, secret)
    same_rows("the findings", findings, [row.finding for row in sorted(rows, key=_id)])
    for row in findings:
        shown = repr(row) + repr(row.secret)
        forms = bytes(secret).hex(), repr(bytes(secret))[2:-1]
        expect(not any(form in shown for form in forms), "the row shows the hash of its secret")
    unknown = SecretHash(digest("unknown"))
    same("the findings of an unknown one", stores.reads.findings_of_secret(TENANT, unknown), [])


def policies_differ_over_what_both_scanned(stores: CheckedPersistence) -> None:
    """Objects that one did not scan, or could not, say nothing about the other."""
    rows = {name: (found(name, item=name), found(name, item=name, writer=OTHERWISE)) for name in "abcdefghijkl"}
    write(stores, *(old for name, (old, _) in rows.items() if name not in "cdl"))
    write(stores, *(new for name, (_, new) in rows.items() if name not in "abl"))
    looks: list[tuple[str, DoneStatus, DoneStatus | None]] = [
        *((name, WITH_FINDINGS, CLEAN) for name in "ab"),
        *((name, PARTIAL, WITH_FINDINGS) for name in "cd"),
        *((name, WITH_FINDINGS, WITH_FINDINGS) for name in "efg"),
        ("h", WITH_FINDINGS, PERMANENT),
        ("i", WITH_FINDINGS, SKIPPED),
        ("j", SKIPPED, WITH_FINDINGS),
        ("k", WITH_FINDINGS, None),
        ("l", CLEAN, CLEAN),
    ]
    for name, old, new in looks:
        key: dict[str, Any] = {"ovid": rows[name][0].observation.ovid}
        record(stores, done(name, old)._replace(**key))
        if new is not None:
            record(stores, done(name, new, OTHERWISE)._replace(**key))
    only_old, only_new = (sorted(_id(rows[name][0]) for name in names) for names in ("ab", "cd"))
    difference = stores.reads.policy_diff(TENANT, POLICY, OTHER_POLICY)
    same("the difference", difference, PolicyDiff(8, only_old, only_new, 3))
    back = stores.reads.policy_diff(TENANT, OTHER_POLICY, POLICY)
    same("the difference backwards", back, PolicyDiff(8, only_new, only_old, 3))
    same("no difference", stores.reads.policy_diff(TENANT, POLICY, POLICY)[1:3], ([], []))
    same("another tenant's", stores.reads.policy_diff(OTHER_TENANT, POLICY, OTHER_POLICY), PolicyDiff(0, [], [], 0))


def what_was_known_is_known_to_the_nanosecond(stores: CheckedPersistence) -> None:
    """A commit at that very nanosecond counts, and one a nanosecond later does not."""
    rows = sorted((found(name) for name in "ab"), key=_id)
    steps: list[tuple[int, dict[DoneStatus, int], list[bytes]]] = [(stores.clock.now_ns(), {}, [])]
    stores.clock.advance(1)
    for row, status, objects in (
        (rows[1], RETRYABLE, {RETRYABLE: 1}),
        (rows[0], PARTIAL, {PARTIAL: 1}),
        (rows[1], WITH_FINDINGS, {WITH_FINDINGS: 1}),
        (rows[0], CLEAN, {WITH_FINDINGS: 1}),
    ):
        write(stores, row)
        record(stores, done("a", status))
        known = sorted({*steps[-1][2], _id(row)})
        steps.append((stores.clock.now_ns(), objects, known))
        stores.clock.advance(1)
    record(stores, done("b"), done("c", SKIPPED))
    steps.append((stores.clock.now_ns(), {WITH_FINDINGS: 1, CLEAN: 1, SKIPPED: 1}, steps[-1][2]))
    for (at_ns, objects, findings), before in zip(steps[1:], steps, strict=False):
        _same_known(stores, at_ns, objects, findings)
        _same_known(stores, at_ns - 1, *before[1:])
    _same_known(stores, 0, {}, [])
    _same_known(stores, I64_MAX, *steps[-1][1:])
    _same_known(stores, 2**70, *steps[-1][1:])
    _same_known(stores, -(2**70), {}, [])


def first_times_never_move(stores: CheckedPersistence) -> None:
    """A row that is written again later, by any worker, was known since the first time."""
    row = found(location=Location(1, "here"))
    first_ns = stores.clock.now_ns()
    for _ in range(3):
        write(stores, row)
        write(stores, found(seen_at=9, writer=WRITER._replace(run_id=8)))
        rows = [done(status.name, status)._replace(finished_at=stores.clock.now_ns()) for status in DoneStatus]
        record(stores, *rows)
        stores.clock.advance(1)
        record(stores, *(done(status.name, RETRYABLE) for status in DoneStatus))
    _same_known(stores, first_ns, dict.fromkeys(DoneStatus, 1), [_id(row)])
    _same_known(stores, first_ns - 1, {}, [])
    history = stores.reads.history(TENANT, row.finding.finding_id)
    expect(history is not None, "the finding should have a history")
    if history:
        seen = [(one.occurrence_ns, one.observation_ns) for one in history.seen]
        same("the first times", (history.committed_ns, seen), (first_ns, [(first_ns, first_ns)]))
    same("when it was last committed", stores.reads.needing_triage(TENANT)[0].last_committed_ns, first_ns)


def _id(row: Found) -> FindingId:
    return row.finding.finding_id


def _elsewhere(row: Found) -> Found:
    """Return a new sight of a finding, at another place of the item."""
    name = row.observation.location_display or ""
    return found(name, offset=30, location=Location(1, f"{name} again"))


def _waiting(stores: CheckedPersistence, limit: int = 100) -> list[bytes]:
    return [row.finding.finding_id for row in stores.reads.needing_triage(TENANT, limit)]


def _after_s(start_ns: int, *seconds: int) -> list[int]:
    return [start_ns + second * 10**9 for second in seconds]


def _same_sights(seen: list[Seen], wanted: list[Any]) -> None:
    same("how many sights there are", len(seen), len(wanted))
    for one, (row, occurrence_ns, observation_ns) in zip(seen, wanted, strict=True):
        same_row("an occurrence", one.occurrence, row.occurrence)
        same_row("an observation", one.observation, row.observation)
        same("their first commits", (one.occurrence_ns, one.observation_ns), (occurrence_ns, observation_ns))


def _same_known(stores: CheckedPersistence, at_ns: int, objects: dict[DoneStatus, int], findings: list[bytes]) -> None:
    known = stores.reads.known_at(TENANT, POLICY, at_ns)
    same(f"the objects known at {at_ns}", known_objects(known.objects), objects)
    expect(known.findings == findings, f"at {at_ns}, {len(findings)} findings should be known, sorted")


READ_CHECKS: tuple[PersistenceCheck, ...] = (
    nothing_is_known_of_a_tenant_without_results,
    counts_are_of_distinct_rows_by_policy,
    findings_wait_for_a_decision_last_committed_first,
    a_limit_is_at_least_one,
    a_history_is_whole_and_oldest_first,
    coverage_adds_up,
    what_an_item_hides_is_not_clean,
    a_secret_is_found_everywhere_it_is,
    policies_differ_over_what_both_scanned,
    what_was_known_is_known_to_the_nanosecond,
    first_times_never_move,
)
