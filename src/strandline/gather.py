"""Group commit, self-clocked: the caller that finds the committer idle commits for all that wait.

Requests queue in order. While one commit runs, the next batch gathers; there is no timer, so a lone caller pays no
latency and a crowd shares one fsync. A blocking caller that finds the committer idle runs the commit in its own thread
(no hand-over, and no thread at all for an idle store); what gathered meanwhile is handed to the executor.

Invariants: commits never overlap; requests are committed in the order in which they were queued; every request is
settled exactly once; the queue is bounded by bytes, and a full queue blocks the caller (a single request larger than
the bound is let in when the queue is empty); a busy store does not keep others from the executor that they share.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Generic, ParamSpec, TypeVar

R = TypeVar("R")
T = TypeVar("T", bound="CommitRequest")  # type: ignore[type-arg]
P = ParamSpec("P")

STEPS_MAX = 16
"""How many commits one store makes before others that share the executor have their turn."""


class CommitRequest(Generic[R]):
    """One request on its way through a commit; settled with a result or an error, once.

    A caller that blocks waits for its lock, which costs a fifth of a future; `future` is the promise for all others.
    """

    __slots__ = ("_done", "_error", "_future", "_result", "settled", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.settled = False
        """Whether the outcome is known; a flag of its own, as a waiting thread holds the lock for a moment."""
        self._result: R | None = None
        self._error: BaseException | None = None
        self._future: Future[R] | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def future(self) -> "Future[R]":
        """Return a future that settles with this request; ask for it before the request is queued."""
        self._future = Future()
        self._future.set_running_or_notify_cancel()
        return self._future

    def settle(self, result: R) -> None:
        """Give the result to the waiting caller."""
        self._result = result
        self.settled = True
        self._done.release()
        if self._future is not None:
            self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Give the error to the waiting caller."""
        self._error = error
        self.settled = True
        self._done.release()
        if self._future is not None:
            self._future.set_exception(error)

    def wait(self) -> R:
        """Return the result, or raise the error, once the request is settled."""
        self._done.acquire()
        self._done.release()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Gather(Generic[T]):
    """The queue in front of a commit function, which must settle every request it is given.

    `idle` is called, by the committing thread, whenever a commit ends and nothing else is queued. It must not raise.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[T]], None],
        executor: Executor,
        *,
        queue_bytes_max: int,
        batch_bytes_max: int,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._commit = commit
        self._idle = idle
        self._executor = executor
        self._queue_bytes_max = queue_bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._pending: deque[T] = deque()
        self._pending_bytes = 0
        self._committing = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0

    def lead(self) -> bool:
        """Return whether nothing is queued or committed, so that the caller commits alone now; then `follow` is due.

        A lone caller needs no request, and does not wait.
        """
        with self._lock:
            if self._committing:
                return False
            self._committing = True
            return True

    def follow(self) -> None:
        """End what `lead` began, whether or not it failed: let others commit what gathered meanwhile."""
        try:
            if not self._pending:
                self._idle()
        finally:
            if self._release():
                self._hand_over()

    def run(self, request: T) -> None:
        """Queue a request, and commit in this thread if no other does; `request.wait()` has the outcome."""
        if self._enqueue(request):
            self._commit_once()

    def soon(self, request: T) -> None:
        """Queue a request and return; the executor commits it."""
        if self._enqueue(request):
            self._hand_over()

    def try_soon(self, request: T) -> bool:
        """Do as `soon` and return True, or return False at once where that would block."""
        with self._lock:
            if not self._fits(request.size):
                return False
            lead = self._append(request)
        if lead:
            self._hand_over()
        return True

    def drain(self) -> None:
        """Return when everything queued so far, and since, has been settled."""
        with self._lock:
            while self._committing:
                self._wait()

    def _wait(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    def _wake(self) -> None:
        if self._waiting:
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._pending or self._pending_bytes + size <= self._queue_bytes_max

    def _enqueue(self, request: T) -> bool:
        """Queue it; return whether the caller must see to the commit."""
        with self._lock:
            while not self._fits(request.size):
                self._wait()
            return self._append(request)

    def _append(self, request: T) -> bool:
        self._pending.append(request)
        self._pending_bytes += request.size
        lead = not self._committing
        self._committing = True
        return lead

    def _take(self) -> list[T]:
        with self._lock:
            batch = [self._pending.popleft()]
            size = batch[0].size
            while self._pending and size + self._pending[0].size <= self._batch_bytes_max:
                size += self._pending[0].size
                batch.append(self._pending.popleft())
            self._pending_bytes -= size
            self._wake()
            return batch

    def _step(self) -> bool:
        """Commit one batch; return whether more gathered meanwhile, which the caller must then see to."""
        batch = self._take()
        try:
            self._commit(batch)
            if not self._pending:
                self._idle()
        except BaseException as error:
            for request in batch:
                if not request.settled:
                    request.fail(error)
            if not isinstance(error, Exception):
                if self._release():
                    self._hand_over()
                raise
        return self._release()

    def _release(self) -> bool:
        """Let others commit, unless more gathered; return whether it did."""
        with self._lock:
            more = self._committing = bool(self._pending)
            if not more:
                self._wake()
            return more

    def _commit_once(self) -> None:
        if self._step():
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the executor commit what is queued; where it takes no more work, commit here."""
        turn = threading.Lock()  # taken once: an executor may fail to start a thread and yet run what it was given
        try:
            self._executor.submit(self._commit_some, turn)
        except RuntimeError:
            if turn.acquire(blocking=False):
                while self._step():
                    pass

    def _commit_some(self, turn: threading.Lock) -> None:
        """Commit for a while, then queue up again behind whatever else waits for the executor's threads."""
        if not turn.acquire(blocking=False):
            return
        for _ in range(STEPS_MAX):
            if not self._step():
                return
        self._hand_over()


class InlineExecutor(Executor):
    """Runs what it is given at once, in the caller's thread: simulations need no threads."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Call it now; the future is already settled, and what it raises is raised here."""
        future: Future[R] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
