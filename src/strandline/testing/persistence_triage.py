"""The contract of `Triage` and `Policies`: decisions, and the policies of results."""

from itertools import permutations
from typing import Any

from strandline.errors import InvalidInput
from strandline.pipeline import triage as triage_rules
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, ContentConflict, MissingParent
from strandline.pipeline.identity import FindingId, PolicyHash
from strandline.pipeline.policy import Policy
from strandline.pipeline.triage import WHO_BYTES_MAX, WHY_BYTES_MAX, TriageState
from strandline.testing.contract import refuses, same
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    I64_MAX,
    OTHER_TENANT,
    TENANT,
    CheckedPersistence,
    PersistenceCheck,
    decision,
    digest,
    found,
    same_row,
    same_rows,
    write,
)

OPEN, CONFIRMED, FALSE_POSITIVE, REVOKED = TriageState


def decisions_come_in_the_order_asked(stores: CheckedPersistence) -> None:
    """None without a decision, and twice where asked twice; one call may be about many findings."""
    rows = [found(name) for name in "abc"]
    write(stores, *rows)
    decided = [decision(rows[0], CONFIRMED), decision(rows[2], REVOKED, 5, "Zoë", "rotated: 鍵\n")]
    stores.triage.record_triage(decided)
    ids = [row.finding.finding_id for row in (rows[2], rows[1], rows[0], rows[2])]
    unknown = FindingId(digest("unknown"))
    wanted = [decided[1], None, decided[0], decided[1], None]
    same_rows("the decisions", stores.triage.triage_of(TENANT, [*ids, unknown]), wanted)
    same("the decisions about nothing", stores.triage.triage_of(TENANT, []), [])
    stores.triage.record_triage([])


def the_last_decision_holds_in_whatever_order_they_come(stores: CheckedPersistence) -> None:
    """By time, and at the same moment by state, person and reason; one by one, or together."""
    row = found()
    for number, decisions in enumerate(
        (
            [decision(row, CONFIRMED, 3), decision(row, REVOKED, 1), decision(row, OPEN, 2)],
            [decision(row, state, 7) for state in TriageState],
            [decision(row, REVOKED, 7, who) for who in ("Bob", "ann", "é")],
            [decision(row, REVOKED, 7, "ann", why) for why in ("", "B", "a", "é")],
        )
    ):
        last = triage_rules.current(decisions)
        for at, order in enumerate(permutations(decisions)):
            for together in (True, False):
                copy = found(f"{number} {at} {together}")
                about: dict[str, Any] = {"finding_id": copy.finding.finding_id}
                write(stores, copy)
                events = [event._replace(**about) for event in order]
                for some in [events] if together else [[event] for event in events]:
                    stores.triage.record_triage(some)
                (seen,) = stores.triage.triage_of(TENANT, [copy.finding.finding_id])
                same_row(f"what holds after order {at} of set {number}", seen, last and last._replace(**about))


def a_decision_is_kept_once_and_for_ever(stores: CheckedPersistence) -> None:
    """The same one again is the same; earlier ones stay in the history, oldest first."""
    row = found()
    write(stores, row)
    first, second, third = (decision(row, state, at) for at, state in enumerate((CONFIRMED, OPEN, REVOKED)))
    stores.triage.record_triage([third, first, first])
    stores.triage.record_triage([second])
    stores.triage.record_triage([first, third])
    history = stores.reads.history(TENANT, row.finding.finding_id)
    same_rows("the decisions", history.decisions if history else [], [first, second, third])


def a_decision_needs_its_finding(stores: CheckedPersistence) -> None:
    """Where it is unknown to the tenant, nothing of the batch is kept."""
    row, theirs = found(), found(writer=ELSEWHERE)
    write(stores, row)
    unknown = decision(found("unknown"), REVOKED)
    refuses("an unknown finding", MissingParent, stores.triage.record_triage, [decision(row, REVOKED), unknown])
    refuses("another tenant's", MissingParent, stores.triage.record_triage, [decision(theirs, REVOKED)])
    borrowed = decision(row, REVOKED)._replace(tenant=OTHER_TENANT)
    refuses("one borrowed from another tenant", MissingParent, stores.triage.record_triage, [borrowed])
    same("what was decided", stores.triage.triage_of(TENANT, [row.finding.finding_id]), [None])


def decisions_of_two_tenants_are_not_one_batch(stores: CheckedPersistence) -> None:
    """And one tenant's say nothing about another's finding of the same id."""
    mine, theirs = found(), found(writer=ELSEWHERE)
    write(stores, mine)
    write(stores, theirs)
    both = [decision(mine, REVOKED), decision(theirs, REVOKED)]
    refuses("decisions of two tenants", InvalidInput, stores.triage.record_triage, both)
    ids = [mine.finding.finding_id, theirs.finding.finding_id]
    same("what was decided", stores.triage.triage_of(TENANT, ids), [None, None])
    stores.triage.record_triage(both[:1])
    same_rows("what I decided", stores.triage.triage_of(TENANT, ids), [both[0], None])
    same_rows("what they decided", stores.triage.triage_of(OTHER_TENANT, ids), [None, None])


