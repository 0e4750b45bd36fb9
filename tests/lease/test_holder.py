"""A lease that is kept by its thread: renewed, lost in time, told to listeners, and given back."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from strandline.errors import Closed, Conflict
from strandline.events import Event, Events
from strandline.lease import (
    Fence,
    InvalidLease,
    LeaderSeen,
    Lease,
    LeaseEnded,
    LeaseHeld,
    LeaseLost,
    LeaseTaken,
    LeaseTiming,
    LeaseTrouble,
    ObjectLeaseStore,
    StoredRecord,
    revoke,
)
from strandline.lease.stores import CALLS_MAX, LimitedLeaseStore
from strandline.objects import MemoryObjects, StoreRefused, StoreUnavailable
from strandline.protocol.leadership import LeaseRecord
from tests.lease.candidates import KEY, ElapsedTime
from tests.waiting import PATIENCE_S, eventually

LONG = LeaseTiming(ttl_s=600, renew_s=0.05, margin_s=1, poll_s=0.02)
"""Renewed often, and never lost because a machine is slow."""
SHORT = LeaseTiming(ttl_s=0.5, renew_s=0.1, margin_s=0.1, poll_s=0.02)
"""For tests in which it is to be lost."""


class HangingStore(ObjectLeaseStore):
    """A store that answers, until it is told to hang."""

    def __init__(self, objects: MemoryObjects) -> None:
        super().__init__(objects, KEY)
        self.answers = threading.Event()
        self.answers.set()

    def read(self) -> StoredRecord | None:
        """Return the record, or hang."""
        self.answers.wait()
        return super().read()

    def write(self, record: LeaseRecord, expected: str | None) -> str:
        """Replace the record, or hang first."""
        self.answers.wait()
        return super().write(record, expected)


class Heard:
    """Events, in order."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()

    def next(self, kind: type[Event]) -> Event:
        """Wait for the next event of a kind, passing over others."""
        while not isinstance(event := self.events.get(timeout=PATIENCE_S), kind):
            pass
        return event


def lease_over(
    objects: MemoryObjects, holder: str = "a", timing: LeaseTiming = LONG, now_ns: Callable[[], int] | None = None
) -> tuple[Lease, Heard]:
    heard = Heard()
    store = ObjectLeaseStore(objects, KEY)
    events = Events(heard.events.put)
    if now_ns is None:
        return Lease(store, holder, address=f"http://{holder}", timing=timing, events=events), heard
    return Lease(store, holder, timing=timing, events=events, now_ns=now_ns), heard


def test_it_is_taken_renewed_and_given_back() -> None:
    objects = MemoryObjects()
    lease, heard = lease_over(objects)
    assert lease.health().is_held is False
    fence = lease.acquire(timeout_s=0)
    assert (fence, lease.check(), lease.check(fence)) == (Fence(1), fence, fence)
    assert heard.next(LeaseTaken) == LeaseTaken(f"memory://{KEY}", 1)
    eventually(lambda: objects.faults.calls["put"] > 3, "it is renewed")
    assert lease.is_held
    assert lease.release()
    assert heard.next(LeaseEnded) == LeaseEnded(f"memory://{KEY}", 1, "released")
    with pytest.raises(LeaseLost):
        lease.check(fence)
    puts = objects.faults.calls["put"]
    assert lease.acquire(timeout_s=0) == Fence(2)
    assert objects.faults.calls["put"] > puts
    with pytest.raises(LeaseLost, match="taken anew under epoch 2"):
        lease.check(fence)
    lease.close()


def test_another_is_told_who_holds_it_and_gets_it_when_it_is_given_back() -> None:
    objects = MemoryObjects()
    first, _ = lease_over(objects, "a")
    second, heard = lease_over(objects, "b")
    first.acquire()
    with pytest.raises(LeaseHeld) as raised:
        second.acquire(timeout_s=0)
    assert (raised.value.holder, raised.value.holder_address, raised.value.epoch) == ("a", "http://a", 1)
    taken: list[Fence] = []
    waiting = threading.Thread(target=lambda: taken.append(second.acquire()), daemon=True)
    waiting.start()
    first.release()
    waiting.join(PATIENCE_S)
    assert taken == [Fence(2)]
    assert heard.next(LeaderSeen) == LeaderSeen(f"memory://{KEY}", 1, "a", "http://a", released=False)
    second.close()


