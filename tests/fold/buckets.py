"""Buckets for the tests of folds: the memory twin, and one whose watch says what a test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self, TypedDict, TypeVar, Unpack, cast

from strandline.clock import ManualClock
from strandline.errors import StrandlineError
from strandline.events import Event, Events
from strandline.fold import ALL, Applied, Batching, Exports, FoldCursor, Hooks, RepairPolicy, Scope, watch_applied
from strandline.kv import (
    UNKNOWN_VERSION,
    ConnectionDropped,
    Delete,
    KvReader,
    KvStore,
    KvUpdate,
    KvWatcher,
    KvWriter,
    MemoryConnection,
    MemoryServer,
    Overrun,
    Put,
    Retention,
    StoreConfig,
    UpdateBatch,
    UpdateKind,
    WatchCursor,
    format_revision,
)
from strandline.kv.memory_log import MemoryLog, Record
from tests.fold.shelves import Shelf
from tests.waiting import PATIENCE_S

EventT = TypeVar("EventT", bound=Event)


class Twin:
    """A bucket of the memory twin, its writer, its log, and the clock; more connections may join."""

    def __init__(self, config: StoreConfig | None = None) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.config = config or StoreConfig()
        self.connection = MemoryConnection(self.server)

    async def start(self) -> "Twin":
        await self.connection.connect()
        self.store = await self.connection.store("b", self.config)
        return self

    @property
    def writer(self) -> KvWriter:
        writer = self.store.writer()
        assert writer is not None
        return writer

    @property
    def log(self) -> MemoryLog:
        return self.server.bucket("b")

    @property
    def first(self) -> Record | None:
        """Return the oldest update that is kept."""
        return next(iter(self.log._records.values()), None)  # noqa: SLF001 - a bucket shows only where it begins

    async def put(self, *pairs: str) -> None:
        """Put `key=value` pairs, or delete a `-key`."""
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key.startswith("-"):
                await self.writer.delete(key[1:])
            else:
                await self.writer.put(key, value.encode())

    async def truth(self, scope: Scope = ALL) -> dict[str, bytes]:
        """Return what the bucket lists."""
        reader = self.store.reader()
        return {entry.key: entry.value for prefix in scope.prefixes for entry in await reader.scan(prefix)}

    def forget(self, revision: int) -> None:
        """Remove the log up to a revision, as age does."""
        self.log.remove_through(revision)

    def forget_markers(self) -> None:
        """Remove delete markers as long as they are the oldest, as a bucket that keeps its values may."""
        while (first := self.first) is not None and first.kind is not UpdateKind.PUT:
            self.log.remove_through(first.revision)

    def lose_end(self) -> None:
        """Remove the last update as if it had never been, as a server without its newest data does."""
        log = self.log
        log._remove(log._records[log.last_revision])  # noqa: SLF001 - no server does that on request
        log.last_revision -= 1

    def break_watches(self) -> None:
        """End every watch as a lost connection does."""
        for watch in list(self.connection._watches):  # noqa: SLF001 - the twin mends its watches by itself
            watch.fail(ConnectionDropped())


async def twin(*pairs: str, config: StoreConfig | None = None) -> Twin:
    """Return a bucket with some keys."""
    made = await Twin(config).start()
    await made.put(*pairs)
    return made


class Heard(list[Event]):
    """Events, as they were told."""

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self if isinstance(event, kind)]


def listening(on_applied: Callable[[Applied], object] | None = None) -> tuple[Heard, Hooks]:
    """Return a list that events are added to, and hooks that do so."""
    heard = Heard()
    return heard, Hooks(on_applied=on_applied, events=Events(heard.append))


class Choices(TypedDict, total=False):
    """What a test may choose for a watch."""

    policy: RepairPolicy
    batching: Batching
    hooks: Hooks
    exports: Exports


async def until(condition: Callable[[], bool], task: asyncio.Task[FoldCursor] | None = None) -> None:
    """Wait for something to become true, or for a watch to fail."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            if task is not None and task.done():
                task.result()
                raise AssertionError("the watch has ended")
            await asyncio.sleep(0.002)


