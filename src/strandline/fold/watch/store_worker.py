"""The worker of a fold's store: all changes in one thread; a store that failed is reopened before the next change.

Invariants: `cursor` is what the store holds, as it said itself. A batch counts as stored if the store returned from it,
or if the store, opened again, has its cursor. After a failure `flushes.after_reopening` decides, and nothing else does.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from strandline.errors import Closed, StrandlineError, Unavailable, UnknownOutcome
from strandline.events import Events
from strandline.fold.batches import FoldBatch
from strandline.fold.cursor import FoldCursor, format_fold_cursor, parse_fold_cursor
from strandline.fold.errors import StoreKeptFailing
from strandline.fold.events import StoreFailed, StoreReopened
from strandline.fold.store import SnapshotStore
from strandline.kv import NO_CURSOR, UpdateBatch, WatchCursor
from strandline.protocol import flushes
from strandline.protocol.flushes import Reopened

T = TypeVar("T")
TRANSIENT = (Unavailable, UnknownOutcome, OSError)
"""Transient errors: the disk is full, the device busy, the answer lost. Any other error ends the watch at once."""


class StoreMoved(Exception):
    """The reopened store has an unexpected cursor; the watch starts again there."""


class _Attempt(NamedTuple):
    """A batch of unknown outcome: the cursor after it, and its number of updates."""

    cursor: FoldCursor
    updates: int


class StoreWorker:
    """A store, the thread that changes it, and its number of consecutive failures."""

    def __init__(self, open_store: Callable[[], SnapshotStore], events: Events) -> None:
        self.cursor = FoldCursor()
        self.has_data = False
        self.failures = 0
        self._open_store = open_store
        self._events = events
        self._store: SnapshotStore | None = None
        self._attempt: _Attempt | None = None
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, "strandline-fold")
        self._reader = ThreadPoolExecutor(1, "strandline-fold-scan")

    @property
    def store(self) -> SnapshotStore:
        """Return the store; only while it is open."""
        if self._store is None:
            raise StoreKeptFailing(self.failures, "it could not be opened again")
        return self._store

    async def refresh(self) -> None:
        """Read the store's cursor, opening it if needed; this settles a pending attempt."""
        if self._store is None:
            self._store = await self.run(self._open_store)
        held = await self.run(self._store.load)
        self.cursor = parse_fold_cursor(held.cursor) if held else FoldCursor()
        self.has_data = bool(held and held.has_data)
        self._attempt = None

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a function in the store's thread, after its queue."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def scan(self, function: Callable[[SnapshotStore], T]) -> T:
        """Call a long-running reader of the store, concurrently with the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, function, self.store)

    async def keep(self, updates: UpdateBatch, cursor: FoldCursor) -> bool:
        """Store a batch with the cursor after it, and return whether it is stored; if not, retry it first.

        `StoreKeptFailing` after too many failures, `StoreMoved` if the store has an unexpected cursor.
        """
        if self._is_closed:
            raise Closed("the fold's store")
        try:
            if (attempt := self._attempt) is not None and await self._reopen() == Reopened.STORED:
                # Of the queue, only updates after the attempt are not stored.
                updates = updates.slice(attempt.updates, len(updates))
            if not len(updates) and cursor == self.cursor:
                return True
            written = NO_CURSOR if cursor == self.cursor else format_fold_cursor(cursor)
            self._attempt = _Attempt(cursor, len(updates))
            await self.run(_apply, self.store, updates, written)
        except TRANSIENT as error:
            return await self._failed(error)
        self._stands_at(cursor)
        self.has_data = self.has_data or len(updates) > 0
        return True

    async def close(self) -> None:
        """Close the store after its queue, and end its thread."""
        self._is_closed = True
        store, self._store = self._store, None
        try:
            if store is not None:
                await self.run(store.close)
        finally:
            self._thread.shutdown(wait=False)
            self._reader.shutdown(wait=False)

    def _stands_at(self, cursor: FoldCursor) -> None:
        self.cursor, self._attempt, self.failures = cursor, None, 0

    async def _failed(self, error: Exception) -> bool:
        """Count a failure, and reopen the store; return whether the batch is stored."""
        self.failures += 1
        self._events.emit(StoreFailed(self.failures, str(error)))
        if flushes.gives_up(self.failures):
            raise StoreKeptFailing(self.failures, str(error)) from error
        with contextlib.suppress(*TRANSIENT):
            return await self._reopen() == Reopened.STORED
        return False

    async def _reopen(self) -> Reopened:
        """Reopen the store and read its cursor, which settles the attempt."""
        before, attempted = self.cursor, self._attempt.cursor if self._attempt else self.cursor
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(StrandlineError, OSError):
                await self.run(store.close)
        await self.refresh()
        self._events.emit(StoreReopened(self.cursor.revision, before.revision))
        found = flushes.after_reopening(self.cursor.revision, before.revision, attempted.revision)
        if found == Reopened.MOVED:
            raise StoreMoved
        if found == Reopened.STORED:
            self.failures = 0
        return found


def _apply(store: SnapshotStore, updates: UpdateBatch, cursor: WatchCursor) -> None:
    store.apply(FoldBatch.from_updates(updates), cursor)
