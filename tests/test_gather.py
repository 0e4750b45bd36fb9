"""Gathering: commits do not overlap, keep the order, settle everybody once, and never leave anybody waiting."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.gather import CommitRequest, Gather, InlineExecutor
from tests.journal.helpers import WAIT_S, LaterExecutor, in_threads


class Numbered(CommitRequest[int]):
    """A request with a number."""

    __slots__ = ("number",)

    def __init__(self, number: int, size: int = 1) -> None:
        super().__init__(size)
        self.number = number


class Store:
    """Commits by remembering; may be told to wait, or to fail."""

    def __init__(self) -> None:
        self.commits: list[list[int]] = []
        self.threads: list[str] = []
        self.running = 0
        self.overlapped = False
        self.go_on = threading.Event()
        self.go_on.set()
        self.began = threading.Event()
        self.fail_with: BaseException | None = None
        self.pause_s = 0.0

    def commit(self, requests: Sequence[Numbered]) -> None:
        self.running += 1
        self.overlapped |= self.running > 1
        self.commits.append([request.number for request in requests])
        self.threads.append(threading.current_thread().name)
        self.began.set()
        assert self.go_on.wait(WAIT_S)
        time.sleep(self.pause_s)
        self.running -= 1
        error, self.fail_with = self.fail_with, None  # taken once: other threads set it meanwhile
        if error is not None:
            raise error
        for request in requests:
            request.settle(request.number)

    @property
    def order(self) -> list[int]:
        return [number for commit in self.commits for number in commit]


def gather_of(
    store: Store,
    executor: ThreadPoolExecutor | InlineExecutor | LaterExecutor,
    *,
    queue: int = 1000,
    batch: int = 1000,
    idle: Callable[[], None] = lambda: None,
) -> Gather[Numbered]:
    return Gather(store.commit, executor, queue_bytes_max=queue, batch_bytes_max=batch, idle=idle)


def hold(store: Store, gather: Gather[Numbered]) -> threading.Thread:
    """Let a commit begin that goes on until `go_on` is set."""
    store.go_on.clear()
    thread = threading.Thread(target=gather.run, args=(Numbered(-1),), daemon=True)
    thread.start()
    assert store.began.wait(WAIT_S)
    return thread


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def test_a_lone_caller_commits_in_its_own_thread_and_starts_none() -> None:
    store = Store()
    with ThreadPoolExecutor(1) as pool:
        gather = gather_of(store, pool)
        for number in range(5):
            request = Numbered(number)
            gather.run(request)
            assert request.wait() == number
        assert store.threads == [threading.current_thread().name] * 5
        assert not pool._threads  # noqa: SLF001 - the only place that tells


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 30))
def test_order_is_kept_and_batches_stay_within_their_limit(sizes: list[int], batch: int) -> None:
    store = Store()
    executor = LaterExecutor()
    gather = gather_of(store, executor, queue=10**6, batch=batch)
    requests = [Numbered(number, size) for number, size in enumerate(sizes)]
    for request in requests:
        gather.soon(request)
    executor.run_all()
    assert store.order == list(range(len(sizes)))
    assert all(request.settled for request in requests)
    for commit in store.commits:
        assert len(commit) == 1 or sum(sizes[number] for number in commit) <= batch
    for earlier, later in zip(store.commits, store.commits[1:], strict=False):
        assert sum(sizes[number] for number in earlier) + sizes[later[0]] > batch  # nobody waited without need


def test_many_threads_never_overlap_and_are_all_settled_in_their_own_order() -> None:
    store = Store()
    with ThreadPoolExecutor(2) as pool:
        gather = gather_of(store, pool, queue=5, batch=3)

        def produce(first: int) -> list[int]:
            results = []
            futures = []
            for number in range(first, first + 200):
                request = Numbered(number)
                if number % 3 == 0:
                    futures.append(request.future())
                    gather.soon(request)
                else:
                    gather.run(request)
                    results.append(request.wait())
            return results + [future.result(WAIT_S) for future in futures]

        outcomes = in_threads([lambda n=n: produce(1000 * n) for n in range(8)])  # type: ignore[misc]
        gather.drain()
    assert not store.overlapped
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, list)
        mine = [n for n in store.order if n // 1000 == number]
        assert mine == list(range(1000 * number, 1000 * number + 200))
        assert sorted(outcome) == mine


def test_what_comes_during_a_commit_is_committed_together_afterwards() -> None:
    store = Store()
    with ThreadPoolExecutor(1) as pool:
        gather = gather_of(store, pool)
        thread = hold(store, gather)
        futures = []
        for number in range(10):
            request = Numbered(number)
            futures.append(request.future())
            gather.soon(request)
        store.go_on.set()
        assert [future.result(WAIT_S) for future in futures] == list(range(10))
        thread.join(WAIT_S)
    assert store.commits == [[-1], list(range(10))]


def test_a_full_queue_blocks_the_caller_until_there_is_room() -> None:
    store = Store()
    with ThreadPoolExecutor(1) as pool:
        gather = gather_of(store, pool, queue=3)
        hold(store, gather)
        for number in range(3):
            gather.soon(Numbered(number))
        assert not gather.try_soon(Numbered(99))
        blocked = Numbered(3)
        thread = threading.Thread(target=gather.soon, args=(blocked,), daemon=True)
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        store.go_on.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert blocked.wait() == 3
        gather.drain()
    assert store.order == [-1, 0, 1, 2, 3]


def test_a_request_larger_than_the_queue_is_let_in_when_nothing_waits() -> None:
    store = Store()
    gather = gather_of(store, InlineExecutor(), queue=3, batch=3)
    request = Numbered(1, 100)
    assert gather.try_soon(request)
    assert request.wait() == 1


def test_an_error_of_the_commit_reaches_everybody_in_it_and_nobody_after() -> None:
    store = Store()
    executor = LaterExecutor()
    gather = gather_of(store, executor)
    futures = []
    for number in range(3):
        request = Numbered(number)
        futures.append(request.future())
        gather.soon(request)
    store.fail_with = ValueError("no")
    executor.run_all()
    assert [type(future.exception(0)) for future in futures] == [ValueError] * 3
    request = Numbered(3)
    gather.run(request)
    assert request.wait() == 3


def test_an_interrupt_in_the_callers_own_commit_is_raised_and_the_rest_is_still_committed() -> None:
    store = Store()
    with ThreadPoolExecutor(1) as pool:
        gather = gather_of(store, pool)
        store.fail_with = KeyboardInterrupt()
        raised: list[BaseException] = []

        def interrupted() -> None:
            try:
                gather.run(Numbered(-1))
            except KeyboardInterrupt as error:
                raised.append(error)

        store.go_on.clear()
        thread = threading.Thread(target=interrupted, daemon=True)
        thread.start()
        assert store.began.wait(WAIT_S)
        waiting = Numbered(1)
        future = waiting.future()
        gather.soon(waiting)
        store.go_on.set()
        assert future.result(WAIT_S) == 1
        thread.join(WAIT_S)
        assert len(raised) == 1
        gather.drain()


def test_an_interrupt_in_the_executor_does_not_leave_anybody_waiting() -> None:
    store = Store()
    with ThreadPoolExecutor(1) as pool:
        gather = gather_of(store, pool, batch=1)
        store.go_on.clear()
        store.fail_with = SystemExit()
        futures = []
        for number in range(4):
            request = Numbered(number)
            futures.append(request.future())
            gather.soon(request)
        store.go_on.set()
        assert isinstance(futures[0].exception(WAIT_S), SystemExit)
        assert [future.result(WAIT_S) for future in futures[1:]] == [1, 2, 3]
        gather.drain()


def test_an_interrupt_never_makes_two_threads_commit_at_once() -> None:
    for _ in range(50):
        store = Store()
        with ThreadPoolExecutor(2) as pool:
            gather = gather_of(store, pool, batch=1)

            def work(store: Store = store, gather: Gather[Numbered] = gather) -> None:
                for number in range(20):
                    request = Numbered(number)
                    store.fail_with = KeyboardInterrupt() if number % 5 == 0 else None
                    try:
                        gather.run(request)
                        request.wait()
                    except KeyboardInterrupt:
                        pass

            assert in_threads([work] * 3) == [None] * 3
            gather.drain()
        assert not store.overlapped


def test_an_executor_that_was_shut_down_leaves_nobody_waiting() -> None:
    store = Store()
    pool = ThreadPoolExecutor(1)
    gather = gather_of(store, pool)
    pool.shutdown()
    request = Numbered(1)
    future = request.future()
    gather.soon(request)
    assert future.result(0) == 1
    other = Numbered(2)
    assert gather.try_soon(other)
    assert other.wait() == 2
    gather.drain()


def test_an_executor_that_cannot_start_a_thread_runs_a_commit_once() -> None:
    class Strained(LaterExecutor):
        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN002, ANN003, ANN202
            super().submit(fn, *args, **kwargs)
            raise RuntimeError("can't start new thread")

    store = Store()
    executor = Strained()
    gather = gather_of(store, executor)
    gather.soon(Numbered(1))
    assert store.commits == [[1]]
    executor.run_all()
    assert store.commits == [[1]]


def test_a_busy_store_does_not_keep_another_from_the_executor_they_share() -> None:
    busy, quiet = Store(), Store()
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        busy.pause_s = 0.001  # so that there is always more
        first = gather_of(busy, pool, queue=50, batch=1)
        second = gather_of(quiet, pool)

        def hammer() -> None:
            while not stop.is_set():
                first.soon(Numbered(0))

        threads = [threading.Thread(target=hammer, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(busy.commits) > 20)
        request = Numbered(1)
        future = request.future()
        second.soon(request)
        try:
            assert future.result(WAIT_S) == 1
        finally:
            stop.set()
            for thread in threads:
                thread.join(WAIT_S)
            first.drain()


def test_a_caller_that_leads_keeps_others_waiting_and_hands_over_what_gathered() -> None:
    store = Store()
    later = LaterExecutor()
    idle: list[int] = []
    gather = Gather(
        store.commit, later, queue_bytes_max=100, batch_bytes_max=100, idle=lambda: idle.append(len(store.commits))
    )
    assert gather.lead()
    assert not gather.lead()
    request = Numbered(1)
    gather.run(request)
    assert not store.commits
    gather.follow()
    assert not idle
    assert not gather.lead()  # what gathered is the executor's to commit
    later.run_all()
    assert (store.commits, idle, request.settled) == ([[1]], [1], True)
    assert gather.lead()
    gather.follow()
    assert idle == [1, 1]
    gather.drain()


def test_idle_is_called_when_nothing_more_is_queued() -> None:
    store = Store()
    executor = LaterExecutor()
    seen: list[int] = []
    gather = gather_of(store, executor, batch=1, idle=lambda: seen.append(len(store.commits)))
    for number in range(3):
        gather.soon(Numbered(number))
    executor.run_all()
    assert seen == [3]
    gather.run(Numbered(4))
    assert seen == [3, 4]


def test_drain_waits_for_what_is_queued() -> None:
    store = Store()
    with ThreadPoolExecutor(1) as pool:
        gather = gather_of(store, pool)
        hold(store, gather)
        gather.soon(Numbered(1))
        drained = threading.Thread(target=gather.drain, daemon=True)
        drained.start()
        drained.join(0.05)
        assert drained.is_alive()
        store.go_on.set()
        drained.join(WAIT_S)
        assert not drained.is_alive()
    assert store.order == [-1, 1]


def test_a_future_cannot_be_cancelled_once_it_is_queued() -> None:
    executor = LaterExecutor()
    gather = gather_of(Store(), executor)
    request = Numbered(7)
    future = request.future()
    gather.soon(request)
    assert not future.cancel()
    executor.run_all()
    assert future.result(0) == 7


def test_the_inline_executor_runs_at_once_and_raises_where_it_is_called() -> None:
    future: Future[int] = InlineExecutor().submit(lambda: 3)
    assert future.result(0) == 3
    with pytest.raises(ZeroDivisionError):
        InlineExecutor().submit(lambda: 1 // 0)


def test_a_ticket_stays_settled_while_somebody_reads_its_outcome() -> None:
    request: CommitRequest[int] = CommitRequest(1)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            request.wait()

    request.settle(1)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    seen = [request.settled for _ in range(20_000)]
    stop.set()
    for reader in readers:
        reader.join()
    assert all(seen)
