"""A watched fold in a thread of its own: connects, watches, and begins again when the connection is lost.

Invariants: the thread has its own event loop, so it does not matter whether the caller has one. What can pass (a server
that is away) is tried again for ever once the first watch has begun; what cannot (credentials, a refused repair, a
store that keeps failing) ends the thread, and is kept for the next call. A first failure is told at once.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from strandline.errors import Closed, Conflict, Locked, StorageRefused, StrandlineError, Unavailable
from strandline.events import Event, Events
from strandline.fold.errors import StoreKeptFailing
from strandline.fold.events import WatchBegan
from strandline.fold.progress import FoldProgress
from strandline.fold.repair.policy import RepairPolicy
from strandline.fold.scopes import Scope
from strandline.fold.shared_store import SharedStore
from strandline.fold.watch import Applied, Batching, Exports, Hooks, watch_applied
from strandline.kv import KvStore, UpdateBatch

Connect = Callable[[], AbstractAsyncContextManager[KvStore]]
"""Connects to a bucket in the running event loop, for as long as the block runs."""

Companion = Callable[[Exports], Coroutine[Any, Any, None]]
"""Runs beside each watch, with its exports, until the watch ends; what it raises ends the fold."""

PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0


class BackgroundWatch:
    """The thread that keeps one fold up to date."""

    def __init__(
        self,
        connect: Connect,
        scope: Scope,
        lender: SharedStore,
        policy: RepairPolicy,
        batching: Batching,
        on_change: Callable[[UpdateBatch], object] | None,
        events: Events,
        companion: Companion | None = None,
    ) -> None:
        self.progress = FoldProgress()
        self.failure: BaseException | None = None
        self._connect = connect
        self._scope = scope
        self._lender = lender
        self._policy = policy
        self._batching = batching
        self._on_change = on_change
        self._events = events
        self._companion = companion
        self._unstored: list[UpdateBatch] = []
        self._change_error: BaseException | None = None
        self._is_left_alone = False
        self._began = threading.Event()
        self._start_failure: BaseException | None = None
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="strandline-follow", daemon=True)

    def start(self) -> None:
        """Begin, and return when the first watch has begun; raises what stands in its way."""
        self._thread.start()
        self._began.wait()
        if self._start_failure is not None:
            self._thread.join()
            raise self._start_failure

    def stop(self, *, wait: bool = True) -> None:
        """Store what was received, and end; then close the store; twice is harmless.

        Called by its own thread, from `on_change`, it returns at once, and the thread does all that by itself.
        """
        if self._loop is not None and self._stop is not None and not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # it has ended in this moment
                self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is self._thread:
            self._is_left_alone = True
            return
        if wait:
            self._thread.join()
        self._lender.close()

    @property
    def is_over(self) -> bool:
        """Tell whether nothing will change any more."""
        return self._ended.is_set()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as failure:  # noqa: BLE001 - `start` raises it, or the next call
            self.failure = failure
            self._start_failure = None if self._began.is_set() else failure
            self.progress.troubled(str(failure))
        finally:
            if self._is_left_alone:
                self._lender.close()
            self._ended.set()
            self._began.set()
            self.progress.troubled(None if self.failure is None else str(self.failure))

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        pause_s = PAUSE_S_MIN
        while not self._stop.is_set():
            watches = self.progress.status().watches
            trouble = await self._watch(self._stop)
            if self._stop.is_set():
                return
            if self.progress.status().watches > watches:
                pause_s = PAUSE_S_MIN
            self.progress.troubled(trouble)
            await _wait(self._stop, pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _watch(self, stop: asyncio.Event) -> str:
        """Connect and watch until stopped; return what ended it if it may pass."""
        hooks = Hooks(on_applied=self._applied, events=Events(self.progress, self._note_began, self._events.emit))
        exports = Exports()
        try:
            async with self._connect() as bucket, self._beside(exports, stop):
                await watch_applied(
                    bucket,
                    self._scope,
                    self._lender.open,
                    policy=self._policy,
                    batching=self._batching,
                    hooks=hooks,
                    exports=exports,
                    stop=stop,
                )
        except StrandlineError as error:
            if error is self._change_error or not (self._began.is_set() and _may_pass(error)):
                raise
            return str(error)
        return "the connection was closed"

    @contextlib.asynccontextmanager
    async def _beside(self, exports: Exports, stop: asyncio.Event) -> AsyncIterator[None]:
        """Run the companion during the block, and end it with the block; what it raises ends the watch."""
        if self._companion is None:
            yield
            return
        task = asyncio.create_task(self._companion(exports))
        task.add_done_callback(lambda ended: None if ended.cancelled() else stop.set())
        try:
            yield
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Exception):
                self._change_error = ended
                raise ended

    def _applied(self, applied: Applied) -> None:
        if self._on_change is None:
            return
        self._unstored.append(applied.updates)
        if applied.durable:
            told, self._unstored = self._unstored, []
            for updates in filter(len, told):
                self._change(self._on_change, updates)

    def _change(self, on_change: Callable[[UpdateBatch], object], updates: UpdateBatch) -> None:
        try:
            on_change(updates)
        except BaseException as error:
            self._change_error = error  # it ends the fold, though it may look like the source's
            raise

    def _note_began(self, event: Event) -> None:
        if isinstance(event, WatchBegan):
            self._unstored.clear()
            self._began.set()


def _may_pass(error: StrandlineError) -> bool:
    """Tell whether trying again may help: the source is away; a store that failed has been tried often enough."""
    if isinstance(error, StoreKeptFailing | Locked | StorageRefused):
        return False
    return isinstance(error, Closed) or (isinstance(error, Unavailable | Conflict) and error.retryable)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until stopped."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
