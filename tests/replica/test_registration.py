"""Registrations of followers: one process has a name, and what a crashed one left is replaced."""

from pathlib import Path

import pytest

from strandline.lease import Claimant, Lease, LeaseTiming, ObjectLeaseStore
from strandline.objects import MemoryObjects, WriteUnknown
from strandline.replica import Node, NodeNameTaken, Role, discover
from strandline.replica.nodes import LEASE_KEY, node_key, parse_node
from strandline.replica.registration import REGISTER_EVERY_S, STALE_S, Registration
from tests.replica.databases import database
from tests.waiting import PATIENCE_S, eventually

TIMING = LeaseTiming(ttl_s=600.0, renew_s=0.2, margin_s=0.1, poll_s=0.05)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Place:
    """A replica that another node leads, and its followers."""

    def __init__(self, leader: str = "leader") -> None:
        self.store, self.clock = MemoryObjects(), Clock()
        self.leader = Claimant(ObjectLeaseStore(self.store, LEASE_KEY), leader, address="http://leader")
        self.leader.claim()

    def registration(self, name: str = "a") -> Registration:
        """Return what one process registers with."""
        lease = Lease(ObjectLeaseStore(self.store, LEASE_KEY), name)
        return Registration(self.store, lease, name, f"http://{name}", clock=self.clock)

    def written(self) -> tuple[int, str]:
        """Return the transaction of the registration, and which process wrote it."""
        found = self.store.get(node_key("a"))
        assert found is not None
        record = parse_node(found.body, "nodes/a.json")
        return record.txid, record.instance


def test_a_registration_is_rewritten_in_its_time_and_deleted() -> None:
    place = Place()
    running = place.registration()
    running.renew(1)
    running.renew(2)
    assert place.written()[0] == 1, "it is not due yet"
    place.clock.now_s += REGISTER_EVERY_S
    running.renew(3)
    assert [node.txid for node in discover(place.store).followers] == [3]
    running.remove()
    assert list(discover(place.store).followers) == []
    running.renew(4)
    assert place.written()[0] == 4


def test_what_a_crashed_process_left_is_replaced_when_it_is_old() -> None:
    place = Place()
    place.registration().renew(1)
    restarted = place.registration()
    restarted.renew(2)
    place.clock.now_s += STALE_S - 1
    restarted.renew(2)
    assert place.written()[0] == 1, "its process may be alive"
    place.clock.now_s += 1
    restarted.renew(2)
    assert place.written()[0] == 2


def test_a_process_is_refused_under_the_name_of_one_that_lives() -> None:
    place = Place()
    first, second = place.registration(), place.registration()
    first.renew(1)
    second.renew(2)
    _, instance = place.written()
    place.clock.now_s += REGISTER_EVERY_S
    first.renew(1)
    second.renew(2)
    place.clock.now_s += REGISTER_EVERY_S
    first.renew(1)
    with pytest.raises(NodeNameTaken, match="another process is the node 'a': it renews its registration") as taken:
        second.renew(2)  # after two signs of life
    assert "name of its own" in (taken.value.hint or "")
    second.remove()
    assert place.written() == (1, instance), "the first goes on"


def test_a_process_that_stood_still_does_not_delete_the_registration_of_the_one_after_it() -> None:
    place = Place()
    first, second = place.registration(), place.registration()
    first.renew(1)
    second.renew(2)
    place.clock.now_s += STALE_S
    second.renew(2)
    first.renew(1)
    assert place.written()[0] == 2, "the first finds that it was replaced"
    first.remove()
    assert place.written()[0] == 2


def test_one_late_request_of_a_crashed_process_is_no_sign_that_it_lives() -> None:
    place = Place()
    crashed, restarted = place.registration(), place.registration()
    crashed.renew(1)
    restarted.renew(2)
    place.clock.now_s += REGISTER_EVERY_S
    crashed.renew(1)
    for _ in range(4):
        place.clock.now_s += REGISTER_EVERY_S
        restarted.renew(2)
    assert place.written()[0] == 2


def test_of_two_that_register_at_once_one_does() -> None:
    place = Place()
    first, second = place.registration(), place.registration()
    put, others = place.store.put, [second]

    def meanwhile(*arguments: object, **options: object) -> str:
        if others:
            others.pop().renew(2)
        return put(*arguments, **options)  # type: ignore[arg-type]

    place.store.put = meanwhile  # type: ignore[method-assign]
    first.renew(1)
    assert place.written()[0] == 2, "the other came first, and is not overwritten"


def test_a_registration_whose_answer_was_lost_is_known_again() -> None:
    place = Place()
    running = place.registration()
    place.store.faults.fail("put", WriteUnknown(node_key("a"), "no answer came"), after=True)
    with pytest.raises(WriteUnknown):
        running.renew(1)
    running.renew(2)
    assert place.written()[0] == 2


def test_a_follower_is_refused_under_the_name_of_the_leader() -> None:
    place = Place(leader="a")
    running = place.registration()
    for _ in range(2):
        running.renew(1)
        place.clock.now_s += REGISTER_EVERY_S
        place.leader.renew()
    with pytest.raises(NodeNameTaken, match="renews the lease"):
        running.renew(1)


def test_a_second_node_of_one_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replica.registration.REGISTER_EVERY_S", 0.1)
    store = MemoryObjects()
    with database(tmp_path / "a.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
    with Node(tmp_path / "a.db", store, "a", timing=TIMING, follow_every_s=0.05) as first:
        assert first.wait_for_role(Role.LEADER, PATIENCE_S)
        second = Node(tmp_path / "b.db", store, "a", timing=TIMING, follow_every_s=0.05).start()
        eventually(lambda: second.failure)
        with pytest.raises(NodeNameTaken):
            second.close()
        assert first.role is Role.LEADER