class Watching:
    """A `watch_applied` that runs beside a test."""

    def __init__(self, bucket: KvStore, shelf: Shelf, scope: Scope = ALL, **settings: Unpack[Choices]) -> None:
        self.stop_event = asyncio.Event()
        self.shelf = shelf
        self.task = asyncio.create_task(watch_applied(bucket, scope, shelf.open, stop=self.stop_event, **settings))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true, or for the watch to fail."""
        await until(condition, self.task)

    async def until_stored(self, values: dict[str, bytes]) -> None:
        await self.until(lambda: self.shelf.values == values)

    async def stop(self) -> FoldCursor:
        self.stop_event.set()
        return await asyncio.wait_for(self.task, PATIENCE_S)


@asynccontextmanager
async def watching(
    bucket: KvStore, shelf: Shelf, scope: Scope = ALL, **settings: Unpack[Choices]
) -> AsyncIterator[Watching]:
    """Watch a bucket into a shelf while a test does something."""
    made = Watching(bucket, shelf, scope, **settings)
    try:
        yield made
        if not made.task.done():
            await made.stop()
    finally:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)


def put(key: str, value: str, revision: int = 0) -> Put:
    return Put(key, value.encode(), format_revision(revision) if revision else UNKNOWN_VERSION)


def delete(key: str, revision: int = 0) -> Delete:
    return Delete(key, format_revision(revision) if revision else UNKNOWN_VERSION)


@dataclass
class Script:
    """A bucket that says what a test wants: batches, errors, retention, listings."""

    retained: Retention | StrandlineError = field(default_factory=lambda: Retention(False, 1, 0))
    listed: list[str] | StrandlineError = field(default_factory=list)
    starts: list[WatchCursor] = field(default_factory=list)
    refusals: list[StrandlineError] = field(default_factory=list)
    is_current: bool = True
    frontier: int = 0
    name: str = "script"

    def __post_init__(self) -> None:
        self._said: asyncio.Queue[UpdateBatch | StrandlineError] = asyncio.Queue()

    @property
    def left(self) -> int:
        """Return how much of what was said nobody has taken."""
        return self._said.qsize()

    def say(self, *updates: KvUpdate) -> None:
        """Have one batch of updates told."""
        self._said.put_nowait(UpdateBatch.from_updates(updates))

    def fail(self, error: StrandlineError) -> None:
        """Have the watch end with an error, after what was said."""
        self._said.put_nowait(error)

    @property
    def store(self) -> KvStore:
        return cast("KvStore", self)

    def watcher(self, *, overrun: Overrun = Overrun.PROBE) -> KvWatcher:  # noqa: ARG002 - the contract's word
        return cast("KvWatcher", self)

    def reader(self) -> KvReader:
        return cast("KvReader", self)

    async def keys(self, prefix: str = "") -> list[str]:
        if isinstance(self.listed, StrandlineError):
            raise self.listed
        return [key for key in self.listed if key.startswith(prefix)]

    async def retention(self) -> Retention:
        if isinstance(self.retained, StrandlineError):
            raise self.retained
        return self.retained

    async def _start(self, cursor: WatchCursor) -> "Script":
        if self.refusals:
            raise self.refusals.pop(0)
        self.starts.append(cursor)
        return self

    async def watch_all(self) -> "Script":
        return await self._start(WatchCursor(b""))

    async def watch_all_from(self, cursor: WatchCursor) -> "Script":
        return await self._start(cursor)

    async def watch_prefixes(self, _: Sequence[str]) -> "Script":
        return await self._start(WatchCursor(b""))

    async def batch(self, updates_max: int = 4096) -> UpdateBatch:  # noqa: ARG002 - the contract's word
        said = await self._said.get()
        if isinstance(said, StrandlineError):
            raise said
        return said

    async def stop(self) -> None:
        """There is nothing to end."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
