"""Seeded schedules of everything that can go wrong, in source, store and process: the fold ends equal to the truth.

What must hold at every write: the cursor names nothing that is not in the store, and never moves back in one log.
A failure prints its seed; `STRANDLINE_SEED=n` runs that one, `STRANDLINE_SEEDS=n` so many.
"""

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from strandline.errors import StrandlineError
from strandline.fold import (
    ALL,
    Batching,
    FoldBatch,
    FoldReader,
    Hooks,
    Mark,
    MemoryStore,
    RepairMode,
    RepairPolicy,
    RepairRefused,
    Scope,
    catch_up,
    format_mark,
    parse_mark,
    watch_applied,
)
from strandline.kv import (
    ConnectionDropped,
    Discard,
    Faults,
    Overrun,
    StoreConfig,
    UpdateKind,
    WatchCursor,
    format_revision,
)
from strandline.kv.memory_log import MemoryLog
from tests.fold.buckets import Twin
from tests.fold.shelves import Fault, Killed, Shelf
from tests.fold.virtual_time import NoThread, run_virtually

SEEDS = int(os.environ.get("STRANDLINE_SEEDS", "400"))
SEED = os.environ.get("STRANDLINE_SEED")
KEYS = [f"{group}.{number}" for group in "ab" for number in range(4)]
CONFIGS = {
    "keeps": StoreConfig(),
    "keeps three": StoreConfig(history=3),
    "ages": StoreConfig(age_max_s=50.0),
    "overflows": StoreConfig(updates_max=5, discard=Discard.OLD),
}


@dataclass
class Oracle:
    """What is true: every write minus every real delete, at each revision of the log as it is now."""

    values: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def write(self, log: MemoryLog, kind: UpdateKind, key: str, value: bytes, now_ns: int) -> None:
        revision = log.append(kind, key, value, now_ns).revision
        self.changed[key] = revision
        if kind is UpdateKind.PUT and value:
            self.values[key] = (value, revision)
        else:
            self.values.pop(key, None)

    def state(self, scope: Scope) -> dict[str, bytes]:
        return {key: value for key, (value, _) in self.values.items() if scope.has(key.encode())}


