"""The way from a real server into ours, and out again, while both go on."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strandline.broker.mirrors.handover import HandOver, NotOurs, _Target
from strandline.broker.serving import running
from strandline.broker.settings import ServerSettings
from strandline.kv.nats import NatsSettings
from tests.broker.mirrors.hub import API, EXTERNAL, Hub
from tests.servers_nats import NatsServer, fresh_bucket


@pytest.fixture
def ours(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hub]:
    settings = ServerSettings(port=0, store_dir=tmp_path, remotes={API: NatsSettings(nats_server.url)})
    with running(settings) as url, closing(Hub(url)) as hub:
        yield hub


@pytest.fixture
def theirs(nats_server: NatsServer) -> Iterator[Hub]:
    with closing(Hub(nats_server.url)) as hub:
        yield hub


def test_a_stream_moves_to_our_server_and_goes_on_there_under_its_sequences(ours: Hub, theirs: Hub) -> None:
    name = f"O{fresh_bucket()}"
    theirs.create(name, subjects=[f"{name}.>"], allow_direct=True)
    theirs.publish(*(f"{name}.{number % 3}" for number in range(50)))
    ours.create(name, mirror={"name": name, "external": EXTERNAL})
    ours.until(name, 50)
    theirs.publish(f"{name}.late")
    ours.until(name, 51)
    assert ours.messages(name) == theirs.messages(name)
    told = ours.api(f"STREAM.INFO.{name}")["mirror"]
    assert (told["lag"], "error" in told) == (0, False)
    ours.api(f"STREAM.UPDATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_direct": True})
    ours.publish(f"{name}.here")
    assert ours.last_seq(name) == 52
    assert "mirror" not in ours.api(f"STREAM.INFO.{name}")


def test_a_stream_is_handed_over_to_a_real_server_while_both_are_published_to(ours: Hub, theirs: Hub) -> None:
    name = f"O{fresh_bucket()}"
    ours.create(name, subjects=[f"{name}.>"])
    ours.publish(*(f"{name}.{number % 3}" for number in range(700)), headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    ours.publish(f"{name}.a", f"{name}.b", headers=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    count = ours.last_seq(name)
    assert count == 702
    transform = {"src": "old.>", "dest": ">"}
    theirs.create(f"{name}-OLD", subjects=[f"old.{name}.>"])
    theirs.create(name, subjects=[f"{name}.>"], sources=[{"name": f"{name}-OLD", "subject_transforms": [transform]}])
    handing = HandOver(ours.settings, name, theirs.settings, f"{name}-OLD", prefix="old")
    assert handing.run() == count
    assert handing.run() == 0
    theirs.publish(f"{name}.new")
    ours.publish(f"{name}.late")
    assert handing.run() == 1
    theirs.until(name, count + 2)
    found = [(message.subject, message.payload) for message in theirs.messages(name)]
    assert [row for row in found if row[0] != f"{name}.new".encode()] == [
        (message.subject, message.payload) for message in ours.messages(name)
    ]


def test_a_stream_that_others_publish_into_is_refused(ours: Hub, theirs: Hub) -> None:
    name = f"O{fresh_bucket()}"
    for hub in (ours, theirs):
        hub.create(name, subjects=[name])
    ours.publish(*[name] * 3)
    handing = HandOver(ours.settings, name, theirs.settings, name)
    assert handing.run() == 3
    theirs.publish(name)
    ours.publish(name)
    with pytest.raises(NotOurs):
        handing.run()
    assert theirs.last_seq(name) == 4


@pytest.mark.parametrize(("step", "stored"), [("start", 1), ("_send", 2)])
def test_what_follows_is_not_stored_when_somebody_publishes_meanwhile(
    ours: Hub, theirs: Hub, monkeypatch: pytest.MonkeyPatch, step: str, stored: int
) -> None:
    name = f"O{fresh_bucket()}"
    for hub in (ours, theirs):
        hub.create(name, subjects=[name])
    ours.publish(*[name] * 4)
    original = getattr(_Target, step)

    def and_then_somebody_else(target: _Target, given: object) -> object:
        found = original(target, given)
        theirs.publish(name)
        return found

    monkeypatch.setattr(_Target, step, and_then_somebody_else)
    with pytest.raises(NotOurs):
        HandOver(ours.settings, name, theirs.settings, name).run()
    assert theirs.last_seq(name) == stored
