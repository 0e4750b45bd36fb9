"""One batch at a time through the hooks into the store; what could not be stored stays first in line.

Invariants: a batch is parsed and applied once, whatever becomes of storing it. What is not stored is stored before, or
together with, anything newer (`flushes.requeue`). `on_applied` is told after the store, whether that took it or not,
and once more, without updates, when it has taken what it had not.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from time import perf_counter

from strandline.fold.events import BatchStored
from strandline.fold.marks import Mark
from strandline.fold.watching.batching import Gathered
from strandline.fold.watching.keeper import StoreKeeper
from strandline.fold.watching.settings import Applied, Hooks
from strandline.kv import UpdateBatch

RETRY_S_MIN = 0.010
RETRY_S_MAX = 1.0


class Flusher:
    """The way from received updates to the store."""

    def __init__(self, keeper: StoreKeeper, hooks: Hooks) -> None:
        self.unstored = Gathered()
        self.hook_error: BaseException | None = None
        self._is_told_otherwise = False
        self._keeper = keeper
        self._hooks = hooks

    @property
    def retry_s(self) -> float:
        """Return how long to wait before the store is tried again."""
        return min(RETRY_S_MIN * 2.0**self._keeper.failures, RETRY_S_MAX)

    async def flush(self, updates: UpdateBatch, mark: Mark) -> bool:
        """Apply updates, store them behind those that wait, and return whether the store has them."""
        await self._apply(updates)
        fresh = Gathered()
        fresh.add(updates)
        self.unstored = self.unstored.before(fresh)
        durable = await self._store(mark)
        self._tell(updates, mark, durable=durable)
        return durable

    async def flush_fully(self, updates: UpdateBatch, mark: Mark) -> None:
        """The same, until the store has them; `StoreKeptFailing` if it never does."""
        if not await self.flush(updates, mark):
            await self.store_fully(mark)

    async def store(self, mark: Mark) -> bool:
        """Store what waits, or nothing, with a mark; return whether the store has it."""
        durable = await self._store(mark)
        if durable and self._is_told_otherwise:
            self._tell(UpdateBatch.concat(()), mark, durable=True)
        return durable

    async def _store(self, mark: Mark) -> bool:
        waiting = self.unstored
        started = perf_counter()
        if not await self._keeper.keep(UpdateBatch.concat(waiting.batches), mark):
            return False
        self.unstored = Gathered()
        if waiting:
            seconds = perf_counter() - started
            self._hooks.events.emit(BatchStored(waiting.updates, waiting.bytes, mark.revision, seconds))
        return True

    async def store_fully(self, mark: Mark) -> None:
        """The same, until the store has it."""
        while True:
            if await self.store(mark):
                return
            await asyncio.sleep(self.retry_s)

    def drop(self) -> None:
        """Forget what waits: the store moved, and the log will tell it again."""
        self.unstored = Gathered()
        self._is_told_otherwise = False

    def _tell(self, updates: UpdateBatch, mark: Mark, *, durable: bool) -> None:
        self._is_told_otherwise = not durable
        if self._hooks.on_applied is not None:
            with self._noting_errors():
                self._hooks.on_applied(Applied(updates, mark, durable))

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
        """Remember what a hook raises, for it is never the source's or the store's."""
        try:
            yield
        except BaseException as error:
            self.hook_error = error
            raise
