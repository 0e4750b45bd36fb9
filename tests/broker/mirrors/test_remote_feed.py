"""Mirrors and sources of streams of a real nats-server, over the wire."""

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strandline.broker.embedded_server import serve
from strandline.broker.mirrors import service
from strandline.broker.mirrors.source_names import short_hash
from strandline.broker.settings import AccountSettings, ServerSettings
from strandline.nats import NatsSettings
from tests.broker.mirrors.hub import API, EXTERNAL, Hub
from tests.broker.mirrors.world import MirrorAccount
from tests.servers_nats import SYNC_ALWAYS, NatsServer, running_nats

HEAD = b"NATS/1.0\r\n"


@pytest.fixture
def hub(nats_server: NatsServer) -> Iterator[Hub]:
    with closing(Hub(nats_server.url)) as hub:
        yield hub


@pytest.fixture
def world(hub: Hub) -> Iterator[MirrorAccount]:
    world = MirrorAccount(remotes=hub.remotes)
    yield world
    world.close()


@pytest.fixture
def name() -> str:
    return f"O{uuid.uuid4().hex[:8]}"


def test_a_mirror_of_a_remote_stream_is_the_same_to_the_last_nanosecond(
    world: MirrorAccount, hub: Hub, name: str
) -> None:
    hub.create(name, subjects=[f"{name}.>"])
    hub.publish(*(f"{name}.{number % 3}" for number in range(10)), headers=HEAD + b"A: b\r\n\r\n")
    hub.api(f"STREAM.MSG.DELETE.{name}", {"seq": 4})
    world.create("M", mirror={"name": name, "external": EXTERNAL})
    world.until(lambda: world.service.streams["M"].last_seq == 10)
    assert world.messages("M") == hub.messages(name)
    hub.publish(f"{name}.live")
    world.until(lambda: world.service.streams["M"].last_seq == 11)
    assert world.messages("M") == hub.messages(name)
    told = world.info("M")["mirror"]
    assert (told["lag"], told["external"], told.get("error")) == (0, EXTERNAL, None)
    assert 0 < told["active"] < 600 * 10**9


def test_a_source_of_a_remote_stream_is_signed_as_the_real_server_signs_its_own(
    world: MirrorAccount, hub: Hub, name: str
) -> None:
    hub.create(name, subjects=[f"{name}.>"])
    hub.publish(*(f"{name}.m.{number}" for number in range(5)))
    source = {"name": name, "subject_transforms": [{"src": f"{name}.m.*", "dest": "t.{{wildcard(1)}}"}]}
    hub.create(f"{name}S", sources=[source])
    world.create("S", sources=[{**source, "external": EXTERNAL}])
    world.until(lambda: world.service.streams["S"].last_seq == 5 and hub.last_seq(f"{name}S") == 5)
    ours = [(message.subject, message.headers, message.payload) for message in world.messages("S")]
    theirs = [(message.subject, message.headers, message.payload) for message in hub.messages(f"{name}S")]
    here = f"Source: {name}:{short_hash(API)} ".encode()
    assert [
        (subject, block.replace(here, f"Source: {name} ".encode()), body) for subject, block, body in ours
    ] == theirs


def test_filters_and_starts_are_asked_of_the_remote(world: MirrorAccount, hub: Hub, name: str) -> None:
    hub.create(name, subjects=[f"{name}.>"], retention="workqueue")
    hub.publish(*(f"{name}.{number % 2}" for number in range(8)))
    common = {"name": name, "external": EXTERNAL}
    world.create("LATER", mirror={**common, "opt_start_seq": 7})
    world.create("SOME", mirror={**common, "filter_subject": f"{name}.1"})
    moment = hub.api(f"STREAM.MSG.GET.{name}", {"seq": 6})["message"]["time"]
    world.create("SINCE", sources=[{**common, "opt_start_time": moment}])
    world.until(lambda: all(world.service.streams[copy].last_seq for copy in ("LATER", "SOME", "SINCE")))
    world.until(lambda: len(world.messages("LATER")) == 2 and len(world.messages("SINCE")) == 3)
    world.until(lambda: world.service.streams["SOME"].last_seq == 8)
    assert [message.sequence for message in world.messages("SOME")] == [2, 4, 6, 8]


