"""What every backend's watches have in common: the ways to ask for one, and the ways to go through one.

Invariants: the six forms of a watch are one question, which a backend answers in `_watch`; to iterate is to take
batches, and ends when the watch is stopped.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from strandline.errors import Closed
from strandline.kv.contracts import Watch
from strandline.kv.entries import KvUpdate, UpdateBatch, WatchCursor


class WatchForms(ABC):
    """The forms of `KvWatcher`, by one of them."""

    async def watch_all(self) -> Watch:
        """Watch every key."""
        return await self._watch([""], None)

    async def watch_prefix(self, prefix: str) -> Watch:
        """Watch the keys below a prefix."""
        return await self._watch([prefix], None)

    async def watch_prefixes(self, prefixes: Sequence[str]) -> Watch:
        """Watch the keys below any of some prefixes, in one order."""
        return await self._watch(prefixes, None)

    async def watch_all_from(self, cursor: WatchCursor) -> Watch:
        """Watch every key, after a cursor; `CursorExpired` if the bucket does not reach back to it."""
        return await self._watch([""], cursor)

    async def watch_prefix_from(self, prefix: str, cursor: WatchCursor) -> Watch:
        """Watch the keys below a prefix, after a cursor; `CursorExpired` as above."""
        return await self._watch([prefix], cursor)

    async def watch_prefixes_from(self, prefixes: Sequence[str], cursor: WatchCursor) -> Watch:
        """Watch the keys below any of some prefixes, after a cursor; `CursorExpired` as above."""
        return await self._watch(prefixes, cursor)

    @abstractmethod
    async def _watch(self, prefixes: Sequence[str], cursor: WatchCursor | None) -> Watch:
        """Watch the keys below any of some prefixes; without a cursor, from the state on."""


class IterableWatch(ABC):
    """A watch that is gone through update by update, by its batches, and stopped at the end of a block."""

    @abstractmethod
    async def batch(self, updates_max: int = 4096) -> UpdateBatch:
        """Wait for updates and return those that are there, at least one; `Closed` after `stop`."""

    @abstractmethod
    async def stop(self) -> None:
        """End the watch; a second time does nothing."""

    def __aiter__(self) -> AsyncIterator[KvUpdate]:
        """Yield update by update until the watch is stopped."""
        return self._updates()

    async def _updates(self) -> AsyncIterator[KvUpdate]:
        while True:
            try:
                batch = await self.batch(1)
            except Closed:
                return
            for update in batch:
                yield update

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
