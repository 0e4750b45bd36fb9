"""Seeded schedules of everything that can go wrong, in source, store and process: the fold ends equal to the truth.

A mirror's truth is what the bucket lists; an archive's is every write minus every real delete, from where on it says to
be complete. What must hold at every write: the cursor names nothing that is not in the store, and never moves back in
one log; nothing leaves an archive that was not deleted.
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
    FoldCursor,
    FoldReader,
    Hooks,
    MemoryStore,
    RepairMode,
    RepairPolicy,
    RepairRefused,
    Scope,
    catch_up,
    format_fold_cursor,
    parse_fold_cursor,
    watch_applied,
)
from strandline.fold.records import join_version
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
from strandline.kv.memory_log import MemoryLog, Record
from strandline.protocol.fold_modes import FoldMode
from tests import tally
from tests.fold.buckets import Twin
from tests.fold.shelves import Fault, Killed, Shelf
from tests.fold.virtual_time import NoThread, run_virtually

SEEDS = int(os.environ.get("STRANDLINE_SEEDS", "100"))
SEED = os.environ.get("STRANDLINE_SEED")
KEYS = [f"{group}.{number}" for group in "ab" for number in range(4)]
CONFIGS = {
    "keeps": StoreConfig(),
    "keeps three": StoreConfig(history=3),
    "ages": StoreConfig(age_max_s=50.0),
    "overflows": StoreConfig(updates_max=5, discard=Discard.OLD),
    "expires": StoreConfig(ttl=True),
    "expires, keeps three": StoreConfig(history=3, ttl=True),
    "expires, marks": StoreConfig(ttl=True, marker_ttl_s=30.0),
    "all of it": StoreConfig(history=2, updates_max=9, discard=Discard.OLD, age_max_s=60.0, ttl=True),
}
TTL_S = 15.0
FAILED_ONCE = (4336,)
"""4336: a key of a bucket made anew expires after it was listed and before the watch begins."""


@dataclass
class Oracle:
    """What is true: every write minus every real delete, at each revision of the log as it is now."""

    values: dict[str, Record] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    past: dict[str, set[bytes | None]] = field(default_factory=dict)

    def write(self, log: MemoryLog, kind: UpdateKind, key: str, value: bytes, now_ns: int, ttl_s: float | None) -> None:
        record = log.append(kind, key, value, now_ns, ttl_s)
        self.changed[key] = record.revision
        past = self.past.setdefault(key, {None})
        if kind is UpdateKind.PUT:
            past.add(value)
            self.values[key] = record
        else:
            self.values.pop(key, None)

    def purge(self) -> None:
        """Forget what a purge of the whole stream deletes; what has a time to live may just as well have expired."""
        self.values = {key: record for key, record in self.values.items() if record.expires_ns}


class SimulatedFold:
    """A bucket, a fold that follows it, and chance."""

    def __init__(self, seed: int) -> None:
        tally.count(tally.SEEDS)
        self.random = random.Random(seed)
        self.config = CONFIGS[self.random.choice(list(CONFIGS))]
        self.twin = Twin(self.config)
        self.clock, self.server, self.connection = self.twin.clock, self.twin.server, self.twin.connection
        self.oracle = Oracle()
        self.scope = self.random.choice([ALL, ALL, Scope.of("a."), Scope.of("a.", "b.1.")])
        self.shelf = Shelf(on_write=self.check_write)
        self.marks: list[FoldCursor] = []
        self.artifact: tuple[FoldCursor, dict[str, Record]] | None = None
        self.mode = self.random.choice([FoldMode.MIRROR, FoldMode.ARCHIVE])
        mode = (
            RepairMode.AUTO
            if self.config.evicts_current_values and self.mode is FoldMode.ARCHIVE
            else self.random.choice([RepairMode.AUTO, RepairMode.RELIST])
        )
        overrun = self.random.choice([Overrun.SENTINEL, Overrun.PROBE])
        self.policy = RepairPolicy(mode, self, overrun, clock=self.clock, fold_mode=self.mode)
        self.batching = Batching(self.random.choice([0.0, 0.01, 1.0]), self.random.choice([1, 3, 100]))
        self.task: asyncio.Task[object] | None = None
        self.stop = asyncio.Event()
        self.told: list[str] = []
        self.dropped = False
        self.purged: set[str] = set()
        self.unread: set[str] = set()

    @property
    def log(self) -> MemoryLog:
        return self.server.bucket("b")

    async def newest(self, _: Scope) -> FoldReader | None:
        """Return the artifact that somebody exported last, if it is of this log."""
        if self.artifact is None:
            return None
        mark, values = self.artifact
        store = MemoryStore()
        rows = sorted(
            (key.encode(), record.value, join_version(format_revision(record.revision), record.expires_ns))
            for key, record in values.items()
        )
        keys, contents, versions = ([row[column] for row in rows] for column in range(3))
        store.apply(FoldBatch(keys, contents, versions), format_fold_cursor(mark))
        return store

    def check_write(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Look at each write before it is made: what the cursor names must be there."""
        after = MemoryStore()
        rows = self.shelf.kept.range()
        if rows:
            keys, values, versions, expiries = map(list, zip(*rows, strict=True))
            stored = [join_version(*pair) for pair in zip(versions, expiries, strict=True)]
            after.apply(FoldBatch(keys, values, stored), self.shelf.kept.cursor())
        after.apply(batch, cursor)
        mark, before = parse_fold_cursor(after.cursor()), self.shelf.mark
        assert mark.revision >= before.revision or mark.revision == 0, "the cursor went back"
        assert mark.seen_evicting or not before.seen_evicting or mark.identity != before.identity, "it forgot"
        if not mark.revision or mark.identity != self.log.identity:
            return
        held = {entry.key.decode(): entry.value for entry in after.range()}
        for key, revision in self.oracle.changed.items():
            if revision <= mark.revision and self.scope.has(key.encode()):
                allowed = self.allowed(key, revision, mark)
                assert held.get(key) in allowed, f"the cursor names {key}@{revision}: {held.get(key)!r}, not {allowed}"

    def allowed(self, key: str, revision: int, mark: FoldCursor) -> set[bytes | None]:
        """Return what a fold may hold of a key whose last write its cursor names."""
        record = self.oracle.values.get(key)
        allowed: set[bytes | None] = {record.value if record else None}
        if key in self.purged:
            allowed |= self.oracle.past[key]  # until the fold has learnt of the purge
        if self.mode is FoldMode.MIRROR:
            kept = {found.revision: found for found in self.log.history_of(key)}
            has_left = revision not in kept or 0 < kept[revision].expires_ns <= self.clock.now_ns()
            return self.oracle.past[key] if has_left else allowed
        return self.oracle.past[key] if record is not None and self.is_missable(record, mark) else allowed

    def is_missable(self, record: Record, mark: FoldCursor) -> bool:
        """Tell whether an archive may lack a write: it is of before its first copy, or expired before it was read."""
        return record.revision < mark.floor or 0 < record.expires_ns <= self.clock.now_ns()

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
            ttl_s = TTL_S if self.config.ttl and value and self.random.random() < 0.3 else None
            with suppress(StrandlineError):
                self.oracle.write(self.log, kind, key, value, self.clock.now_ns(), ttl_s)
                self.purged.discard(key)
                self.unread.discard(key)

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
        self.note_unread(self.clock.now_ns() + int(seconds * 1e9))
        self.clock.advance(seconds)
        self.log.expire(self.clock.now_ns())
        await asyncio.sleep(seconds)

    def note_unread(self, until_ns: int) -> None:
        """Remember keys whose last value expires before the fold has it: that one came and went leaves no trace."""
        for key, record in self.oracle.values.items():
            if 0 < record.expires_ns <= until_ns and record.revision > self.shelf.mark.revision:
                self.unread.add(key)

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

    async def purge(self) -> None:
        """An operator purges the whole stream; an archive cannot tell that from retention where there is any."""
        if self.mode is FoldMode.ARCHIVE and self.log.retention().age_only:
            return  # a young cursor goes by the age of what is missing
        self.log.remove_through(self.log.last_revision)
        if self.mode is FoldMode.MIRROR or not self.log.retention().drops_current_values:
            self.purged |= set(self.oracle.values)
            self.oracle.purge()

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
            drops = log.retention().drops_current_values
            seen = self.config.evicts_current_values
            mark = FoldCursor(log.last_revision, seen, log.identity, ALL, mode=self.mode, floor=1, seen_dropping=drops)
            self.artifact = (mark, dict(self.oracle.values))

    async def make_anew(self) -> None:
        await self.restore()
        self.server.remove_bucket("b")
        self.store = await self.connection.store("b", self.config)
        self.oracle = Oracle()
        self.purged.clear()
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
        assert self.shelf.mark.mode in (self.mode, FoldMode.UNKNOWN)
        assert self.shelf.values == self.truth()
        assert self.shelf.mark.identity in (self.log.identity, bytes(8))

    def truth(self) -> dict[str, bytes]:
        """Return what the fold must hold in the end."""
        if self.mode is FoldMode.ARCHIVE:
            rows = {key: row for key, row in self.oracle.values.items() if self.scope.has(key.encode())}
            missable = {key for key, row in rows.items() if self.is_missable(row, self.shelf.mark)}
            surely = {key: row.value for key, row in rows.items() if key not in missable}
            return surely | {key: value for key, value in self.shelf.values.items() if key in missable}
        self.log.expire(self.clock.now_ns())
        listed = (record for record in self.log.latest() if record.kind is UpdateKind.PUT)
        found = {record.key: record.value for record in listed if self.scope.has(record.key.encode())}
        return found | {key: value for key, value in self.shelf.values.items() if key in self.unread}


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
    "purge": 2,
}


def run_seed(seed: int) -> None:
    """Run one schedule, and say which it was if it fails."""
    worlds: list[SimulatedFold] = []

    async def run() -> None:
        worlds.append(SimulatedFold(seed))
        await worlds[0].run()

    try:
        run_virtually(run())
    except BaseException:
        print(f"STRANDLINE_SEED={seed}", *(world.told for world in worlds))  # noqa: T201 - to run it again
        raise


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.store_worker.ThreadPoolExecutor", NoThread)


def test_whatever_happens_the_fold_ends_equal_to_the_truth() -> None:
    for seed in [int(SEED)] if SEED else [*range(SEEDS), *FAILED_ONCE]:
        run_seed(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whatever_happens_the_fold_ends_equal_to_the_truth_in_many_more_schedules() -> None:
    for seed in range(SEEDS, 100 * SEEDS):
        run_seed(seed)
