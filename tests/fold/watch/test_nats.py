"""Folds of buckets on a real nats-server: every row that matters, where the server has its own mind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from strandline.fold import (
    ALL,
    Applied,
    Backend,
    Batching,
    FoldCursor,
    FoldMode,
    FoldReader,
    Hooks,
    RepairMode,
    RepairPolicy,
    RepairRefused,
    Scope,
    SnapshotStore,
    catch_up,
    open_fold,
    open_read_only,
    parse_fold_cursor,
    preview_repair,
    watch_applied,
)
from strandline.fold.events import RepairEnded, StaleKeysPossible
from strandline.kv import BucketNotFound, Discard, KvStore, KvWriter, Overrun, StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings
from strandline.nats.read_plan import ReadPlan
from tests.fold.buckets import listening, until
from tests.servers_nats import NatsServer, running_nats
from tests.waiting import PATIENCE_S

OVERFLOWS = StoreConfig(updates_max=3, discard=Discard.OLD)
ARCHIVE = RepairPolicy(fold_mode=FoldMode.ARCHIVE)
TIMEOUT_S = 2.0


class Live:
    """A bucket on a server, and a fold of it on disk."""

    def __init__(self, connection: NatsConnection, store: KvStore, path: Path, backend: Backend) -> None:
        self.connection = connection
        self.store = store
        self.path = path
        self.backend = backend
        self.told: list[Applied] = []
        self.heard, self.hooks = listening(on_applied=self.told.append)

    @property
    def writer(self) -> KvWriter:
        writer = self.store.writer()
        assert writer is not None
        return writer

    async def put(self, *pairs: str) -> None:
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key.startswith("-"):
                await self.writer.delete(key[1:])
            else:
                await self.writer.put(key, value.encode())

    def open(self) -> SnapshotStore:
        return open_fold(self.path, self.backend)

    async def fold(self, scope: Scope = ALL, policy: RepairPolicy | None = None) -> FoldCursor:
        """Catch up, and forget what was told before."""
        self.told.clear()
        self.heard.clear()
        return await catch_up(self.store, scope, self.open, policy=policy or RepairPolicy(), hooks=self.hooks)

    @property
    def delivered(self) -> int:
        return sum(len(applied.updates) for applied in self.told)

    def held(self) -> dict[str, bytes]:
        reader = open_read_only(self.path)
        try:
            return {entry.key.decode(): entry.value for entry in reader.range()}
        finally:
            reader.close()

    @property
    def revision(self) -> int:
        """Return where it was told to stand."""
        return self.told[-1].cursor.revision if self.told else 0

    def stored(self) -> FoldCursor:
        reader = open_read_only(self.path)
        try:
            return parse_fold_cursor(reader.cursor())
        finally:
            reader.close()

    async def truth(self) -> dict[str, bytes]:
        return {entry.key: entry.value for entry in await self.store.reader().scan()}

    async def purge(self, before: int | None = None) -> None:
        """Remove everything before a revision, or all of it, without a word to anybody."""
        async with self._jetstream() as jetstream:
            await jetstream.purge_stream(f"KV_{self.store.name}", seq=before)

    async def remove(self) -> None:
        """Remove the bucket."""
        async with self._jetstream() as jetstream:
            await jetstream.delete_stream(f"KV_{self.store.name}")

    @asynccontextmanager
    async def _jetstream(self) -> AsyncIterator[JetStreamContext]:
        client = await nats.connect(self.connection.settings.urls[0])
        try:
            yield client.jetstream()
        finally:
            await client.close()


@asynccontextmanager
async def live(
    server: NatsServer, bucket: str, folder: Path, config: StoreConfig | None = None, backend: Backend | None = None
) -> AsyncIterator[Live]:
    backend = backend or Backend.APPEND_LOG
    async with NatsConnection(server.url) as connection:
        store = await connection.store(bucket, config or StoreConfig())
        yield Live(connection, store, folder / f"fold-{backend.value}", backend)


@pytest.mark.parametrize("backend", Backend)
def test_resume_from_cursor_delivers_only_delta(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path, backend: Backend
) -> None:
    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path, backend=backend) as fold:
            await fold.put(*(f"k.{number}={number}" for number in range(200)))
            mark = await fold.fold()
            assert (mark.revision, fold.delivered) == (200, 200)
            await fold.put("k.1=x", "-k.2", "new=y")
            await fold.writer.purge("k.3")
            mark = await fold.fold()
            assert (mark.revision, fold.delivered) == (204, 4)
            assert fold.held() == await fold.truth()
            assert (await fold.fold(), fold.delivered) == (mark, 0)

    asyncio.run(check())


def test_flush_on_window_max_and_shutdown(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            stop = asyncio.Event()
            batching = Batching(window_s=0.05, updates_max=10)
            task = asyncio.create_task(
                watch_applied(fold.store, ALL, fold.open, batching=batching, hooks=fold.hooks, stop=stop)
            )
            for number in range(35):
                await fold.put(f"k.{number % 4}={number}")
            await until(lambda: fold.revision >= 35, task)
            await fold.put("last=1")
            await asyncio.sleep(0.02)
            stop.set()
            mark = await task
            assert mark.revision in (35, 36)
            assert all(len(applied.updates) <= 20 for applied in fold.told)
        assert fold.held()["k.2"] == b"34"

    asyncio.run(check())


@pytest.mark.parametrize("backend", Backend)
def test_cursor_expired_resync_deletes_stale_keys(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path, backend: Backend
) -> None:
    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path, backend=backend) as fold:
            await fold.put("a=1", "b=2", "c=3")
            await fold.fold()
            await fold.put("-a", "b=4", "c=5", "d=6")
            await fold.purge(5)
            preview = await preview_repair(fold.store, ALL, open_read_only(fold.path))
            assert {change.key for change in preview.changes} == {b"a", b"b", b"c", b"d"}
            mark = await fold.fold()
            assert mark.revision == 7
            assert fold.held() == await fold.truth() == {"b": b"4", "c": b"5", "d": b"6"}
            assert [ended.deleted for ended in fold.heard.of(RepairEnded)] == [1]

    asyncio.run(check())


def test_without_a_repair_the_fold_diverges_and_says_so(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    async def check() -> None:
        config = StoreConfig(updates_max=10, discard=Discard.OLD)
        async with live(nats_server, nats_bucket, tmp_path, config) as fold:
            await fold.put("a=1", "b=2")
            await fold.fold(policy=ARCHIVE)
            await fold.put("-a", "b=4")
            await fold.purge(4)
            await fold.fold(policy=replace(ARCHIVE, mode=RepairMode.NONE))
            assert fold.held() == {"a": b"1", "b": b"4"}
            assert fold.heard.of(StaleKeysPossible)

    asyncio.run(check())


def test_nats_silently_clamps_resume_below_first_seq(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> None:
    """The server does not refuse a start below its log: that is why the window is checked here."""

    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            await fold.put("a=1", "b=2", "-a", "b=4", "c=5")
            await fold.purge(5)
            client = await nats.connect(nats_server.url)
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=2, ack_policy=AckPolicy.NONE
            )
            watched = await client.jetstream().subscribe(
                f"$KV.{nats_bucket}.>", stream=f"KV_{nats_bucket}", ordered_consumer=True, config=config
            )
            first = await watched.next_msg(timeout=PATIENCE_S)
            assert first.metadata.sequence.stream == 5, "and nothing was said of those before"
            await client.close()

    asyncio.run(check())


def test_cursor_expired_resync_respects_scope(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            scope = Scope.of("a.", "b.")
            await fold.put("a.x=1", "b.x=2", "c.x=3")
            await fold.fold(scope)
            assert fold.held() == {"a.x": b"1", "b.x": b"2"}
            await fold.put("-a.x", "b.x=4", "c.x=5")
            await fold.purge(5)
            await fold.fold(scope)
            assert fold.held() == {"b.x": b"4"}

    asyncio.run(check())


@pytest.mark.parametrize("overrun", [Overrun.SENTINEL, Overrun.PROBE])
def test_prefix_scope_that_is_quiet_follows_the_others_revisions(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path, overrun: Overrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.2)
    monkeypatch.setattr("strandline.kv.nats.watches.ReadPlan", partial(ReadPlan, backstop_s=0.3))

    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            await fold.put("a.x=1", "b.x=2")
            stop = asyncio.Event()
            policy = RepairPolicy(overrun=overrun)
            watch = watch_applied(fold.store, Scope.of("a."), fold.open, policy=policy, hooks=fold.hooks, stop=stop)
            task = asyncio.create_task(watch)
            await until(lambda: fold.revision >= 1, task)
            await fold.put(*(f"b.x={number}" for number in range(30)))
            await until(lambda: fold.stored().revision == 32, task)
            stop.set()
            await task

    asyncio.run(check())


def test_a_bucket_made_anew_is_another_one(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            await fold.put(*(f"k.{number}=x" for number in range(20)))
            await fold.fold()
            await fold.remove()
            with pytest.raises(BucketNotFound):
                await fold.fold()
            fold.store = await fold.connection.store(nats_bucket, StoreConfig())
            await fold.put("k.1=new", "z=1")
            mark = await fold.fold()
            assert fold.held() == {"k.1": b"new", "z": b"1"}
            assert mark.revision == 2

    asyncio.run(check())


def test_a_bucket_that_is_removed_or_purged_under_the_watch(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.kv.nats.watches.ReadPlan", partial(ReadPlan, backstop_s=0.3))

    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            await fold.put("a=1", "b=2", "c=3")
            task = asyncio.create_task(watch_applied(fold.store, ALL, fold.open, hooks=fold.hooks))
            await until(lambda: fold.revision >= 3, task)
            await fold.purge()
            await until(lambda: bool(fold.heard.of(RepairEnded)), task)
            await fold.put("d=4")
            await until(lambda: fold.revision >= 4, task)
            assert fold.held() == {"d": b"4"}
            await fold.remove()
            with pytest.raises(BucketNotFound):
                await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(check())


def test_a_bucket_that_overflows_is_refused_without_an_artifact_and_restored_with_one(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    class Other:
        def __init__(self, path: Path) -> None:
            self.path = path

        async def newest(self, _: Scope) -> FoldReader | None:
            return open_read_only(self.path)

    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path, OVERFLOWS) as fold:
            await fold.put("a=1", "b=2")
            await fold.fold(policy=ARCHIVE)
            other = Live(fold.connection, fold.store, tmp_path / "other", Backend.SQLITE)
            await other.fold(policy=ARCHIVE)
            for pair in ("-a", "c=4", "b=5", "d=6"):
                await fold.put(pair)
                await other.fold()
            await fold.put("e=7")
            with pytest.raises(RepairRefused) as caught:
                await fold.fold()
            assert caught.value.hint
            await fold.fold(policy=replace(ARCHIVE, restorer=Other(other.path)))
            assert fold.held() == {"b": b"5", "c": b"4", "d": b"6", "e": b"7"}

    asyncio.run(check())


def test_keys_and_values_of_every_kind_arrive(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> None:
    async def check() -> None:
        config = StoreConfig(bytes_max=64 * 1024 * 1024, value_bytes_max=1024 * 1024)
        async with live(nats_server, nats_bucket, tmp_path, config) as fold:
            keys = ["a", "a.b.c", "with-dash_and/slash=equals", "$weird", "ключ.日本", "x" * 200]
            for key in keys:
                await fold.writer.put(key, key.encode())
            await fold.writer.put("big", bytes(1024 * 1024 - 100))
            version = await fold.writer.put("tomb", b"x")
            await fold.writer.delete_with_version("tomb", version)
            await fold.writer.put("nothing", b"")
            await fold.fold()
            held = fold.held()
            assert held == await fold.truth()
            assert len(held["big"]) == 1024 * 1024 - 100
            assert "tomb" not in held
            assert held["nothing"] == b""

    asyncio.run(check())


@pytest.mark.parametrize("kill", [True, False])
def test_a_server_that_is_restarted_under_the_watch_costs_nothing(tmp_path: Path, kill: bool) -> None:
    async def check(server: NatsServer) -> None:
        async with live(server, "b", tmp_path) as fold:
            await fold.put("a=1")
            stop = asyncio.Event()
            task = asyncio.create_task(watch_applied(fold.store, ALL, fold.open, hooks=fold.hooks, stop=stop))
            await until(lambda: fold.revision == 1, task)
            await asyncio.to_thread(server.restart, kill=kill)
            async with NatsConnection(server.url) as second:
                writer = (await second.store("b")).writer()
                assert writer is not None
                for number in range(20):
                    await writer.put(f"k.{number}", b"x")
            await until(lambda: fold.revision >= 21, task)
            stop.set()
            await task
            versions = [int(version) for applied in fold.told for version in applied.updates.versions]
            assert versions == list(range(1, 22)), "each once, and in order"

    with running_nats() as server:
        asyncio.run(check(server))


def test_a_server_that_is_away_for_longer_than_every_limit_is_waited_for(tmp_path: Path) -> None:
    async def check(server: NatsServer) -> None:
        async with NatsConnection(NatsSettings(server.url, timeout_s=TIMEOUT_S)) as connection:
            fold = Live(connection, await connection.store("b", StoreConfig()), tmp_path / "fold", Backend.APPEND_LOG)
            await fold.put("a=1")
            stop = asyncio.Event()
            task = asyncio.create_task(watch_applied(fold.store, ALL, fold.open, hooks=fold.hooks, stop=stop))
            await until(lambda: fold.revision == 1, task)
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(1.5 * TIMEOUT_S)  # for longer than a request may take: nothing must happen
            assert not task.done(), task
            await asyncio.to_thread(server.start)
            async with NatsConnection(server.url) as second:
                writer = (await second.store("b")).writer()
                assert writer is not None
                await writer.put("b", b"2")
            await until(lambda: fold.revision >= 2, task)
            stop.set()
            await task

    with running_nats() as server:
        asyncio.run(check(server))


def test_hooks_see_columns_and_nothing_is_made_of_them_on_the_way(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    async def check() -> None:
        async with live(nats_server, nats_bucket, tmp_path) as fold:
            await fold.put(*(f"k.{number}={number}" for number in range(500)))
            seen: list[int] = []
            hooks = Hooks(parse=lambda batch: batch.versions, apply=lambda versions: seen.append(len(versions)))
            await catch_up(fold.store, ALL, fold.open, hooks=hooks)
            assert sum(seen) == 500
            assert len(seen) < 50

    asyncio.run(check())