class World:
    """A bucket, a fold that follows it, and chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.config = CONFIGS[self.random.choice(list(CONFIGS))]
        self.twin = Twin(self.config)
        self.clock, self.server, self.connection = self.twin.clock, self.twin.server, self.twin.connection
        self.oracle = Oracle()
        self.scope = self.random.choice([ALL, ALL, Scope.of("a."), Scope.of("a.", "b.1.")])
        self.shelf = Shelf(on_write=self.check_write)
        self.marks: list[Mark] = []
        self.artifact: tuple[Mark, dict[str, tuple[bytes, int]]] | None = None
        mode = (
            RepairMode.AUTO
            if self.config.evicts_current_values
            else self.random.choice([RepairMode.AUTO, RepairMode.RELIST])
        )
        overrun = self.random.choice([Overrun.SENTINEL, Overrun.PROBE])
        self.policy = RepairPolicy(mode, self, overrun, clock=self.clock)
        self.batching = Batching(self.random.choice([0.0, 0.01, 1.0]), self.random.choice([1, 3, 100]))
        self.task: asyncio.Task[object] | None = None
        self.stop = asyncio.Event()
        self.told: list[str] = []
        self.dropped = False

    @property
    def log(self) -> MemoryLog:
        return self.server.bucket("b")

    async def newest(self, _: Scope) -> FoldReader | None:
        """Return the artifact that somebody exported last, if it is of this log."""
        if self.artifact is None:
            return None
        mark, values = self.artifact
        store = MemoryStore()
        rows = sorted((key.encode(), value, format_revision(at)) for key, (value, at) in values.items())
        keys, contents, versions = ([row[column] for row in rows] for column in range(3))
        store.apply(FoldBatch(keys, contents, versions), format_mark(mark))
        return store

    def check_write(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Look at each write before it is made: what the cursor names must be there."""
        after = MemoryStore()
        rows = self.shelf.kept.range()
        if rows:
            keys, values, versions = map(list, zip(*rows, strict=True))
            after.apply(FoldBatch(keys, values, versions), self.shelf.kept.cursor())
        after.apply(batch, cursor)
        mark, before = parse_mark(after.cursor()), self.shelf.mark
        assert mark.revision >= before.revision or mark.revision == 0, "the cursor went back"
        assert mark.seen_evicting or not before.seen_evicting or mark.identity != before.identity, "it forgot"
        if not mark.revision or mark.identity != self.log.identity:
            return
        held = {entry.key.decode(): entry.value for entry in after.range()}
        for key, revision in self.oracle.changed.items():
            if revision <= mark.revision and self.scope.has(key.encode()):
                true = self.oracle.values.get(key, (None, 0))[0]
                assert held.get(key) == true, f"the cursor names {key}@{revision}, and the store has {held.get(key)!r}"

    # What happens

    async def run(self) -> None:
        await self.connection.connect()
        self.store = await self.connection.store("b", self.config)
        for _ in range(self.random.randint(5, 60)):
            (name,) = self.random.choices(list(STEPS), list(STEPS.values()))
            self.told.append(name)
            await getattr(self, name)()
        await self.end()

    async def write(self) -> None:
        for _ in range(self.random.choice([1, 1, 2, 8])):
            kind = self.random.choices([UpdateKind.PUT, UpdateKind.DELETE, UpdateKind.PURGE], [6, 3, 1])[0]
            value = b"" if kind is not UpdateKind.PUT else str(self.random.random()).encode()
            if self.random.random() < 0.03:
                kind, value = UpdateKind.PUT, b""
            key = self.random.choice(KEYS)
            with suppress(StrandlineError):
                self.oracle.write(self.log, kind, key, value, self.clock.now_ns())

    async def start(self) -> None:
        if self.task is not None and not self.task.done():
            return
        await self.reap()
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(
            watch_applied(
                self.store,
                self.scope,
                self.shelf.open,
                policy=self.policy,
                batching=self.batching,
                hooks=Hooks(),
                stop=self.stop,
            )
        )

    async def reap(self) -> None:
        """Look at what became of the process: it may fail, but only for a reason."""
        if self.task is None:
            return
        try:
            await self.task
        except (StrandlineError, Killed, asyncio.CancelledError) as error:
            self.told.append(f"({type(error).__name__})")
        self.task = None

    async def pass_time(self) -> None:
        seconds = self.random.choice([0.001, 0.02, 2.0, 20.0])
        self.clock.advance(seconds)
        self.log.expire(self.clock.now_ns())
        await asyncio.sleep(seconds)

    async def breathe(self) -> None:
        for _ in range(self.random.randint(1, 10)):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        self.stop.set()
        await self.reap()

    async def kill(self) -> None:
        if self.task is not None:
            self.task.cancel()
        await self.reap()

    async def drop(self) -> None:
        self.connection.drop()
        self.dropped = True

    async def restore(self) -> None:
        self.log.expire(self.clock.now_ns())
        self.connection.restore()
        self.dropped = False

    async def forget_markers(self) -> None:
        """A bucket may lose delete markers from its beginning; where age alone evicts, that would be another reason."""
        if self.config.age_max_s:
            return
        while (first := self.twin.first) is not None and first.kind is not UpdateKind.PUT:
            self.log.remove_through(first.revision)

    async def break_store(self) -> None:
        self.shelf.faults[self.shelf.writes + self.random.randint(1, 3)] = self.random.choice(list(Fault))

    async def break_opening(self) -> None:
        self.shelf.refused_opens = self.random.randint(1, 2)

    async def break_source(self) -> None:
        call = self.random.choice(["keys", "watch", "retention"])
        self.connection.faults.fail(call, ConnectionDropped(), nth=self.random.randint(1, 2))

    async def export(self) -> None:
        log = self.log
        if log.last_revision:
            mark = Mark(log.last_revision, self.config.evicts_current_values, log.identity, ALL.digest)
            self.artifact = (mark, dict(self.oracle.values))

    async def make_anew(self) -> None:
        await self.restore()
        self.server.remove_bucket("b")
        self.store = await self.connection.store("b", self.config)
        self.oracle = Oracle()
        self.artifact = None
        await self.breathe()

    # The end

    async def end(self) -> None:
        """Mend everything, have an artifact, and let the fold come to the truth."""
        await self.kill()
        await self.restore()
        self.shelf.faults.clear()
        self.shelf.refused_opens = 0
        self.connection.faults = Faults()
        await self.export()
        try:
            await asyncio.wait_for(
                catch_up(self.store, self.scope, self.shelf.open, policy=self.policy, batching=self.batching), 600
            )
        except RepairRefused:
            if self.oracle.changed:
                raise
            return
        assert self.shelf.values == self.oracle.state(self.scope)
        assert self.shelf.mark.identity in (self.log.identity, bytes(8))


STEPS = {
    "write": 30,
    "start": 12,
    "pass_time": 12,
    "breathe": 20,
    "finish": 3,
    "kill": 3,
    "drop": 3,
    "restore": 5,
    "forget_markers": 6,
    "break_store": 5,
    "break_opening": 1,
    "break_source": 2,
    "export": 5,
    "make_anew": 1,
}


def run_seed(seed: int) -> None:
    """Run one schedule, and say which it was if it fails."""
    worlds: list[World] = []

    async def run() -> None:
        worlds.append(World(seed))
        await worlds[0].run()

    try:
        run_virtually(run())
    except BaseException:
        print(f"STRANDLINE_SEED={seed}", *(world.told for world in worlds))  # noqa: T201 - to run it again
        raise


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watching.keeper.ThreadPoolExecutor", NoThread)


def test_whatever_happens_the_fold_ends_equal_to_the_truth() -> None:
    for seed in [int(SEED)] if SEED else range(SEEDS):
        run_seed(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whatever_happens_the_fold_ends_equal_to_the_truth_in_many_more_schedules() -> None:
    for seed in range(SEEDS, 50 * SEEDS):
        run_seed(seed)