def test_a_holder_whose_store_hangs_steps_down_by_itself() -> None:
    objects = MemoryObjects()
    store, heard = HangingStore(objects), Heard()
    lease = Lease(store, "a", timing=SHORT, events=Events(heard.events.put))
    fence = lease.acquire()
    store.answers.clear()
    ended = heard.next(LeaseEnded)
    assert isinstance(ended, LeaseEnded)
    assert ended.epoch == 1
    assert ended.reason.startswith("not renewed in time")
    with pytest.raises(LeaseLost):
        lease.check(fence)
    store.answers.set()
    lease.close()


def test_it_is_over_at_the_deadline_without_any_thread_doing_anything() -> None:
    now_ns = ElapsedTime()
    timing = LeaseTiming(ttl_s=600, renew_s=100, margin_s=1)
    lease, _ = lease_over(MemoryObjects(), timing=timing, now_ns=now_ns)
    fence = lease.acquire()
    now_ns.advance(598.9)
    lease.check(fence)
    now_ns.advance(0.1)  # the process was stopped, and this is the first thing it does
    with pytest.raises(LeaseLost):
        lease.check(fence)
    now_ns.advance(-50)  # and no clock brings it back
    assert not lease.is_held
    lease.close()


def test_the_end_of_a_tenure_is_told_once_also_if_the_holder_notices_before_its_thread() -> None:
    now_ns = ElapsedTime()
    timing = LeaseTiming(ttl_s=600, renew_s=100, margin_s=1)
    lease, heard = lease_over(MemoryObjects(), timing=timing, now_ns=now_ns)
    lease.acquire()
    now_ns.advance(600)  # its thread sleeps until the next renewal
    assert lease.acquire() == Fence(2)
    lease.close()
    told = [heard.events.get(timeout=PATIENCE_S) for _ in range(heard.events.qsize())]
    ends = [(event.epoch, event.reason) for event in told if isinstance(event, LeaseEnded)]
    assert ends == [(1, "not renewed in time"), (2, "released")]


def test_a_holder_is_told_when_another_has_taken_it() -> None:
    objects = MemoryObjects()
    lease, heard = lease_over(objects)
    lease.acquire()
    store = ObjectLeaseStore(objects, KEY)

    def overwrite() -> bool:
        found = store.read()
        assert found is not None
        try:
            store.write(found.record._replace(epoch=9, session="another", holder="b"), found.version)
        except Conflict:  # it was renewed in between
            return False
        return True

    eventually(overwrite, "the record is another's")
    assert heard.next(LeaseEnded) == LeaseEnded(f"memory://{KEY}", 1, "b leads under epoch 9")
    assert not lease.is_held
    health = lease.health()
    assert (health.is_held, health.leader, health.epoch) == (False, "b", 9)
    lease.close()


def test_a_holder_is_told_when_it_was_revoked_or_its_record_deleted() -> None:
    for end, reason in (("revoke", "it was revoked"), ("delete", "the record is missing")):
        objects = MemoryObjects()
        lease, heard = lease_over(objects)
        lease.acquire()
        if end == "revoke":
            eventually(lambda objects=objects: _is_revoked(objects), "it is revoked between two renewals")  # type: ignore[misc]
        else:
            objects.delete(KEY)
        assert heard.next(LeaseEnded) == LeaseEnded(f"memory://{KEY}", 1, reason)
        lease.close()


def _is_revoked(objects: MemoryObjects) -> bool:
    try:
        revoke(ObjectLeaseStore(objects, KEY), 1)
    except Conflict:  # it was renewed in between
        return False
    return True


