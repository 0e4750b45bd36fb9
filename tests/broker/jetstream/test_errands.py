"""What is done for streams beside the server's thread: once, told there, and over when it is called off."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from strandline.broker.jetstream.errands import Errands, Outcome
from tests.broker.jetstream.fakes import Held
from tests.waiting import PATIENCE_S


class Thread:
    """The server's thread: what is posted there, and what was told."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.told: list[Outcome] = []
        self.dropped: list[Outcome] = []

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
def errands(thread: Thread, work: Work) -> Iterator[Errands]:
    with ThreadPoolExecutor(1) as executor:
        made = Errands(thread.posted.append, executor)
        made.run("S", work, thread.told.append, thread.dropped.append)
        assert work.begun.wait(PATIENCE_S)
        yield made
        work.may_end.set()


def test_what_came_of_it_is_told_on_the_servers_thread(thread: Thread) -> None:
    executor = Held()
    errands = Errands(thread.posted.append, executor)
    errands.run("S", lambda: None, thread.told.append)
    executor.run()
    assert thread.told == []
    thread.run()
    assert thread.told == [None]


def test_what_has_not_begun_when_it_is_called_off_never_does(thread: Thread) -> None:
    executor, begun = Held(), []
    errands = Errands(thread.posted.append, executor)
    errands.run("S", lambda: begun.append(1), thread.told.append, thread.dropped.append)
    assert errands.call_off("S", 0)
    executor.run()
    thread.run()
    assert (begun, thread.told, thread.dropped) == ([], [], [])


def test_what_takes_longer_than_one_has_patience_for_goes_on_and_is_told(
    errands: Errands, thread: Thread, work: Work
) -> None:
    assert not errands.call_off("S", 0.01)
    assert errands.call_off("OTHER", 0.01)
    work.may_end.set()
    errands._executor.shutdown()  # type: ignore[union-attr] # noqa: SLF001
    thread.run()
    assert [str(outcome) for outcome in thread.told] == ["what came of it"]
    assert thread.dropped == []


def test_what_is_over_and_was_not_told_yet_is_dropped_when_it_is_called_off(
    errands: Errands, thread: Thread, work: Work
) -> None:
    work.may_end.set()
    assert errands.call_off("S", PATIENCE_S)
    assert [str(outcome) for outcome in thread.dropped] == ["what came of it"]
    errands._executor.shutdown()  # type: ignore[union-attr] # noqa: SLF001
    thread.run()
    assert thread.told == []


def test_nothing_goes_on_after_the_end(errands: Errands, thread: Thread, work: Work) -> None:
    closing = threading.Thread(target=errands.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    work.may_end.set()
    closing.join(PATIENCE_S)
    assert work.is_over
    errands.run("S", lambda: pytest.fail("it was closed"), thread.told.append)
    errands._executor.shutdown()  # type: ignore[union-attr] # noqa: SLF001
    thread.run()
    assert thread.told == []
