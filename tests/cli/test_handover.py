"""`strandline handover` moves a stream of ours into a real nats-server, and says what is in the way."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from strandline.broker.embedded_server import running
from strandline.broker.mirrors.handover import _Target
from strandline.broker.streams import OriginBatch
from strandline.nats.errors import ConnectionDropped
from tests.broker.mirrors.hub import Hub
from tests.cli.runs import run_command
from tests.servers_nats import NatsServer, fresh_bucket
from tests.waiting import PATIENCE_S

HANDOVER = [sys.executable, "-c", "from strandline.cli import main; main()", "handover"]


@pytest.fixture
def ours() -> Iterator[Hub]:
    with running() as url, closing(Hub(url)) as hub:
        yield hub


@pytest.fixture
def theirs(nats_server: NatsServer) -> Iterator[Hub]:
    with closing(Hub(nats_server.url)) as hub:
        yield hub


@pytest.fixture
def name(ours: Hub, theirs: Hub) -> str:
    """A stream of ours with seven messages, and an empty one of theirs, below `old`."""
    name = f"O{fresh_bucket()}"
    ours.create(name, subjects=[f"{name}.>"])
    ours.publish(*(f"{name}.{number}" for number in range(7)))
    theirs.create(f"{name}-OLD", subjects=[f"old.{name}.>"])
    return name


def address(hub: Hub, stream: str) -> str:
    return f"{hub.settings.urls[0]}/{stream}"


def test_a_stream_is_handed_over_and_the_rest_of_it_later(ours: Hub, theirs: Hub, name: str) -> None:
    arguments = ["handover", address(ours, name), address(theirs, f"{name}-OLD"), "--prefix", "old"]
    ran = run_command(*arguments, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["published"], told["pending"]) == (0, 7, 0)
    assert told["to"] == f"{theirs.settings.addresses}/{name}-OLD"
    ours.publish(f"{name}.late", first=7)
    again = run_command(*arguments)
    assert again.code == 0
    assert re.search(r"published +1 *\n", again.out)
    assert [(message.subject, message.payload) for message in theirs.messages(f"{name}-OLD")] == [
        (b"old." + message.subject, message.payload) for message in ours.messages(name)
    ]


def test_it_follows_until_it_is_told_to_stop(ours: Hub, theirs: Hub, name: str) -> None:
    command = [*HANDOVER, address(ours, name), address(theirs, f"{name}-OLD"), "--prefix", "old", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            theirs.until(f"{name}-OLD", 7)
            ours.publish(f"{name}.late")
            theirs.until(f"{name}-OLD", 8)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["published"] in (7, 8)  # the signal may come before the answer to the last one


def test_it_goes_on_when_a_server_was_away(theirs: Hub, name: str, ours: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    send, faults = _Target.publish, [ConnectionDropped()]

    def then_drop(target: _Target, batch: OriginBatch) -> None:
        send(target, batch)
        if faults:
            raise faults.pop()

    monkeypatch.setattr(_Target, "publish", then_drop)
    monkeypatch.setattr("strandline.cli.handover.PAUSE_S", 0.01)
    ran = run_command("handover", address(ours, name), address(theirs, f"{name}-OLD"), "--prefix", "old", "--json")
    assert ran.code == 0
    assert "; trying again\n" in ran.err
    assert theirs.last_seq(f"{name}-OLD") == 7


@pytest.mark.parametrize(
    ("origin", "target", "text"),
    [
        ("{ours}/{name}", "{theirs}/nowhere", "there is no stream 'nowhere' at "),
        ("{ours}/{name}", "{theirs}/nowhere", "hint: make it first, with subjects of its own: nats stream add nowhere"),
        ("{ours}/nothing", "{theirs}/{name}-OLD", "hint: check the name; `nats stream ls` lists what is there"),
        ("{ours}/{name}", "{ours}/{name}", "FROM and TO are one stream"),
        ("{ours}", "{theirs}/{name}-OLD", "an address names no stream"),
        ("nats://ann:secret@127.0.0.1:1/x", "{theirs}/{name}-OLD", "127.0.0.1:1"),
        ("{ours}/{name}", "{theirs}/{name}-OLD", "takes nothing that is published on subjects of"),
    ],
)
def test_what_is_in_the_way_is_said_with_a_hint(
    ours: Hub, theirs: Hub, name: str, origin: str, target: str, text: str
) -> None:
    places = {"ours": ours.settings.urls[0], "theirs": theirs.settings.urls[0], "name": name}
    ran = run_command("handover", origin.format(**places), target.format(**places))
    assert ran.code == 1
    assert text in ran.err
    assert "\nhint: " in ran.err
    assert "secret" not in ran.err
