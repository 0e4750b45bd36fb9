"""Decisions about findings: kept for ever, and the last one holds."""

from itertools import permutations

import pytest

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BatchTooLarge
from strandline.pipeline.triage import TriageEvent, TriageState, current, event_id, validate_all
from tests.pipeline.rows import TENANT, digest, found

EVENT = TriageEvent(TENANT, found(1)[0].finding_id, TriageState.CONFIRMED, 5, "ada", "it is real")


def test_the_last_decision_holds_in_every_order_ties_included() -> None:
    events = [
        EVENT,
        EVENT._replace(state=TriageState.FALSE_POSITIVE),
        EVENT._replace(who="bob"),
        EVENT._replace(when_ns=4, state=TriageState.REVOKED),
        EVENT._replace(state=TriageState.FALSE_POSITIVE, why="z"),
    ]
    assert {current(order) for order in permutations(events)} == {events[-1]}
    assert current([]) is None


def test_a_decision_is_named_by_its_content() -> None:
    others = [
        EVENT._replace(finding_id=found(2)[0].finding_id),
        EVENT._replace(state=TriageState.OPEN),
        EVENT._replace(when_ns=6),
        EVENT._replace(who="adai", why="t is real"),
        EVENT._replace(why=""),
    ]
    assert len({event_id(event) for event in (EVENT, *others)}) == 6
    assert event_id(EVENT) == event_id(TriageEvent(*EVENT))


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": b"short"},
        {"finding_id": b"short"},
        {"state": 9},
        {"when_ns": -1},
        {"when_ns": 2**63},
        {"who": ""},
        {"who": "x" * 257},
        {"why": "é" * 2049},
    ],
)
def test_a_decision_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    validate_all([EVENT])
    with pytest.raises(InvalidInput):
        validate_all([EVENT, EVENT._replace(**fields)])  # type: ignore[arg-type]


def test_decisions_of_several_tenants_or_too_many_are_refused() -> None:
    with pytest.raises(InvalidInput, match="several tenants"):
        validate_all([EVENT, EVENT._replace(tenant=digest(9))])  # type: ignore[arg-type]
    with pytest.raises(BatchTooLarge, match="10,001 decisions"):
        validate_all([EVENT] * 10_001)


def test_a_decision_shows_no_id() -> None:
    assert EVENT.finding_id.hex() not in repr(EVENT)
    assert "CONFIRMED" in repr(EVENT)
