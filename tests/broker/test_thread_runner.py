"""Work beside the loop: a task runs once, is told on the loop's thread, and is over when it was cancelled."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from strandline.broker.thread_runner import ThreadPerTask, ThreadRunner
from tests.broker.jetstream.fakes import Held
from tests.waiting import PATIENCE_S


class Thread:
    """The server's thread: what is posted there, and what was told."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.told: list[object] = []
        self.dropped: list[object] = []

    def run(self) -> None:
        while self.posted:
            self.posted.pop(0)()


class Work:
    """Something that takes as long as a test wants."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.is_over = False

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        self.is_over = True
        raise ValueError("what came of it")


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.may_end.set()


@pytest.fixture
def runner(thread: Thread, work: Work) -> Iterator[ThreadRunner]:
    with ThreadPoolExecutor(1) as executor:
        made = ThreadRunner(executor, thread.posted.append)
        made.run(work, thread.told.append, key="S", drop=thread.dropped.append)
        assert work.begun.wait(PATIENCE_S)
        yield made
        work.may_end.set()


def test_an_outcome_is_told_on_the_loops_thread(thread: Thread) -> None:
    executor = Held()
    runner = ThreadRunner(executor, thread.posted.append)
    runner.run(lambda: None, thread.told.append, key="S")
    executor.run()
    assert thread.told == []
    thread.run()
    assert thread.told == [None]


def test_a_task_that_is_cancelled_before_it_began_never_begins(thread: Thread) -> None:
    executor, begun = Held(), []
    runner = ThreadRunner(executor, thread.posted.append)
    runner.run(lambda: begun.append(1), thread.told.append, key="S", drop=thread.dropped.append)
    assert runner.cancel("S", 0)
    executor.run()
    thread.run()
    assert (begun, thread.told, thread.dropped) == ([], [], [])


def test_a_task_that_outlasts_the_timeout_of_its_cancellation_goes_on_and_is_told(
    runner: ThreadRunner, thread: Thread, work: Work
) -> None:
    assert not runner.cancel("S", 0.01)
    assert runner.cancel("OTHER", 0.01)
    work.may_end.set()
    runner.executor.shutdown()  # type: ignore[union-attr]
    thread.run()
    assert [str(outcome) for outcome in thread.told] == ["what came of it"]
    assert thread.dropped == []


def test_an_outcome_that_was_not_told_yet_is_dropped_by_a_cancellation(
    runner: ThreadRunner, thread: Thread, work: Work
) -> None:
    work.may_end.set()
    assert runner.cancel("S", PATIENCE_S)
    assert [str(outcome) for outcome in thread.dropped] == ["what came of it"]
    runner.executor.shutdown()  # type: ignore[union-attr]
    thread.run()
    assert thread.told == []


def test_no_task_goes_on_after_close(runner: ThreadRunner, thread: Thread, work: Work) -> None:
    closing = threading.Thread(target=runner.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    work.may_end.set()
    closing.join(PATIENCE_S)
    assert work.is_over
    runner.run(lambda: pytest.fail("it was closed"), thread.told.append, key="S")
    runner.executor.shutdown()  # type: ignore[union-attr]
    thread.run()
    assert thread.told == []


def test_a_task_waits_for_the_future_that_it_comes_after() -> None:
    executor, before = Held(), Future[None]()
    done = ThreadRunner(executor).run(lambda: "result", after=before)
    executor.run()
    assert not done.done()
    before.set_result(None)
    executor.run()
    assert done.result(0) == "result"


def test_without_an_executor_a_task_runs_and_is_told_at_once(thread: Thread) -> None:
    def fail() -> None:
        raise ValueError("of the task")

    done = ThreadRunner(None, thread.posted.append).run(fail, thread.told.append)
    assert isinstance(done.exception(0), ValueError)
    assert [str(outcome) for outcome in thread.told] == ["of the task"]


def test_an_executor_that_was_shut_down_fails_the_task(thread: Thread) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    done = ThreadRunner(executor, thread.posted.append).run(lambda: None, thread.told.append)
    thread.run()
    assert thread.told == [done.exception(0)]
    assert isinstance(done.exception(0), RuntimeError)


def test_tasks_with_threads_of_their_own_run_side_by_side_and_are_waited_for(thread: Thread) -> None:
    executor, both = ThreadPerTask("test-task"), threading.Barrier(2)
    runner = ThreadRunner(executor, thread.posted.append)
    for _ in range(2):
        runner.run(lambda: both.wait(PATIENCE_S) >= 0, thread.told.append)
    executor.shutdown()
    assert "test-task" not in [each.name for each in threading.enumerate()]
    thread.run()
    assert thread.told == [True, True]


def test_a_thread_that_cannot_be_started_fails_its_task_and_is_not_waited_for(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    executor = ThreadPerTask("test-task")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ThreadRunner(executor, thread.posted.append).run(lambda: None, thread.told.append)
    executor.shutdown()
    thread.run()
    assert [str(outcome) for outcome in thread.told] == ["can't start new thread"]