def test_purged_and_made_anew_as_the_real_server_treats_it(
    world: MirrorAccount, hub: Hub, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.broker.mirrors.nats_origin.HEARTBEAT_S", 0.2)
    hub.create(name, subjects=[name])
    hub.publish(*[name] * 3)
    world.create("M", mirror={"name": name, "external": EXTERNAL})
    world.create("S", sources=[{"name": name, "external": EXTERNAL}])
    both = [world.service.streams[copy] for copy in "MS"]
    world.until(lambda: all(stream.last_seq == 3 for stream in both))
    hub.api(f"STREAM.PURGE.{name}")
    hub.publish(name)
    world.until(lambda: all(stream.last_seq == 4 for stream in both))
    hub.api(f"STREAM.DELETE.{name}")
    world.until(lambda: world.info("M")["mirror"].get("error", {}).get("err_code") == 10059)
    hub.create(name, subjects=[name])
    hub.publish(*[name] * 6, first=100)
    world.until(lambda: [stream.last_seq for stream in both] == [6, 10])
    assert [message.payload for message in world.messages("M")][4:] == [b"104", b"105"]
    assert [message.payload for message in world.messages("S")][4:] == [b"%d" % number for number in range(100, 106)]


def test_a_copy_outlives_kills_of_its_origin_and_restarts_of_its_own(tmp_path: Path) -> None:
    with running_nats(jetstream=SYNC_ALWAYS) as server, closing(Hub(server.url)) as hub:
        hub.create("O", subjects=["o"])
        for part in range(3):
            world = MirrorAccount(tmp_path, hub.remotes)
            if not part:
                world.create("M", mirror={"name": "O", "external": EXTERNAL})
                world.create("S", sources=[{"name": "O", "external": EXTERNAL}])
            hub.publish(*["o"] * 200, first=200 * part)
            world.until_last(200 * part + 50, "S")
            hub.close()
            server.kill()
            server.start()
            world.until_last(200 * part + 120, "M")
            world.close()
        world = MirrorAccount(tmp_path, hub.remotes)
        world.until_last(600, "M", "S")
        expected = [b"%d" % number for number in range(600)]
        assert [message.payload for message in world.messages("M")] == expected
        assert [message.payload for message in world.messages("S")] == expected
        world.close()


def test_a_copy_goes_on_after_its_origin_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.mirrors.nats_origin.HEARTBEAT_S", 0.1)
    with running_nats() as server, closing(Hub(server.url)) as hub:
        world = MirrorAccount(remotes=hub.remotes)
        hub.create("O", subjects=["o"])
        world.create("M", mirror={"name": "O", "external": EXTERNAL})
        hub.publish("o")
        world.until_last(1, "M")
        os.kill(server.pid, signal.SIGSTOP)
        world.until(lambda: world.info("M")["mirror"]["active"] > 6 * 10**8)
        os.kill(server.pid, signal.SIGCONT)
        hub.publish("o")
        world.until_last(2, "M")
        assert world.messages("M") == hub.messages("O")
        world.close()


def test_who_cannot_be_reached_is_told_and_tried_again() -> None:
    world = MirrorAccount(remotes={API: NatsSettings("nats://127.0.0.1:1", timeout_s=1.0)})
    world.create("M", mirror={"name": "O", "external": EXTERNAL})
    world.until(lambda: "error" in world.info("M")["mirror"])
    told = world.info("M")["mirror"]
    assert (told["active"], told["error"]["err_code"], "127.0.0.1:1" in told["error"]["description"]) == (
        -1,
        10029,
        True,
    )
    world.close()


def test_an_account_has_so_many_connections_to_remotes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REMOTE_FEEDS_MAX", 2)
    world = MirrorAccount(remotes={API: NatsSettings("nats://127.0.0.1:1", timeout_s=1.0)})
    for name in ("A", "B", "C"):
        world.create(name, mirror={"name": "O", "external": EXTERNAL})
    assert "no more than 2" in world.info("C")["mirror"]["error"]["description"]
    world.delete("A")
    world.create("D", mirror={"name": "O", "external": EXTERNAL})
    assert "no more than" not in str(world.info("D")["mirror"])
    world.close()


def test_an_account_does_not_copy_with_the_credentials_of_another() -> None:
    remotes = {API: NatsSettings("nats://127.0.0.1:1", timeout_s=1.0)}
    accounts = (AccountSettings(), AccountSettings("A", remotes=remotes), AccountSettings("B"))
    config = json.dumps({"name": "M", "mirror": {"name": "O", "external": EXTERNAL}}).encode()

    async def unknown(settings: ServerSettings) -> set[str]:
        found = set()
        async with serve(settings) as server:
            for name, jetstream in server.jetstreams.items():
                jetstream.streams.request("$JS.API.STREAM.CREATE.M", b"", config, 0)
                jetstream.follow("M")
                answer = jetstream.streams.request("$JS.API.STREAM.INFO.M", b"", b"", 0)
                found |= {name} if "no remote is configured" in str(answer) else set()
        return found

    assert asyncio.run(unknown(ServerSettings(port=0, accounts=accounts))) == {"$G", "B"}
    assert asyncio.run(unknown(ServerSettings(port=0, accounts=accounts, remotes=remotes))) == {"B"}