def what_decisions_say_has_limits(stores: CheckedPersistence) -> None:
    """A state that exists, a time, a name, and a reason that every store can hold; at most 10,000 at once."""
    row = found()
    write(stores, row)
    fine = decision(row, REVOKED)
    wrong: list[dict[str, Any]] = [
        {"state": -1},
        {"state": 4},
        {"when_ns": -1},
        {"when_ns": I64_MAX + 1},
        {"who": ""},
        {"who": "x" * (WHO_BYTES_MAX + 1)},
        {"who": "é" * (WHO_BYTES_MAX // 2) + "x"},
        {"who": "a\x00b"},
        {"who": "\ud800"},
        {"why": "x" * (WHY_BYTES_MAX + 1)},
        {"why": "a\x00b"},
        {"finding_id": b"short"},
    ]
    for change in wrong:
        (name,) = change
        refuses(f"another {name}", InvalidInput, stores.triage.record_triage, [fine, fine._replace(**change)])
    many = [decision(row, REVOKED, at) for at in range(BATCH_ROWS_MAX + 1)]
    refuses("10,001 decisions", BatchTooLarge, stores.triage.record_triage, many)
    same("what was decided", stores.triage.triage_of(TENANT, [row.finding.finding_id]), [None])
    stores.triage.record_triage(many[:-1])
    same_rows("what holds", stores.triage.triage_of(TENANT, [row.finding.finding_id]), [many[-2]])
    longest = decision(row, REVOKED, I64_MAX, "é" * (WHO_BYTES_MAX // 2), "x" * WHY_BYTES_MAX)
    stores.triage.record_triage([longest])
    same_rows("what holds in the end", stores.triage.triage_of(TENANT, [row.finding.finding_id]), [longest])


# Policies.


def a_policy_comes_back_as_it_was_registered(stores: CheckedPersistence) -> None:
    """With its rules by name, as often as it is registered; None where there is none."""
    rules: Any = {name: {"pattern": name} for name in ("b", "B", "a", "é", "aa", "a-b", "a_b", "\U0001f511")}
    policy, other = Policy(rules, {}, [], "1").record, Policy(rules, {}, [], "2").record
    same("what is there at first", stores.policies.get_policy(TENANT, policy.policy), None)
    for _ in range(2):
        stores.policies.register_policy(TENANT, policy)
        same("the policy", stores.policies.get_policy(TENANT, policy.policy), policy)
    same("another one", stores.policies.get_policy(TENANT, other.policy), None)
    stores.policies.register_policy(TENANT, other)
    same("the policy in the end", stores.policies.get_policy(TENANT, policy.policy), policy)
    same("the other one in the end", stores.policies.get_policy(TENANT, other.policy), other)


def a_policy_of_other_content_is_a_conflict(stores: CheckedPersistence) -> None:
    """Other rules, more, fewer, or another frame under a name that is taken; the first content stays."""
    policy = Policy({"a": 1, "b": 2}, {}, [], "1").record
    stores.policies.register_policy(TENANT, policy)
    (name, rule), last = policy.rules
    for what, change in (
        ("fewer rules", {"rules": (last,)}),
        ("more rules", {"rules": (*policy.rules, ("c", rule))}),
        ("another rule", {"rules": ((name, digest("x")), last)}),
        ("another name", {"rules": (("A", rule), last)}),
        ("another frame", {"frame_digest": digest("x")}),
    ):
        content: dict[str, Any] = change
        refuses(what, ContentConflict, stores.policies.register_policy, TENANT, policy._replace(**content))
        same("the policy", stores.policies.get_policy(TENANT, policy.policy), policy)


def policies_have_limits(stores: CheckedPersistence) -> None:
    """Ids of 32 bytes, and rules under names that every store can hold, each once and in their order."""
    rule = digest("rule")
    policy = Policy({"a": 1, "b": 2}, {}, [], "1").record
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("a short name", {"policy": b"short"}),
        ("a short frame", {"frame_digest": b"short"}),
        ("a short rule", {"rules": (("a", b"short"),)}),
        ("a rule without a name", {"rules": (("", rule),)}),
        ("a name with a zero", {"rules": (("a\x00b", rule),)}),
        ("a name that is no text", {"rules": (("\ud800", rule),)}),
        ("a name twice", {"rules": (("a", rule), ("a", digest("other")))}),
        ("names in another order", {"rules": policy.rules[::-1]}),
    ]
    for what, change in wrong:
        refuses(what, InvalidInput, stores.policies.register_policy, TENANT, policy._replace(**change))
    short: Any = b"short"
    refuses("a short tenant", InvalidInput, stores.policies.register_policy, short, policy)
    same("what was registered", stores.policies.get_policy(TENANT, policy.policy), None)


def a_policy_is_its_tenants_alone(stores: CheckedPersistence) -> None:
    """The same name may stand for other content elsewhere."""
    policy = Policy({"a": 1}, {}, [], "1").record
    other = policy._replace(rules=(("b", policy.rules[0][1]),))
    stores.policies.register_policy(TENANT, policy)
    same("what the other has", stores.policies.get_policy(OTHER_TENANT, policy.policy), None)
    stores.policies.register_policy(OTHER_TENANT, other)
    same("what I have", stores.policies.get_policy(TENANT, policy.policy), policy)
    same("what the other has then", stores.policies.get_policy(OTHER_TENANT, policy.policy), other)
    same("an unknown policy", stores.policies.get_policy(TENANT, PolicyHash(digest("x"))), None)


TRIAGE_CHECKS: tuple[PersistenceCheck, ...] = (
    decisions_come_in_the_order_asked,
    the_last_decision_holds_in_whatever_order_they_come,
    a_decision_is_kept_once_and_for_ever,
    a_decision_needs_its_finding,
    decisions_of_two_tenants_are_not_one_batch,
    what_decisions_say_has_limits,
    a_policy_comes_back_as_it_was_registered,
    a_policy_of_other_content_is_a_conflict,
    policies_have_limits,
    a_policy_is_its_tenants_alone,
)
