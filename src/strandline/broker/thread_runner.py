"""Work beside the loop: tasks that take long, or wait for a disk that may hang, run on other threads.

Invariants: a task begins once, or never: a task that was cancelled before it began does not begin. `then` is called on
the loop's thread, and never for a task that was cancelled. After `close` no task is under way, so nothing changes in a
folder that another server may have taken since.

Which threads run the tasks is the choice of the executor:

- the server's pool, for tasks that only write and read (compaction, index files, probes of a disk);
- `ThreadPerTask`, for tasks that open or close a stream: those wait for the pool, and would wait forever if they held
  the last of its threads;
- none, for simulations: the task, and then `then`, run at once in the thread of the caller.
"""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
Post = Callable[[Callable[[], None]], object]
"""Calls a function soon on the loop's thread; any thread may use it."""


class ThreadRunner:
    """Runs tasks on an executor, and brings their outcomes to the loop's thread by `post`."""

    def __init__(self, executor: Executor | None, post: Post | None = None) -> None:
        self.executor = executor
        self._post = post
        self._tasks: dict[Hashable, _Task[Any]] = {}
        self._is_closed = False

    def run(
        self,
        work: Callable[[], T],
        then: Callable[[T | Exception], None] | None = None,
        *,
        key: Hashable = None,
        drop: Callable[[T | Exception], None] | None = None,
        after: Future[Any] | None = None,
    ) -> Future[T]:
        """Run a task; `then` receives its result or its error on the loop's thread.

        `key` is the name by which `cancel` finds the task; there is one task at a time for each key. `drop` receives
        the outcome of a task that was cancelled after it began. The task begins when `after` is settled; without an
        executor it begins at once, and has to wait by itself.
        """
        task = _Task(work, drop)
        if self._is_closed:
            task.future.cancel()
            return task.future
        post = self._post
        if then is None or post is None:
            self._start(task, lambda: None, after)
            return task.future
        key = task if key is None else key
        self._tasks[key] = task

        def tell() -> None:
            if self._tasks.get(key) is task:
                del self._tasks[key]
                then(task.outcome)

        self._start(task, tell if self.executor is None else lambda: post(tell), after)
        return task.future

    def _start(self, task: "_Task[Any]", ended: Callable[[], object], after: Future[Any] | None) -> None:
        executor = self.executor

        def run() -> None:
            if task.run():
                ended()

        def submit(executor: Executor) -> None:
            try:
                executor.submit(run)
            except RuntimeError as error:  # the executor was shut down, or could not start a thread
                if task.fail(error):
                    ended()

        if executor is None:
            run()
        elif after is None:
            submit(executor)
        else:
            after.add_done_callback(lambda _: submit(executor))

    def cancel(self, key: Hashable, timeout_s: float | None = None) -> bool:
        """Prevent a task from beginning, or wait until it is over; return False if that takes longer than a timeout."""
        task = self._tasks.get(key)
        if task is not None:
            if not task.cancel(timeout_s):
                return False
            del self._tasks[key]
        return True

    def close(self) -> None:
        """Cancel every task, and return when the last one that began is over."""
        self._is_closed = True
        for key in list(self._tasks):
            self.cancel(key)


class _Task(Generic[T]):
    """One task; its future is settled when it is over, on the thread that ran it."""

    def __init__(self, work: Callable[[], T], drop: Callable[[T | Exception], None] | None) -> None:
        self._work = work
        self._drop = drop
        self._claim = threading.Lock()
        """Taken once: by the thread that runs the task, or to prevent that.

        An executor may raise because it cannot start a thread, and yet run what it was given.
        """
        self.future: Future[T] = Future()

    @property
    def outcome(self) -> T | Exception:
        """The result or the error of a task that is over."""
        error = self.future.exception()
        if isinstance(error, Exception):
            return error
        return self.future.result()

    def run(self) -> bool:
        """Run the task, unless it was cancelled; return whether it ran."""
        if not self._claim.acquire(blocking=False):
            return False
        try:
            result = self._work()
        except BaseException as error:
            self.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.future.set_result(result)
        return True

    def fail(self, error: Exception) -> bool:
        """End a task that cannot begin; return False if it began nevertheless."""
        if not self._claim.acquire(blocking=False):
            return False
        self.future.set_exception(error)
        return True

    def cancel(self, timeout_s: float | None) -> bool:
        """Prevent the task from beginning, or wait until it is over; return whether it is."""
        if self._claim.acquire(blocking=False):
            self.future.cancel()
            return True
        try:
            self.future.exception(timeout_s)
        except TimeoutError:
            return False
        if self._drop is not None:
            self._drop(self.outcome)
        return True


class ThreadPerTask(Executor):
    """Starts a thread of its own for each task; `shutdown` waits for all of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on a new thread."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries it
                future.set_exception(error)

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        self._threads.append(thread)  # after the start, which may fail: a thread that never ran cannot be joined
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is
        """Wait for every task; each has begun, so none can be cancelled."""
        del cancel_futures
        if wait:
            for thread in self._threads:
                thread.join()
