"""Times by owner."""

import weakref

import pytest

from strandline.broker.timers import Timers


def test_whoever_has_a_time_is_called_once_when_it_has_come() -> None:
    timers, called = Timers(), list[tuple[str, int]]()
    for owner, due_ns in (("late", 30), ("soon", 10), ("then", 20)):
        timers.set(owner, due_ns, lambda now_ns, owner=owner: called.append((owner, now_ns)))  # type: ignore[misc]
    assert timers.next_ns == 10
    timers.run(25)
    assert called == [("soon", 25), ("then", 25)]
    assert timers.next_ns == 30
    timers.run(25)
    assert len(called) == 2


def test_only_the_time_set_last_counts() -> None:
    timers, called = Timers(), list[int]()
    for due_ns in (10, 50, 20, None, 40, 40):
        timers.set("one", due_ns, called.append)
    assert timers.next_ns == 40
    timers.run(39)
    assert called == []
    timers.run(40)
    assert called == [40]
    assert timers.next_ns is None


def test_what_is_set_while_running_waits_for_the_next_run() -> None:
    timers, called = Timers(), list[int]()

    def again(now_ns: int) -> None:
        called.append(now_ns)
        timers.set("one", now_ns, again)

    timers.set("one", 1, again)
    timers.run(5)
    assert called == [5]
    assert timers.next_ns == 5


def test_one_who_is_ended_by_another_is_not_called() -> None:
    timers, called = Timers(), list[int]()
    timers.set("first", 1, lambda _: timers.set("second", None, called.append))
    timers.set("second", 2, called.append)
    timers.run(1)
    timers.run(9)
    assert called == []


def test_changing_the_time_for_ever_takes_no_memory() -> None:
    timers, called = Timers(), list[int]()
    timers.set("early", 5, called.append)
    for due_ns in range(10, 20_000):
        timers.set("one", due_ns, called.append)
    assert len(timers._heap) < 2_000  # noqa: SLF001 - what it holds is the point
    timers.run(19_999)
    assert len(called) == 2


def test_one_call_that_fails_does_not_keep_others_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    timers, called = Timers(), list[int]()

    def fail(now_ns: int) -> None:
        raise ValueError(now_ns)

    timers.set("bad", 1, fail)
    timers.set("good", 2, called.append)
    timers.run(5)
    assert called == [5]
    assert "timer callback failed" in caplog.text


def test_who_has_no_time_any_more_is_not_kept() -> None:
    class Owner:
        """Somebody large."""

    timers, owner, called = Timers(), Owner(), list[int]()
    timers.set(owner, 10**18, called.append)
    timers.set(owner, None, called.append)
    kept = weakref.ref(owner)
    del owner
    assert kept() is None
