"""Every alarm is raised once when the real thing breaks, and resolved once when it is mended."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest

from strandline.alarms import AlarmSettings, AlarmWatch, Condition
from strandline.alarms.watch import ConditionSource
from strandline.artifacts.metrics import ArtifactState
from strandline.broker.conditions import server_conditions
from strandline.broker.embedded_server import serve
from strandline.broker.settings import ServerSettings
from strandline.cli.lease_watch import lease_conditions
from strandline.detect import expand
from strandline.kv import Retention
from strandline.lease import LeaseRecord
from strandline.objects import MemoryObjects, StoreUnavailable
from strandline.replica import Replicator
from strandline.replica.conditions import replicator_conditions
from tests.alarms.receiver import SECRET, WebhookServer, receiving
from tests.artifacts.fleet import Fleet
from tests.broker.durability.damage import damage
from tests.cli.runs import run_command
from tests.replica.databases import database, fill
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
                    eventually(lambda: server.states("replication_failing") == ["raised"], "it fails")
                    eventually(lambda: server.states("replication_lagging") == ["raised"], "it lags")
                running.wait_durable(PATIENCE_S)
                eventually(lambda: server.states("replication_failing") == ONCE, "it is mended")
                eventually(lambda: server.states("replication_lagging") == ONCE, "it is mended")


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
                    eventually(lambda: received.states("stream_lost_messages") == ["raised"], "a loss")
                    asyncio.run_coroutine_threadsafe(accepted(server.url), server.loop).result(PATIENCE_S)
                    eventually(lambda: received.states("stream_lost_messages") == ONCE, "it is accepted")

            await asyncio.to_thread(wait_and_see)

    async def accepted(url: str) -> None:
        client = await nats.connect(url, connect_timeout=PATIENCE_S)
        await client.request("$JS.API.STREAM.LOST.ACCEPT.orders", b"", timeout=PATIENCE_S)
        await client.close()

    asyncio.run(publish())
    damage(tmp_path / "store", b"payload 2")
    asyncio.run(accept())


def test_an_artifact_below_the_floor_of_the_log(tmp_path: Path) -> None:
    fleet, state = Fleet(MemoryObjects(), tmp_path), ArtifactState("f")

    def retention(first: int) -> Retention:
        return Retention(evicts_current_values=False, first_revision=first, last_revision=300, identity=b"identity")

    fleet.write(*(f"key.{at}" for at in range(20)))
    fleet.artifacts.publish(fleet.export())
    state.look(fleet.artifacts, retention(90))
    with watching(tmp_path, lambda: [Condition("artifact_below_floor", "f", state.problem)]) as (server, _):
        eventually(lambda: server.states("artifact_below_floor") == ["raised"], "the floor has passed it")
        fleet.write(*(f"more.{at}" for at in range(100)))
        fleet.artifacts.publish(fleet.export())
        state.look(fleet.artifacts, retention(90))
        eventually(lambda: server.states("artifact_below_floor") == ONCE, "a newer one")


def test_a_lease_that_expires_or_is_taken(tmp_path: Path) -> None:
    def record(epoch: int, holder: str, nonce: int) -> LeaseRecord:
        return LeaseRecord(epoch, holder, "", holder, nonce, 10**9)

    first, taken, renewed = record(1, "a", 1), record(2, "b", 2), record(2, "b", 3)
    looks = [(None, first, "held"), (first, first, "expired"), (first, taken, "held"), (taken, renewed, "held")]
    with watching(tmp_path) as (server, alarms):
        for before, now, state in looks:
            for condition in lease_conditions("file:///l", before, now, state):
                alarms.tell(condition)
        eventually(lambda: server.states("lease_lost") == ONCE, "it expired")
        eventually(lambda: server.states("lease_contested") == ONCE, "another took it")


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
        assert server.states("findings") == ["raised"]
        leak.unlink()
        assert run_command(*command).code == 0
        assert server.states("findings") == ONCE
        told = b"".join(server.bodies)
        assert secret.encode() not in told
        assert b"config.txt" not in told
        monkeypatch.setattr("strandline.cli.scan.run_scan", _broken)
        assert run_command(*command).code == 1
        assert server.states("scan_stopped") == ["raised"]
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        assert run_command(*command).code == 0
        assert server.states("scan_stopped") == ONCE
        (tmp_path / "list").write_text("nowhere\n")
        assert run_command("scan", "--repos", "list", *command[2:]).code == 1
        assert server.states("scan_stopped") == [*ONCE, "raised"], "none of a list could be scanned"
        assert server.states("findings") == ONCE, "nothing is known of them"


def _broken(*_: object) -> None:
    raise StoreUnavailable("state", "the disk is full")
