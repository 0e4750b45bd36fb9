"""Every alarm is raised once when the real thing breaks, and resolved once when it is mended."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

from strandline.alarms import AlarmSettings, AlarmWatch
from strandline.alarms.alarm import KINDS
from strandline.alarms.watch import ConditionSource
from strandline.broker.conditions import server_conditions
from strandline.broker.embedded_server import serve
from strandline.broker.settings import ServerSettings
from strandline.detect import expand
from strandline.errors import StrandlineError
from strandline.kv import Discard, StoreConfig
from strandline.lease import Claimant, LeaseTiming, open_lease_store
from strandline.objects import MemoryObjects, StoreUnavailable
from strandline.replica import Follower, Node, Replicator, Role
from strandline.replica.conditions import follower_conditions, node_conditions, replicator_conditions
from strandline.replica.metrics import FollowerCounts, node_health
from tests.alarms.receiver import SECRET, WebhookServer, receiving
from tests.broker.durability.damage import damage
from tests.calls import strings_in_calls
from tests.cli.fold_buckets import Bucket
from tests.cli.runs import run_command
from tests.replica.databases import database, fill
from tests.replica.node_child import TIMING
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S, eventually

ONCE = ["raised", "resolved"]


@contextmanager
def watching(folder: Path, *sources: ConditionSource) -> Iterator[tuple[WebhookServer, AlarmWatch]]:
    """Raise alarms of sources for the block."""
    with receiving() as server:
        settings = AlarmSettings((server.url,), SECRET, outbox=folder / "outbox", look_every_s=0.05)
        with AlarmWatch(settings, *sources) as alarms:
            yield server, alarms


def test_replication_that_fails_and_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjects()

    def away(*_: object, **__: object) -> str:
        raise StoreUnavailable("memory:", "away")

    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
            with watching(tmp_path, lambda: replicator_conditions(running, 0.01)) as (server, _):
                with monkeypatch.context() as broken:
                    broken.setattr(store, "put", away)
                    fill(connection, 1, seed=1)
                    server.wait_raised("replication_failing")
                    server.wait_raised("replication_lagging")
                running.wait_durable(PATIENCE_S)
                server.wait_mended("replication_failing")
                server.wait_mended("replication_lagging")


def test_a_stream_with_lost_messages(tmp_path: Path) -> None:
    async def publish() -> None:
        async with serve(ServerSettings(port=0, store_dir=tmp_path / "store")) as server:
            client = await nats.connect(server.url, connect_timeout=PATIENCE_S)
            js = client.jetstream(timeout=PATIENCE_S)
            await js.add_stream(name="orders", subjects=["orders"])
            for number in range(4):
                await js.publish("orders", b"payload %d" % number)
            await client.close()

    async def accept() -> None:
        async with serve(ServerSettings(port=0, store_dir=tmp_path / "store")) as server:

            def wait_and_see() -> None:
                with watching(tmp_path, lambda: server_conditions(server)) as (received, _):
                    received.wait_raised("stream_lost_messages")
                    asyncio.run_coroutine_threadsafe(accepted(server.url), server.loop).result(PATIENCE_S)
                    received.wait_mended("stream_lost_messages")

            await asyncio.to_thread(wait_and_see)

    async def accepted(url: str) -> None:
        client = await nats.connect(url, connect_timeout=PATIENCE_S)
        await client.request("$JS.API.STREAM.LOST.ACCEPT.orders", b"", timeout=PATIENCE_S)
        await client.close()

    asyncio.run(publish())
    damage(tmp_path / "store", b"payload 2")
    asyncio.run(accept())


@contextmanager
def command(folder: Path, *arguments: str, before: str = "") -> Iterator[WebhookServer]:
    """Run a command in a process of its own for the block, with a file that names a receiver of alarms."""
    with receiving() as server:
        (folder / "strandline.toml").write_text(
            f'[alarms]\nwebhook = ["{server.url}"]\nwebhook-secret = {{ env = "HOOK_SECRET" }}\n'
            'outbox = "outbox"\nlook-every = 0.05\n'
        )
        program = [sys.executable, "-c", f"{before}\nfrom strandline.cli.app import main; main()"]
        child = subprocess.Popen(
            [*program, *arguments],
            cwd=folder,
            env={**os.environ, "HOOK_SECRET": SECRET},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield server
            assert child.poll() is None, f"{arguments} ended by itself"
        finally:
            child.terminate()
            child.wait(PATIENCE_S)


def test_an_artifact_below_the_floor_of_the_log(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> None:
    bucket, artifacts = Bucket(nats_server, nats_bucket, tmp_path), (tmp_path / "artifacts").as_uri()
    (tmp_path / "artifacts").mkdir()

    def publish() -> None:
        assert bucket.fold(name="published").code == 0
        assert run_command("fold", "publish", tmp_path / "published", artifacts).code == 0

    bucket.write(*((f"old.{at}", b"x") for at in range(5)), config=StoreConfig(updates_max=5, discard=Discard.OLD))
    publish()
    sooner = "import strandline.cli.fold_run as run; run.ARTIFACT_LOOK_EVERY_S = 0.05"
    running = ("fold", "run", bucket.address, "kept", "--bootstrap", artifacts)
    with command(tmp_path, *running, before=sooner) as server:
        eventually((tmp_path / "kept").exists, "it is made of the artifact")
        bucket.write(*((f"new.{at}", b"y") for at in range(8)))
        server.wait_raised("artifact_below_floor")
        publish()
        server.wait_mended("artifact_below_floor")


def test_a_lease_that_expires_and_is_taken_without_a_release(tmp_path: Path) -> None:
    address = tmp_path.as_uri()

    def candidate(name: str, ttl_s: float) -> Claimant:
        return Claimant(open_lease_store(address, "lease"), name, timing=LeaseTiming(ttl_s, ttl_s / 6, ttl_s / 8))

    assert candidate("first", 0.5).claim() is not None
    with command(tmp_path, "lease", "watch", address, "lease", "--interval", "0.05") as server:
        server.wait_raised("lease_lost")
        second = candidate("second", 600.0)
        eventually(second.claim, "the first has not released it, and does not renew it")
        server.wait_raised("lease_contested")
        server.wait_mended("lease_lost")
        assert second.renew() is not None
        server.wait_mended("lease_contested")


class Away(MemoryObjects):
    """A store that can be away."""

    is_away = False

    def get(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of a store
        self._check()
        return super().get(*arguments, **options)

    def put(self, *arguments: Any, **options: Any) -> str:  # noqa: ANN401 - those of a store
        self._check()
        return super().put(*arguments, **options)

    def list(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of a store
        self._check()
        return super().list(*arguments, **options)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("memory:", "away")


def test_a_follower_whose_store_is_away(tmp_path: Path) -> None:
    store, counts = Away(), FollowerCounts("copy")
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
    with closing(Follower(store, tmp_path / "copy.db")) as follower:

        def look() -> None:
            try:
                counts.caught_up(follower.catch_up())
            except StrandlineError as error:
                counts.failed(error)

        look()
        with watching(tmp_path, lambda: follower_conditions(counts, "copy", PATIENCE_S)) as (server, _):
            store.is_away = True
            look()
            server.wait_raised("replication_failing")
            assert not counts.health().readiness().is_well
            store.is_away = False
            look()
            server.wait_mended("replication_failing")
            assert counts.health().readiness().is_well


def test_a_replica_whose_only_node_loses_its_lease(tmp_path: Path) -> None:
    store = Away()
    with database(tmp_path / "a.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
    node = Node(tmp_path / "a.db", store, "a", address="http://a", timing=TIMING, follow_every_s=0.05)
    with node:
        eventually(lambda: node.role is Role.LEADER, "it leads")
        with watching(tmp_path, lambda: node_conditions(node, PATIENCE_S)) as (server, _):
            store.is_away = True
            server.wait_raised("lease_lost")
            assert not node_health(node).readiness().is_well
            store.is_away = False
            server.wait_mended("lease_lost")
            eventually(lambda: node_health(node).readiness().is_well, "it leads again")


def test_every_kind_of_alarm_is_broken_and_mended_by_a_test() -> None:
    files = Path(__file__).resolve().parent.parent.rglob("test_*.py")
    mended = set[str]().union(*(strings_in_calls(file, "wait_mended") for file in files))
    assert mended == set(KINDS), "break the thing and mend it, and call `WebhookServer.wait_mended`"


def test_findings_are_an_alarm_until_none_is_open_and_no_byte_of_a_secret_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = expand("GITHUB_TOKEN={{github-crc32:ghp_}}\n", "a seed")
    secret = line.partition("=")[2].strip()
    (tmp_path / "files").mkdir()
    leak = tmp_path / "files" / "config.txt"
    leak.write_text(line)
    monkeypatch.chdir(tmp_path)
    with receiving() as server:
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        (tmp_path / "strandline.toml").write_text(
            f'[alarms]\nwebhook = ["{server.url}"]\nwebhook-secret = {{ env = "HOOK_SECRET" }}\noutbox = "outbox"\n'
        )
        command = ("scan", "files", "--without-spark", "--exit-zero", "--quiet")
        for _ in range(2):  # the same findings are told once
            assert run_command(*command).code == 0
        server.wait_raised("findings")
        leak.unlink()
        assert run_command(*command).code == 0
        server.wait_mended("findings")
        told = b"".join(server.bodies)
        assert secret.encode() not in told
        assert b"config.txt" not in told
        monkeypatch.setattr("strandline.cli.scan.run_scan", _broken)
        assert run_command(*command).code == 1
        server.wait_raised("scan_stopped")
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        assert run_command(*command).code == 0
        server.wait_mended("scan_stopped")
        (tmp_path / "list").write_text("nowhere\n")
        assert run_command("scan", "--repos", "list", *command[2:]).code == 1
        assert server.states("scan_stopped") == [*ONCE, "raised"], "none of a list could be scanned"
        assert server.states("findings") == ONCE, "nothing is known of them"


def _broken(*_: object) -> None:
    raise StoreUnavailable("state", "the disk is full")
