"""Watches of a NATS bucket: an ordered reader in a thread, handed to the event loop.

Invariants: a watch tells what its reader tells, once and in order; the reader finds gaps, lost connections and overruns
and begins anew where it stood. While no batch is taken, the reader waits, and the server with it. A watch that is
given up while it begins, or whose connection is shut down then, leaves nothing behind.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from strandline.errors import Closed, StrandlineError
from strandline.kv.config import Retention
from strandline.kv.contracts import Watch
from strandline.kv.entries import UpdateBatch, WatchCursor, parse_cursor
from strandline.kv.keys import key_filter
from strandline.kv.nats.bucket_api import BucketApi
from strandline.kv.nats.bucket_reader import BucketReader
from strandline.kv.nats.layout import read_prefix, retention_of
from strandline.kv.nats.thread_iterator import Exhausted, IsOver, ThreadIterator
from strandline.kv.watch_forms import IterableWatch, WatchForms
from strandline.nats.cancellation import CancelToken
from strandline.nats.ordered_reader import NOT_FOUND_S
from strandline.nats.read_plan import Overrun, ReadPlan
from strandline.nats.settings import NatsSettings
from strandline.nats.streams import StreamState
from strandline.wire import Times

LOOKS_EVERY_S = 0.2
UPDATES_MAX = 4096


class _Told(NamedTuple):
    """What the reader told, and where it stood afterwards."""

    batch: UpdateBatch | None
    is_current: bool
    frontier: int


class NatsWatch(IterableWatch):
    """A watch over some keys of a bucket; `forget` is called when it was stopped."""

    def __init__(self, items: ThreadIterator[_Told], forget: Callable[["NatsWatch"], None]) -> None:
        self._items = items
        self._told = self._next = _Told(None, False, 0)  # noqa: FBT003 - a row of a table
        self._rest: UpdateBatch | None = None
        self._closed: Closed | None = None
        self._forget = forget

    async def begin(self) -> Self:
        """Wait until the reader is attached; what it raises if it cannot, `Closed` if the connection is shut down."""
        try:
            self._told = self._next = await self._take()
        except BaseException:
            await self.close(Closed("the watch"))
            raise
        return self

    @property
    def is_current(self) -> bool:
        """Tell whether everything that was there when the watch began was handed out."""
        return self._now().is_current

    @property
    def frontier(self) -> int:
        """Return the revision up to which everything that it watches was handed out, 0 if unknown; it never falls."""
        return self._now().frontier

    async def batch(self, updates_max: int = UPDATES_MAX) -> UpdateBatch:
        """Wait for updates and return those that are there, at least one; `Closed` after `stop`."""
        while self._rest is None:
            self._next = await self._take()
            if self._next.batch is None:
                self._told = self._next
            self._rest = self._next.batch
        batch = self._rest
        if len(batch) <= updates_max:
            self._rest, self._told = None, self._next
            return batch
        self._rest = batch.slice(updates_max, len(batch))
        return batch.slice(0, updates_max)

    async def stop(self) -> None:
        """End the watch; a second time does nothing."""
        await self.close(Closed("the watch"))
        self._rest = None
        with suppress(Exhausted, StrandlineError):
            while True:
                await self._items.take()

    async def close(self, reason: Closed) -> None:
        """End the watch, which tells what it has and then the reason."""
        self._closed = self._closed or reason
        self._forget(self)
        await self._items.stop()

    async def _take(self) -> _Told:
        try:
            return await self._items.take()
        except Exhausted:
            raise self._closed or Closed("the watch") from None

    def _now(self) -> _Told:
        """Return where the watch stands, with what the reader has told since without updates."""
        while self._rest is None and (told := self._items.take_if(lambda told: told.batch is None)):
            self._told = told
        return self._told


class Watches:
    """The watches of a connection, which end with it."""

    def __init__(self) -> None:
        self._open: list[NatsWatch] = []

    def __len__(self) -> int:
        return len(self._open)

    async def begin(self, items: ThreadIterator[_Told]) -> NatsWatch:
        """Return a watch when its reader is attached; what the reader raises, if it cannot."""
        watch = NatsWatch(items, self._forget)
        self._open.append(watch)  # so that it ends with the others, should it still begin then
        return await watch.begin()

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(watch.close(Closed("the connection")) for watch in list(self._open)))

    def _forget(self, watch: NatsWatch) -> None:
        if watch in self._open:
            self._open.remove(watch)


class NatsWatcher(WatchForms):
    """The watcher of a NATS bucket; `settings` returns how a connection of its own is made, or raises."""

    def __init__(
        self,
        api: BucketApi,
        info: StreamState,
        settings: Callable[[], NatsSettings],
        watches: Watches,
        overrun: Overrun,
    ) -> None:
        self._api = api
        self._info = info
        self._settings = settings
        self._watches = watches
        self._overrun = overrun

    async def retention(self) -> Retention:
        """Return what the bucket has kept, now; one that was there may seem gone while servers elect."""
        return retention_of(await self._api.info(gone_s=NOT_FOUND_S))

    async def _watch(self, prefixes: Sequence[str], cursor: WatchCursor | None) -> Watch:
        key_filter(prefixes)
        after = None if cursor is None else parse_cursor(cursor)
        settings = self._settings()

        plan = ReadPlan(
            stream=self._info.name,
            after=after,
            exact_state=True,
            times=Times.OF_HEADERS if self._info.allows_ttl else Times.NONE,
            overrun=self._overrun,
            outage_s=math.inf,
        )

        cancel = CancelToken()

        def produce(is_over: IsOver) -> Iterator[_Told]:
            prefix = read_prefix(self._info)
            with BucketReader.open(
                settings, self._api.bucket, plan, prefixes=prefixes, subject_prefix=prefix, cancel=cancel
            ) as reader:
                yield from _told(reader, is_over)

        return await self._watches.begin(ThreadIterator(produce, "strandline-watch", cancel.set))


def _told(reader: BucketReader, is_over: IsOver) -> Iterator[_Told]:
    last = _Told(None, reader.is_current, reader.frontier)
    yield last
    while not is_over():
        batch = reader.read(LOOKS_EVERY_S)
        told = _Told(batch if batch is not None and len(batch) else None, reader.is_current, reader.frontier)
        if told.batch is not None or told != last:
            yield told
            last = told._replace(batch=None)
