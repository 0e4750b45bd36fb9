"""At most one holds a lease, under epochs that only grow: in every state of the model; and no guard can be left out."""

import os
from collections.abc import Callable

import pytest

from strandline.protocol import leadership
from strandline.protocol.leadership import Attempt, Candidate, LeaseRecord, Sighting, Tenure
from tests.exploring import explore
from tests.models.leadership import CAMPAIGN, LeadershipBounds, LeadershipModel

SMALL = LeadershipBounds(ttl=2, writes_max=1, epoch_max=2)
PAUSES = SMALL._replace(writes_max=2, drift_max=0)
WORLDS = {
    "a clock drifts": SMALL,
    "two renewals": PAUSES,
    "three candidates": SMALL._replace(nodes=3, drift_max=0),
    "one restarts": SMALL._replace(restarts=1),
    "an operator revokes": SMALL._replace(revocations=1),
    "the record is deleted": SMALL._replace(deletions=1, epoch_max=3, drift_max=0),
}
CORES = os.cpu_count() or 1
released, revoked = leadership.released, leadership.revoked


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def keep_the_age(
    before: Sighting | None, record: LeaseRecord | None, version: str | None, _: int, answered_ns: int
) -> Sighting:
    return Sighting(record, version, before.since_ns if before else answered_ns)


def count_from_the_question(
    before: Sighting | None, record: LeaseRecord | None, version: str | None, asked_ns: int, _: int
) -> Sighting:
    return before if before is not None and before.version == version else Sighting(record, version, asked_ns)


def count_from_the_answer(_: int, answered_ns: int, ttl_ns: int, margin_ns: int) -> int:
    return answered_ns + ttl_ns - margin_ns


def without_a_margin(sent_ns: int, _: int, ttl_ns: int, __: int) -> int:
    return sent_ns + ttl_ns


def held_at_the_deadline(tenure: Tenure | None, now_ns: int) -> bool:
    return tenure is not None and now_ns <= tenure.deadline_ns


def own_by_name(candidate: Candidate, record: LeaseRecord) -> bool:
    return record.holder == candidate.holder


def the_same_epoch(known: int, record: LeaseRecord | None) -> int:
    return max(known, record.epoch if record else 0, 1)


def epoch_of_the_record_alone(_: int, record: LeaseRecord | None) -> int:
    return (record.epoch if record else 0) + 1


def the_same_nonce(nonce: int) -> int:
    return nonce or 1


def release_without_the_epoch(record: LeaseRecord, nonce: int) -> LeaseRecord:
    return released(record, nonce)._replace(epoch=0)


def revoke_at_once(record: LeaseRecord, session: str) -> LeaseRecord:
    return revoked(record, session)._replace(ttl_ns=0)


def own_by_session_alone(attempts: tuple[Attempt, ...], record: LeaseRecord | None) -> Attempt | None:
    if record is None:
        return None
    return next((attempt for attempt in reversed(attempts) if attempt.record.session == record.session), None)


def whatever_was_claimed(
    attempt: Attempt, version: str, answered_ns: int, margin_ns: int, _: Tenure | None
) -> Tenure | None:
    deadline_ns = leadership.deadline_of(attempt.sent_ns, answered_ns, attempt.record.ttl_ns, margin_ns)
    return Tenure(attempt.record, version, deadline_ns) if deadline_ns > answered_ns else None


def forget_what_was_told(candidate: Candidate, epoch: int, _: int) -> Candidate:
    return candidate._replace(known=max(candidate.known, epoch))


TWO, AGAIN = "two hold the lease at once", "an epoch was there before"
ANOTHERS = "it holds what it has seen to be another's"
DELETED = WORLDS["the record is deleted"]
MUTATIONS: list[tuple[str, Callable[..., object], LeadershipBounds, int, str]] = [
    ("observe", keep_the_age, PAUSES, 11, TWO),
    ("observe", count_from_the_question, SMALL, 9, TWO),
    ("is_expired", always, PAUSES, 8, TWO),
    ("deadline_of", count_from_the_answer, PAUSES, 10, TWO),
    ("deadline_of", without_a_margin, SMALL, 9, TWO),
    ("is_held", held_at_the_deadline, SMALL, 9, TWO),
    ("is_own", own_by_name, PAUSES, 8, TWO),
    ("is_own", always, PAUSES, 8, TWO),
    ("next_epoch", the_same_epoch, PAUSES, 8, AGAIN),
    ("next_epoch", epoch_of_the_record_alone, DELETED, 7, AGAIN),
    ("next_nonce", the_same_nonce, PAUSES, 13, TWO),
    ("released", release_without_the_epoch, PAUSES._replace(floor=False), 10, AGAIN),
    ("revoked", revoke_at_once, WORLDS["an operator revokes"], 9, TWO),
    ("own_attempt", own_by_session_alone, PAUSES, 12, TWO),
    ("tenure_of", whatever_was_claimed, PAUSES._replace(ttl=3), 9, AGAIN),
    ("is_lost", never, WORLDS["an operator revokes"], 6, ANOTHERS),
    ("after_epoch", forget_what_was_told, DELETED, 11, TWO),
    ("may_claim", always, PAUSES, 8, TWO),
]


@pytest.mark.parametrize("bounds", WORLDS.values(), ids=WORLDS.keys())
def test_at_most_one_holds_it_and_epochs_only_grow(bounds: LeadershipBounds) -> None:
    found = explore(LeadershipModel(bounds))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize(("guard", "broken", "bounds", "steps", "problem"), MUTATIONS)
def test_without_a_guard_there_is_a_counterexample(
    guard: str,
    broken: Callable[..., object],
    bounds: LeadershipBounds,
    steps: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"strandline.protocol.leadership.{guard}", broken)
    found = explore(LeadershipModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, problem), found


ASSUMPTIONS = {
    "a store that ignores conditions": SMALL._replace(conditions=False),
    "clocks that drift apart by more than the margin": SMALL._replace(drift_max=2),
    "a record that is deleted while no data tells its epoch": DELETED._replace(floor=False),
}


@pytest.mark.parametrize("bounds", ASSUMPTIONS.values(), ids=ASSUMPTIONS.keys())
def test_what_is_assumed_is_needed(bounds: LeadershipBounds) -> None:
    found = explore(LeadershipModel(bounds)).counterexample
    assert found is not None
    assert found.problem == TWO, found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "bounds",
    [
        LeadershipBounds(writes_max=2, sent_max=2),
        LeadershipBounds(nodes=3, writes_max=1, epoch_max=3),
        LeadershipBounds(ttl=2, writes_max=2, restarts=1),
        LeadershipBounds(ttl=2, writes_max=2, revocations=1),
        LeadershipBounds(ttl=2, writes_max=2, epoch_max=3, deletions=1),
    ],
)
def test_at_most_one_holds_it_in_larger_worlds(bounds: LeadershipBounds) -> None:
    found = explore(LeadershipModel(bounds), cores=CORES)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 100_000


@pytest.mark.campaign("leadership")
@pytest.mark.timeout(7200)
def test_at_most_one_holds_it_in_the_first_ten_million_states() -> None:
    found = explore(LeadershipModel(CAMPAIGN), states_max=10_000_000)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.counterexample is None, found
    assert found.states >= 10_000_000


def test_the_world_of_a_campaign_begins_without_a_counterexample() -> None:
    found = explore(LeadershipModel(CAMPAIGN), states_max=20_000)
    assert found.counterexample is None, found
    assert found.states > 20_000
