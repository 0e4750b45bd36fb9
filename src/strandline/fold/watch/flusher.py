"""One batch at a time through the hooks into the store; a batch that failed stays first in the queue.

Invariants: a batch is parsed and applied once, whether or not the store accepts it. Unstored updates are stored
before, or together with, newer ones (`flushes.requeue`). `on_applied` is called after the store's answer, success or
failure, and once more, without updates, after a retry succeeded.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from time import perf_counter

from strandline.fold.cursor import FoldCursor
from strandline.fold.events import BatchStored
from strandline.fold.watch.hooks import Applied, Hooks
from strandline.fold.watch.pending_updates import PendingUpdates
from strandline.fold.watch.store_worker import StoreWorker
from strandline.kv import UpdateBatch

RETRY_S_MIN = 0.010
RETRY_S_MAX = 1.0


class Flusher:
    """The way from received updates to the store."""

    def __init__(self, keeper: StoreWorker, hooks: Hooks) -> None:
        self.unstored = PendingUpdates()
        self.hook_error: BaseException | None = None
        self._is_told_otherwise = False
        self._keeper = keeper
        self._hooks = hooks

    @property
    def retry_s(self) -> float:
        """Return the pause before the next attempt of the store."""
        return min(RETRY_S_MIN * 2.0**self._keeper.failures, RETRY_S_MAX)

    async def flush(self, updates: UpdateBatch, cursor: FoldCursor) -> bool:
        """Apply updates, store them after the queued ones, and return whether the store has them."""
        await self._apply(updates)
        fresh = PendingUpdates()
        fresh.add(updates)
        self.unstored = self.unstored.before(fresh)
        durable = await self._store(cursor)
        self._tell(updates, cursor, durable=durable)
        return durable

    async def flush_fully(self, updates: UpdateBatch, cursor: FoldCursor) -> None:
        """The same, until the store has them; `StoreKeptFailing` if it never does."""
        if not await self.flush(updates, cursor):
            await self.store_fully(cursor)

    async def store(self, cursor: FoldCursor) -> bool:
        """Store the queued updates, if any, with a cursor; return whether the store has them."""
        durable = await self._store(cursor)
        if durable and self._is_told_otherwise:
            self._tell(UpdateBatch.concat(()), cursor, durable=True)
        return durable

    async def _store(self, cursor: FoldCursor) -> bool:
        waiting = self.unstored
        started = perf_counter()
        if not await self._keeper.keep(UpdateBatch.concat(waiting.batches), cursor):
            return False
        self.unstored = PendingUpdates()
        if waiting:
            seconds = perf_counter() - started
            self._hooks.events.emit(BatchStored(waiting.updates, waiting.bytes, cursor.revision, seconds))
        return True

    async def store_fully(self, cursor: FoldCursor) -> None:
        """The same, until the store has it."""
        while True:
            if await self.store(cursor):
                return
            await asyncio.sleep(self.retry_s)

    def drop(self) -> None:
        """Drop the queue: the store moved, and the log delivers the updates again."""
        self.unstored = PendingUpdates()
        self._is_told_otherwise = False

    def _tell(self, updates: UpdateBatch, cursor: FoldCursor, *, durable: bool) -> None:
        self._is_told_otherwise = not durable
        if self._hooks.on_applied is not None:
            with self._noting_errors():
                self._hooks.on_applied(Applied(updates, cursor, durable))

    async def _apply(self, updates: UpdateBatch) -> None:
        if not len(updates):
            return
        with self._noting_errors():
            parsed = updates if self._hooks.parse is None else self._hooks.parse(updates)
            if self._hooks.apply is not None:
                waits = self._hooks.apply(parsed)
                if inspect.isawaitable(waits):
                    await waits

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """Record a hook's error, which is never an error of the source or the store."""
        try:
            yield
        except BaseException as error:
            self.hook_error = error
            raise
