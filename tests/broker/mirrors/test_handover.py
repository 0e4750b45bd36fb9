"""The way from a real server into ours, and out again, while both go on."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from strandline.broker.embedded_server import running
from strandline.broker.mirrors.handover import HandOver, NotOurs, _Target
from strandline.broker.settings import ServerSettings
from strandline.nats import NatsSettings
from tests.broker.mirrors.hub import API, EXTERNAL, Hub
from tests.servers_nats import NatsServer, fresh_bucket
from tests.waiting import PATIENCE_S

STRANDLINE = [sys.executable, "-c", "from strandline.cli import main; main()"]


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


def test_a_stream_is_handed_over_to_a_real_server_and_goes_on_where_it_was(ours: Hub, theirs: Hub) -> None:
    name = f"O{fresh_bucket()}"
    ours.create(name, subjects=[f"{name}.>"])
    ours.publish(*(f"{name}.{number % 3}" for number in range(700)), headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    ours.publish(f"{name}.a", f"{name}.b", headers=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    count = ours.last_seq(name)
    assert count == 702
    handing = handing_over(ours, theirs, name)
    assert handing.run() == count
    assert handing.run() == 0
    theirs.publish(f"{name}.new")
    ours.publish(f"{name}.late")
    assert handing.run() == 1
    theirs.until(name, count + 2)
    check_handed_over(ours, theirs, name)


def test_a_stream_is_handed_over_to_a_real_server_while_both_are_published_to_and_it_is_killed(
    ours: Hub, theirs: Hub
) -> None:
    name = f"O{fresh_bucket()}"
    ours.create(name, subjects=[f"{name}.>"])
    ours.publish(*(f"{name}.{number % 3}" for number in range(600)))
    handing = handing_over(ours, theirs, name)
    over = threading.Event()

    def publish(settings: NatsSettings, *subjects: str) -> int:
        count = 0
        with closing(Hub(settings.urls[0])) as hub:
            while not over.wait(0.02):
                hub.publish(*subjects, first=count)
                count += len(subjects)
        return count

    counts = []
    with ThreadPoolExecutor(2) as publishers:
        publishing = [
            publishers.submit(publish, ours.settings, *[f"{name}.late"] * 5),
            publishers.submit(publish, theirs.settings, f"{name}.new"),
        ]
        try:
            for _ in range(3):
                # It dies somewhere between its first message and its last: there is always more to come.
                die_handing_over(handing, until=lambda at: theirs.last_seq(f"{name}-OLD") > at + 100)
                counts.append((ours.last_seq(name), theirs.last_seq(f"{name}-OLD"), theirs.last_seq(name)))
        finally:
            over.set()
        counted = [done.result() for done in publishing]
    assert all(earlier[each] < later[each] for earlier, later in pairwise(counts) for each in range(3)), counts
    handing.run()
    theirs.until(name, ours.last_seq(name) + counted[1])
    check_handed_over(ours, theirs, name)


def handing_over(ours: Hub, theirs: Hub, name: str) -> HandOver:
    """Make the streams of the other server: one that is published into, and the final one, which sources from it."""
    transform = {"src": "old.>", "dest": ">"}
    theirs.create(f"{name}-OLD", subjects=[f"old.{name}.>"])
    theirs.create(name, subjects=[f"{name}.>"], sources=[{"name": f"{name}-OLD", "subject_transforms": [transform]}])
    return HandOver(ours.settings, name, theirs.settings, f"{name}-OLD", prefix="old")


def die_handing_over(handing: HandOver, until: Callable[[int], bool]) -> None:
    """Hand a stream over in a process that is killed when something is so, by the sequence that it began at."""
    here, there = handing.origin.urls[0], handing.target.urls[0]
    command = ["handover", f"{here}/{handing.stream}", f"{there}/{handing.into}", "--prefix", handing.prefix]
    with closing(Hub(there)) as hub:
        began_at = hub.last_seq(handing.into)
    process = subprocess.Popen([*STRANDLINE, *command, "--follow", "--quiet"])
    try:
        give_up = time.monotonic() + PATIENCE_S
        while not until(began_at):
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < give_up
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()


def check_handed_over(ours: Hub, theirs: Hub, name: str) -> None:
    """Everything that our server has is there once and in order, among what was published there."""
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
