"""The pure core of routing: kinds, decisions, and what follows a failed attempt."""

from itertools import product

import pytest

from strandline.errors import InvalidInput
from strandline.replica.roles import Role
from strandline.replica.routing.positions import ReadPosition
from strandline.replica.routing.rules import (
    ATTEMPTS_MAX,
    Decision,
    Failure,
    Forwarding,
    Kind,
    Next,
    RoutingRules,
    after_failure,
    decide,
)

NOTHING = ReadPosition()


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/", Kind.READ),
        ("HEAD", "/x", Kind.READ),
        ("OPTIONS", "/x", Kind.READ),
        ("POST", "/x", Kind.WRITE),
        ("PUT", "/x", Kind.WRITE),
        ("DELETE", "/x", Kind.WRITE),
        ("BREW", "/x", Kind.WRITE),
        ("get", "/x", Kind.WRITE),
        ("GET", "/logout", Kind.WRITE),
        ("GET", "/logout/now", Kind.WRITE),
        ("GET", "/logouts", Kind.READ),
        ("POST", "/health", Kind.LOCAL),
    ],
)
def test_a_request_is_a_read_by_its_method_and_path(method: str, path: str, kind: Kind) -> None:
    rules = RoutingRules(write_paths=("/logout",), local_paths=("/health",))
    assert rules.kind_of(method, path) is kind


def test_a_path_without_a_slash_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not a path"):
        RoutingRules(local_paths=("health",))


@pytest.mark.parametrize(
    ("kind", "role", "wanted", "expects_leader", "decision"),
    [
        (Kind.WRITE, Role.LEADER, NOTHING, False, Decision.SERVE),
        (Kind.WRITE, Role.LEADER, NOTHING, True, Decision.SERVE),
        (Kind.WRITE, Role.FOLLOWER, NOTHING, False, Decision.FORWARD),
        (Kind.WRITE, Role.FOLLOWER, NOTHING, True, Decision.MISDIRECTED),
        (Kind.WRITE, Role.CHANGING, NOTHING, False, Decision.HOLD),
        (Kind.WRITE, Role.CHANGING, NOTHING, True, Decision.HOLD),
        (Kind.READ, Role.FOLLOWER, NOTHING, False, Decision.SERVE),
        (Kind.READ, Role.CHANGING, NOTHING, False, Decision.SERVE),
        (Kind.READ, Role.FOLLOWER, NOTHING, True, Decision.MISDIRECTED),
        (Kind.READ, Role.FOLLOWER, ReadPosition(5), False, Decision.SERVE),
        (Kind.READ, Role.FOLLOWER, ReadPosition(6), False, Decision.WAIT),
        (Kind.READ, Role.LEADER, ReadPosition(6), False, Decision.SERVE),
        (Kind.READ, Role.FOLLOWER, ReadPosition(0, at_leader=True), False, Decision.FORWARD),
        (Kind.LOCAL, Role.FOLLOWER, NOTHING, True, Decision.SERVE),
    ],
)
def test_a_node_serves_waits_forwards_holds_or_refuses(
    kind: Kind, role: Role, wanted: ReadPosition, expects_leader: bool, decision: Decision
) -> None:
    assert decide(kind, role, wanted=wanted, position=5, expects_leader=expects_leader) is decision


def test_a_write_is_served_by_the_leader_alone_and_what_was_forwarded_is_not_forwarded_again() -> None:
    wanted = (NOTHING, ReadPosition(9), ReadPosition(0, at_leader=True))
    for role, want, expects in product(Role, wanted, (True, False)):
        write = decide(Kind.WRITE, role, wanted=want, position=5, expects_leader=expects)
        assert (write is Decision.SERVE) == (role is Role.LEADER)
        for kind in (Kind.READ, Kind.WRITE):
            if expects:
                found = decide(kind, role, wanted=want, position=5, expects_leader=True)
                assert found in (Decision.SERVE, Decision.HOLD, Decision.MISDIRECTED)


def test_a_write_of_unknown_outcome_is_never_sent_again_without_a_key() -> None:
    for failure, replayable, attempts, remaining in product(Failure, (True, False), (1, 2, 3), (0.0, 5.0)):
        found = after_failure(failure, Forwarding(Kind.WRITE, False, replayable, attempts, remaining))
        if failure.is_unknown:
            assert found is Next.UNKNOWN
        else:
            assert found is (Next.AGAIN if replayable and remaining > 0 else Next.NOT_DONE)


def test_with_a_key_it_is_sent_again_a_few_times() -> None:
    def after(failure: Failure, attempts: int, *, replayable: bool = True, remaining: float = 5.0) -> Next:
        return after_failure(failure, Forwarding(Kind.WRITE, True, replayable, attempts, remaining))

    assert after(Failure.LOST, 1) is Next.AGAIN
    assert after(Failure.LOST, ATTEMPTS_MAX) is Next.UNKNOWN
    assert after(Failure.LOST, 1, replayable=False) is Next.UNKNOWN
    assert after(Failure.LOST, 1, remaining=0) is Next.UNKNOWN
    assert after(Failure.TIMED_OUT, 1) is Next.UNKNOWN, "the server may still be working on it"


def test_a_read_is_sent_again_and_its_failure_leaves_nothing_open() -> None:
    assert after_failure(Failure.LOST, Forwarding(Kind.READ, False, True, 1, 5.0)) is Next.AGAIN
    assert after_failure(Failure.LOST, Forwarding(Kind.READ, False, True, ATTEMPTS_MAX, 5.0)) is Next.FAILED
    assert after_failure(Failure.TIMED_OUT, Forwarding(Kind.READ, False, True, 1, 5.0)) is Next.FAILED
