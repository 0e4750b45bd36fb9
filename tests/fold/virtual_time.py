"""An event loop in which waiting takes no time, so that a simulation does what a day does in a moment."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TypeVar

from strandline.gather import InlineExecutor
from tests.waiting import PATIENCE_S

T = TypeVar("T")
REAL_WAIT_S = PATIENCE_S
THREAD_WAIT_S = 0.01


class _Selector(selectors.DefaultSelector):
    """Tells the loop that its time has come instead of waiting for it."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # nothing is planned: a thread must be at work
            found = super().select(REAL_WAIT_S)
            assert found, "everybody waits for somebody else"
            return found
        passes_s = max(timeout, 0.0)
        found = []
        if passes_s and self.loop.threads:  # meanwhile time takes its time
            passes_s = min(passes_s, THREAD_WAIT_S)
            found = super().select(passes_s)
        self.loop.now_s += passes_s
        return found or super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now_s = 0.0
        self.threads = 0
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        if executor is None:
            self.threads += 1
            future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self.threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
        """Wait for threads however long it takes: the limit of Python 3.12 and later would pass at once here."""
        del timeout
        await super().shutdown_default_executor()


def run_virtually(work: Coroutine[object, object, T]) -> T:
    """Run something to its end, without waiting."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class NoThread(InlineExecutor):
    """A store's thread that is the caller's."""

    def __init__(self, *_: object) -> None:
        super().__init__()