def test_failed_renewals_are_told_and_repeated() -> None:
    objects = MemoryObjects()
    lease, heard = lease_over(objects)
    lease.acquire()
    for nth in range(1, 4):
        objects.faults.fail("put", StoreUnavailable("memory://", "slow down"), nth=nth)
        objects.faults.fail("get", StoreUnavailable("memory://", "slow down"), nth=nth)
    trouble = heard.next(LeaseTrouble)
    assert isinstance(trouble, LeaseTrouble)
    assert "slow down" in trouble.error
    eventually(lambda: lease.health().failures == 0, "it is renewed again")
    assert lease.is_held
    assert "slow down" in lease.health().last_error
    lease.close()


def test_health_says_who_leads_since_when_and_when_it_is_renewed() -> None:
    objects, now_ns = MemoryObjects(), ElapsedTime()
    timing = LeaseTiming(ttl_s=600, renew_s=100, margin_s=1)
    lease, _ = lease_over(objects, timing=timing, now_ns=now_ns)
    assert lease.health().epoch == 0
    lease.acquire()
    now_ns.advance(30)
    health = lease.health()
    assert (health.is_held, health.epoch, health.leader, health.leader_for_s) == (True, 1, "a", 30)
    assert (health.renews_in_s, health.expires_in_s, health.last_error) == (70, 569, "")
    other, _ = lease_over(objects, "b", timing=timing, now_ns=now_ns)
    record = other.look()
    assert record is not None
    assert record.holder == "a"
    now_ns.advance(10)
    health = other.health()
    assert (health.is_held, health.leader, health.leader_for_s, health.expires_in_s) == (False, "a", 10, 590)
    assert health.renews_in_s is None
    lease.release()
    other.look()
    assert other.health().leader == ""


def test_acquiring_waits_for_a_store_and_gives_up_in_time() -> None:
    objects = MemoryObjects()
    lease, _ = lease_over(objects)
    objects.faults.fail("get", StoreUnavailable("memory://", "slow down"))
    objects.faults.fail("get", StoreUnavailable("memory://", "slow down"), nth=2)
    assert lease.acquire() == Fence(1)
    lease.release()
    objects.faults.fail("get", StoreUnavailable("memory://", "slow down"))
    with pytest.raises(StoreUnavailable):
        lease.acquire(timeout_s=0)
    objects.faults.fail("get", StoreRefused("memory://", "denied"))
    with pytest.raises(StoreRefused):
        lease.acquire()
    lease.close()
    with pytest.raises(Closed):
        lease.acquire()


def test_the_wall_clock_may_jump_by_an_hour_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = MemoryObjects()
    lease, _ = lease_over(objects)
    fence = lease.acquire()
    for jump_s in (3600.0, -3600.0):
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda real=real, jump_s=jump_s: real() + int(jump_s * 1e9))
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
        puts = objects.faults.calls["put"]
        eventually(lambda puts=puts: objects.faults.calls["put"] > puts + 1, "it is renewed")  # type: ignore[misc]
        assert lease.check(fence) == fence
        other, _ = lease_over(objects, "b")
        with pytest.raises(LeaseHeld):
            other.acquire(timeout_s=0)
    lease.close()


def test_a_store_that_never_answers_is_asked_a_few_times_only() -> None:
    store = HangingStore(MemoryObjects())
    store.answers.clear()
    limited = LimitedLeaseStore(store, lambda: 0.001)
    before = threading.active_count()
    for _ in range(3 * CALLS_MAX):
        with pytest.raises(Exception, match="no answer"):
            limited.read()
    assert threading.active_count() - before <= CALLS_MAX
    store.answers.set()
    eventually(lambda: threading.active_count() <= before, "the calls end")


@pytest.mark.parametrize(
    "times",
    [{"ttl_s": 5}, {"renew_s": 4}, {"margin_s": 3}, {"ttl_s": 0}, {"poll_s": 0}, {"ttl_s": 90_000, "renew_s": 2}],
)
def test_times_that_do_not_fit_together_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(InvalidLease):
        LeaseTiming(**times)
