"""A fold without asyncio: read like a dictionary, kept up to date in the background, honest about what goes wrong."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest

import strandline
from strandline.errors import Closed, CommitFailed, InvalidInput, Locked, StrandlineError
from strandline.fold import (
    ALL,
    AppendLogStore,
    Backend,
    Batching,
    FoldBatch,
    FoldMode,
    RepairRefused,
    Scope,
    SnapshotStore,
    open_fold,
    open_read_only,
)
from strandline.fold.errors import NotYet, StoreKeptFailing
from strandline.fold.followed_fold import FollowedFold, follow
from strandline.kv import (
    BucketNotFound,
    ConnectionDropped,
    Discard,
    KvStore,
    NotSupported,
    StoreConfig,
    UpdateBatch,
    WatchCursor,
)
from strandline.kv.nats import NatsConnection
from tests.fold.buckets import Twin
from tests.servers_nats import NatsServer, running_nats
from tests.waiting import PATIENCE_S

QUICK = Batching(window_s=0.001)
T = TypeVar("T")


class Source:
    """A bucket of the memory twin that lives in the event loop of whoever follows it."""

    def __init__(self, *pairs: str, config: StoreConfig | None = None) -> None:
        self.twin = Twin(config)
        self.pairs = pairs
        self.loop: asyncio.AbstractEventLoop | None = None
        self.refusals: list[StrandlineError] = []
        self.connects = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[KvStore]:
        self.connects += 1
        if self.refusals:
            raise self.refusals.pop(0)
        if self.loop is None:
            await self.twin.start()
            await self.twin.put(*self.pairs)
        self.loop = asyncio.get_running_loop()
        await self.twin.connection.connect()
        yield self.twin.store

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Run something in the loop of the bucket."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def put(self, *pairs: str) -> int:
        self.do(self.twin.put(*pairs))
        return self.twin.log.last_revision


def following(
    source: Source,
    path: Path,
    *,
    scope: Scope = ALL,
    backend: Backend | None = None,
    on_change: Callable[[UpdateBatch], object] | None = None,
) -> FollowedFold:
    return follow(source.connect, path, scope=scope, backend=backend, batching=QUICK, on_change=on_change)


def test_a_fold_is_read_like_a_dictionary(tmp_path: Path) -> None:
    with following(Source("a.x=1", "a.y=2", "b=3"), tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
        assert fold["a.x"] == b"1"
        assert "b" in fold
        assert "c" not in fold
        assert cast("str", 7) not in fold
        assert fold.get("c", b"none") == b"none"
        with pytest.raises(KeyError):
            fold["c"]
        assert len(fold) == 3
        assert list(fold) == ["a.x", "a.y", "b"]
        assert dict(fold.items("a.")) == {"a.x": b"1", "a.y": b"2"}
        assert dict(fold) == {"a.x": b"1", "a.y": b"2", "b": b"3"}
        assert set(fold.values()) == {b"1", b"2", b"3"}
        entry = fold.entry("b")
        assert entry is not None
        assert int.from_bytes(entry.version, "big") == 3
        with pytest.raises(TypeError):
            fold["a"] = b"1"  # type: ignore[index]


def test_a_write_can_be_read_when_it_was_waited_for(tmp_path: Path) -> None:
    source = Source("a=1")
    with following(source, tmp_path / "fold") as fold:
        for number in range(20):
            revision = source.put(f"a={number}")
            assert fold.wait_for(revision, PATIENCE_S)["a"] == str(number).encode()
        assert fold.cursor == revision


def test_what_is_waited_for_too_long_is_not_yet(tmp_path: Path) -> None:
    with following(Source("a=1"), tmp_path / "fold") as fold:
        with pytest.raises(NotYet, match="revision 99"):
            fold.wait_for(99, 0.05)
        with pytest.raises(TimeoutError):
            fold.wait_for(99, 0)


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    source = Source("a=1", "b=2")
    with following(source, tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
    with following(source, tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
        assert dict(fold) == {"a": b"1", "b": b"2"}
        assert fold.status().updates == 0


def test_changes_are_told_when_they_are_stored(tmp_path: Path) -> None:
    source, told = Source("a=1"), []

    def on_change(batch: UpdateBatch) -> None:
        told.extend(batch.keys)
        assert threading.current_thread().name == "strandline-follow"

    with following(source, tmp_path / "fold", on_change=on_change) as fold:
        fold.wait_for(source.put("b=2", "-a"), PATIENCE_S)
    assert told == ["a", "b", "a"]


def test_what_on_change_raises_ends_the_fold_and_is_told_to_the_next_call(tmp_path: Path) -> None:
    def on_change(_: UpdateBatch) -> None:
        raise ZeroDivisionError

    fold = follow(Source("a=1").connect, tmp_path / "fold", batching=QUICK, on_change=on_change)
    with pytest.raises(ZeroDivisionError):
        fold.wait_current(PATIENCE_S)
    with pytest.raises(ZeroDivisionError):
        fold["a"]
    with pytest.raises(ZeroDivisionError):
        fold.close()
    fold.close()
    with pytest.raises(Closed):
        fold["a"]


def test_what_on_change_raises_ends_the_fold_though_it_looks_like_the_sources(tmp_path: Path) -> None:
    def on_change(_: UpdateBatch) -> None:
        raise ConnectionDropped

    fold = follow(Source("a=1").connect, tmp_path / "fold", batching=QUICK, on_change=on_change)
    with pytest.raises(ConnectionDropped):
        fold.wait_for(2, PATIENCE_S)
    with pytest.raises(ConnectionDropped):
        fold.close()


def test_on_change_may_close_the_fold(tmp_path: Path) -> None:
    made: list[FollowedFold] = []
    is_closed = threading.Event()

    def on_change(_: UpdateBatch) -> None:
        made[0].close()
        is_closed.set()

    source = Source()
    made.append(follow(source.connect, tmp_path / "fold", batching=QUICK, on_change=on_change))
    source.put("a=1")
    assert is_closed.wait(PATIENCE_S)
    made[0]._background._thread.join(PATIENCE_S)  # noqa: SLF001 - nobody else knows when it is over
    store = open_fold(tmp_path / "fold")
    assert [entry.key for entry in store.range()] == [b"a"]
    store.close()


def test_a_change_is_told_when_it_is_stored_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, told = Source(), threading.Event()
    apply, failures = AppendLogStore.apply, [CommitFailed("fold", "no space")]

    def struck(store: AppendLogStore, batch: FoldBatch, cursor: WatchCursor) -> None:
        if len(batch) and failures:
            raise failures.pop()
        apply(store, batch, cursor)

    monkeypatch.setattr(AppendLogStore, "apply", struck)
    with following(source, tmp_path / "fold", on_change=lambda _: told.set()) as fold:
        fold.wait_for(source.put("a=1"), PATIENCE_S)
        assert told.wait(PATIENCE_S), "though nothing came after it"


def test_progress_and_lag_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.02)
    with following(Source("a=1", "b=2"), tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while fold.lag is None and time.monotonic() < deadline:
            time.sleep(0.01)
        status = fold.status()
        assert (fold.lag, status.revision, status.updates, status.bytes) == (0, 2, 2, 4)
        assert (status.watches, status.repairs, status.trouble) == (1, 0, None)
        assert status.updates_per_s > 0
        assert fold.fold_cursor.revision == 2


def test_a_source_that_goes_away_is_found_again_and_reads_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, opens = Source("a=1"), []

    def counted(path: Path, backend: Backend) -> SnapshotStore:
        opens.append(path)
        return open_fold(path, backend)

    monkeypatch.setattr("strandline.fold.followed_fold.open_fold", counted)
    with following(source, tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
        source.refusals = [ConnectionDropped(), ConnectionDropped()]

        async def close() -> None:
            await source.twin.connection.shutdown()

        source.do(close())
        deadline = time.monotonic() + PATIENCE_S
        while source.refusals and time.monotonic() < deadline:
            assert fold["a"] == b"1"
            time.sleep(0.01)
        fold.wait_current(PATIENCE_S)
        assert source.connects == 4
        fold.wait_for(source.put("a=2"), PATIENCE_S)
        assert fold["a"] == b"2"
        assert fold.status().watches == 2
        assert len(opens) == 1, "the store stays open for its readers"


def test_a_first_failure_is_told_at_once_and_leaves_no_lock(tmp_path: Path) -> None:
    source = Source()
    source.refusals = [ConnectionDropped()]
    with pytest.raises(ConnectionDropped):
        follow(source.connect, tmp_path / "fold")
    with following(Source("a=1"), tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)


def test_a_repair_that_is_refused_is_told(tmp_path: Path) -> None:
    source = Source("a=1", config=StoreConfig(updates_max=2, discard=Discard.OLD))
    with follow(source.connect, tmp_path / "fold", mode=FoldMode.ARCHIVE, batching=QUICK) as fold:
        fold.wait_current(PATIENCE_S)

    async def miss() -> None:
        await source.twin.connection.connect()
        await source.twin.put("b=2", "c=3", "d=4")

    asyncio.run(miss())
    with pytest.raises(RepairRefused) as caught:
        follow(source.connect, tmp_path / "fold")
    assert caught.value.hint


def test_a_bucket_that_is_removed_is_told(tmp_path: Path) -> None:
    source = Source("a=1")
    fold = follow(source.connect, tmp_path / "fold", batching=QUICK)
    fold.wait_current(PATIENCE_S)

    async def remove() -> None:
        source.twin.server.remove_bucket("b")

    source.do(remove())
    with pytest.raises(BucketNotFound):
        fold.wait_for(99, PATIENCE_S)
    with pytest.raises(BucketNotFound):
        fold.close()


def test_a_store_that_fails_for_a_moment_is_opened_again_under_the_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, faults = AppendLogStore.apply, [1]

    def failing(self: AppendLogStore, batch: FoldBatch, cursor: WatchCursor) -> None:
        if faults and self.load() is not None:
            faults.pop()
            raise CommitFailed("fold", "as a test wants")
        apply(self, batch, cursor)

    monkeypatch.setattr(AppendLogStore, "apply", failing)
    source = Source("a=1")
    with following(source, tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
        fold.wait_for(source.put("a=2"), PATIENCE_S)
        assert fold["a"] == b"2"
        assert fold.status().store_failures == 1


def test_a_store_that_keeps_failing_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise CommitFailed("fold", "as a test wants")

    monkeypatch.setattr("strandline.fold.watch.flusher.RETRY_S_MAX", 0.001)
    monkeypatch.setattr(AppendLogStore, "apply", failing)
    fold = follow(Source("a=1").connect, tmp_path / "fold", batching=QUICK)
    with pytest.raises(StoreKeptFailing):
        fold.wait_current(PATIENCE_S)
    with pytest.raises(StoreKeptFailing):
        fold.close()


def test_two_folds_in_one_process_do_not_meet_but_one_path_is_locked_and_says_by_whom(tmp_path: Path) -> None:
    with following(Source("a=1"), tmp_path / "one") as one, following(Source("a=2"), tmp_path / "two.db") as two:
        one.wait_current(PATIENCE_S)
        two.wait_current(PATIENCE_S)
        assert (one["a"], two["a"]) == (b"1", b"2")
        with pytest.raises(Locked) as caught:
            follow(Source("a=3").connect, tmp_path / "one")
        hint = caught.value.hint or ""
        assert f"process {os.getpid()}" in hint
        assert "JournalReader" not in hint
        reader = open_read_only(tmp_path / "one")
        assert [entry.value for entry in reader.range()] == [b"1"]
        reader.close()


@pytest.mark.parametrize("backend", Backend)
def test_every_backend_can_be_asked_for(tmp_path: Path, backend: Backend) -> None:
    for _ in range(2):
        with following(Source("a=1"), tmp_path / "fold", backend=backend) as fold:
            fold.wait_current(PATIENCE_S)
            assert dict(fold) == {"a": b"1"}


def test_a_scope_is_followed(tmp_path: Path) -> None:
    with following(Source("a.x=1", "b.x=2"), tmp_path / "fold", scope=Scope.of("a.")) as fold:
        fold.wait_current(PATIENCE_S)
        assert dict(fold) == {"a.x": b"1"}


def test_it_works_in_the_thread_of_a_running_event_loop(tmp_path: Path) -> None:
    async def check() -> None:
        with following(Source("a=1"), tmp_path / "fold") as fold:
            fold.wait_current(PATIENCE_S)
            assert fold["a"] == b"1"

    asyncio.run(check())


def test_it_is_not_pickled(tmp_path: Path) -> None:
    with following(Source("a=1"), tmp_path / "fold") as fold, pytest.raises(NotSupported):
        pickle.dumps(fold)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_is_refused_and_does_not_disturb_its_parent(tmp_path: Path) -> None:
    source = Source("a=1")
    with following(source, tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)
        child = os.fork()
        if not child:
            code = 1
            try:
                fold["a"]
            except NotSupported:
                fold.close()
                code = 7
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        fold.wait_for(source.put("a=2"), PATIENCE_S)
        assert fold["a"] == b"2"


def test_an_error_in_the_block_is_what_is_raised(tmp_path: Path) -> None:
    def on_change(_: UpdateBatch) -> None:
        raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt), following(Source("a=1"), tmp_path / "fold", on_change=on_change):
        raise KeyboardInterrupt
    with following(Source("a=1"), tmp_path / "fold") as fold:
        fold.wait_current(PATIENCE_S)


@pytest.mark.parametrize(
    "address",
    [
        "nats://host",
        "host",
        "nats://u:secret@host/",
        "nats:///bucket",
        "http://host/bucket",
        "nats://u:secret,half@host/bucket",
        "nats://u:secret://half@host/bucket",
        "nats://u:secret:4222/bucket",
        "/",
        "",
    ],
)
def test_an_address_without_a_bucket_or_server_is_refused_without_its_secrets(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        follow(address, tmp_path / "fold")
    assert "secret" not in str(caught.value) + (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


# On a real server


def seed(server: NatsServer, bucket: str, *pairs: str) -> None:
    async def put() -> None:
        async with NatsConnection(server.url) as connection:
            writer = (await connection.store(bucket, StoreConfig())).writer()
            assert writer is not None
            for pair in pairs:
                key, _, value = pair.partition("=")
                await writer.put(key, value.encode())

    asyncio.run(put())


def test_a_bucket_on_a_server_is_followed_by_its_address(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    seed(nats_server, nats_bucket, "a=1", "b=2")
    with strandline.follow(f"{nats_server.url}/{nats_bucket}", tmp_path / "fold.db") as fold:
        fold.wait_current(PATIENCE_S)
        assert dict(fold) == {"a": b"1", "b": b"2"}
        seed(nats_server, nats_bucket, "c=3")
        assert fold.wait_for(3, PATIENCE_S)["c"] == b"3"
    assert (tmp_path / "fold.db").read_bytes().startswith(b"SQLite")


def test_a_bucket_that_does_not_exist_and_a_server_that_is_not_there_are_told(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    with pytest.raises(BucketNotFound):
        follow(f"{nats_server.url}/{nats_bucket}", tmp_path / "fold")
    with pytest.raises(StrandlineError) as caught:
        follow("nats://user:secret@127.0.0.1:9/b", tmp_path / "fold")
    assert "secret" not in str(caught.value)


def test_credentials_in_the_address_are_used(tmp_path: Path) -> None:
    users = 'authorization { users: [ { user: "u", password: "secret" } ] }'
    with running_nats(users) as server:

        async def create() -> None:
            async with NatsConnection(server.url_with("u:secret")) as connection:
                writer = (await connection.store("b", StoreConfig())).writer()
                assert writer is not None
                await writer.put("a", b"1")

        asyncio.run(create())
        with follow(f"{server.url_with('u:secret')}/b", tmp_path / "fold") as fold:
            assert fold.wait_current(PATIENCE_S)["a"] == b"1"
        with pytest.raises(StrandlineError) as caught:
            follow(f"{server.url_with('u:wrong-secret')}/b", tmp_path / "fold")
        assert "secret" not in str(caught.value)


def test_a_server_that_is_restarted_is_found_again(tmp_path: Path) -> None:
    with running_nats() as server:
        seed(server, "b", "a=1")
        with follow(f"{server.url}/b", tmp_path / "fold") as fold:
            fold.wait_current(PATIENCE_S)
            server.restart(kill=True)
            assert fold["a"] == b"1"
            seed(server, "b", "a=2")
            assert fold.wait_for(2, PATIENCE_S)["a"] == b"2"


def test_ctrl_c_ends_a_program_cleanly_and_its_fold_goes_on(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    seed(nats_server, nats_bucket, "a=1")
    address, path = f"{nats_server.url}/{nats_bucket}", tmp_path / "fold"
    code = (
        "import sys, strandline\n"
        "with strandline.follow(sys.argv[1], sys.argv[2]) as fold:\n"
        "    fold.wait_current(180)\n"
        "    print('ready', flush=True)\n"
        "    fold.wait_for(10**9, 60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, address, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(2)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1
    with follow(address, path) as fold:
        fold.wait_current(PATIENCE_S)
        assert fold.status().updates == 0
        assert fold["a"] == b"1"


def test_a_program_that_forgets_to_close_ends_all_the_same(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    seed(nats_server, nats_bucket, "a=1")
    code = (
        "import sys, strandline\n"
        "fold = strandline.follow(sys.argv[1], sys.argv[2]).wait_current(180)\n"
        "print(fold['a'].decode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{nats_server.url}/{nats_bucket}", str(tmp_path / "fold")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_importing_strandline_stays_cheap() -> None:
    code = "import sys, strandline; print(sorted({'nats', 'pyarrow', 'strandline.fold'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError):
        strandline.nothing  # noqa: B018
