"""Long work shares the loop: a part of it in each cycle, owners in turn, and nothing is lost when one fails."""

from collections.abc import Callable

import pytest

from strandline.broker.work_queue import BUDGET_NS, Steps, WorkQueue
from strandline.clock import ManualClock


class Cycles:
    """A queue, whose work takes as long as a test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wakes = 0
        self.paused: list[int] = []
        self.done: list[str] = []
        self.queue = WorkQueue(
            self.clock, self._wake, failure="work failed", hold=self.paused.append, release=self.paused.remove
        )

    def _wake(self) -> None:
        self.wakes += 1

    def work(self, name: str, takes_ns: int = BUDGET_NS) -> Callable[[], None]:
        def do() -> None:
            self.clock.advance(takes_ns / 1e9)
            self.done.append(name)

        return do

    def cycle(self) -> list[str]:
        done = len(self.done)
        self.queue.run()
        return self.done[done:]


def test_what_is_short_is_done_at_once() -> None:
    cycles = Cycles()
    for name in "abc":
        cycles.queue.do(1, cycles.work(name, 1000))
    assert (cycles.done, cycles.paused) == (["a", "b", "c"], [])
    assert cycles.wakes == 1  # the next cycle has a new budget
    assert cycles.cycle() == []


def test_what_takes_long_goes_on_in_later_cycles_one_client_after_the_other() -> None:
    cycles = Cycles()
    for name in ("a1", "a2", "a3"):
        cycles.queue.do(1, cycles.work(name))
    cycles.queue.do(2, cycles.work("b1"))
    assert (cycles.done, cycles.paused) == (["a1"], [1, 2])
    wakes = cycles.wakes
    assert [cycles.cycle() for _ in range(4)] == [["a2"], ["b1"], ["a3"], []]
    assert cycles.wakes == wakes + 2  # while something waits
    assert cycles.paused == []
    cycles.queue.do(1, cycles.work("a4"))
    assert cycles.done[-1] == "a4"


def test_an_order_is_kept_though_there_would_be_time_for_what_comes_later() -> None:
    cycles = Cycles()
    for number in range(3):
        cycles.queue.do(1, cycles.work(f"a{number}"))
    cycles.cycle()
    cycles.queue.do(1, cycles.work("a3", 0))
    while cycles.paused:
        cycles.cycle()
    assert cycles.done == ["a0", "a1", "a2", "a3"]


def test_work_that_fails_keeps_nobody_else_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    cycles = Cycles()
    cycles.queue.do(1, cycles.work("a"))
    cycles.queue.do(1, iter(()).__next__)
    cycles.queue.do(2, cycles.work("b"))
    assert cycles.cycle() == ["b"]
    assert cycles.paused == []
    assert "StopIteration" in caplog.text


def _steps(cycles: Cycles, name: str, count: int, takes_ns: int = BUDGET_NS) -> Steps:
    try:
        for number in range(count):
            cycles.work(f"{name}{number}", takes_ns)()
            yield
    finally:
        cycles.done.append(f"{name} ended")


def test_work_of_many_steps_takes_turns_and_never_begins_at_once() -> None:
    cycles = Cycles()
    cycles.queue.add(_steps(cycles, "a", 2))
    cycles.queue.add(_steps(cycles, "b", 1))
    assert (cycles.done, cycles.wakes) == ([], 1)
    assert [cycles.cycle() for _ in range(5)] == [["a0"], ["b0"], ["a1"], ["b ended", "a ended"], []]
    assert cycles.wakes == 4


def test_work_that_a_step_adds_is_done_after_the_others() -> None:
    cycles = Cycles()

    def first() -> Steps:
        cycles.queue.add(_steps(cycles, "b", 1, 0))
        yield

    cycles.queue.add(first())
    assert cycles.cycle() == ["b0", "b ended"]
    assert (cycles.cycle(), cycles.wakes) == ([], 1)


def test_steps_that_wait_are_closed_with_the_queue() -> None:
    cycles = Cycles()
    cycles.queue.add(_steps(cycles, "a", 2))
    cycles.cycle()
    cycles.queue.close()
    assert cycles.done == ["a0", "a ended"]
    assert cycles.cycle() == []


def test_steps_that_fail_end_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    cycles = Cycles()

    def fail() -> Steps:
        yield
        raise ValueError("of the work")

    cycles.queue.add(fail())
    cycles.queue.add(_steps(cycles, "b", 2, 0))
    assert cycles.cycle() == ["b0", "b1", "b ended"]
    assert "work failed" in caplog.text
