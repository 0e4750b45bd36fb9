"""Reads share the loop: reads that take long go on in later cycles, and a read that nobody hears is not done."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.broker.streams.stream import Stream
from tests.broker.jetstream.fakes import FakeAccount

GET = "$JS.API.STREAM.MSG.GET.S"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeAccount]:
    world = FakeAccount(tmp_path)
    world.stream("S", "s.>", allow_direct=True)
    world.routes.publish(("s.1", b"<one>", ""))
    world.turn()
    world.settle()
    yield world
    world.close()


def _count(monkeypatch: pytest.MonkeyPatch, world: FakeAccount, *, takes_s: float = 0) -> list[int]:
    """Note every message that is read, which takes a while."""
    calls: list[int] = []

    def counted(name: str) -> None:
        method = getattr(Stream, name)

        def call(*args: object, **kwargs: object) -> object:
            calls.append(1)
            world.clock.advance(takes_s)
            return method(*args, **kwargs)

        monkeypatch.setattr(Stream, name, call)

    for name in ("get", "direct", "direct_lasts"):
        counted(name)
    return calls


@pytest.mark.parametrize("subject", [GET, "$JS.API.DIRECT.GET.S"])
def test_nothing_is_read_that_nobody_would_hear(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    calls = _count(monkeypatch, world)
    world.routes.deaf = True
    world.routes.publish_together(*[(subject, b'{"seq":1}', "nobody")] * 10)
    world.routes.publish_together(*[("$JS.API.DIRECT.GET.S.s.1", b"", "nobody")] * 10)
    world.routes.publish((subject, b'{"seq":1}', ""))
    assert (calls, world.routes.take()) == ([], [])
    world.routes.listened.add(b"$JS.EVENT.ADVISORY.API")  # somebody watches what is asked
    world.routes.publish((subject, b'{"seq":1}', "nobody"))
    assert len(calls) == 1


@pytest.mark.parametrize("subject", [GET, "$JS.API.DIRECT.GET.S"])
def test_many_slow_reads_of_one_client_wait_while_others_are_served(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    calls = _count(monkeypatch, world, takes_s=0.003)
    world.routes.publish_together(*[(subject, b'{"seq":1}', f"r{number}") for number in range(7)])
    assert (len(calls), world.paused) == (2, [1])
    world.routes.publish(("s.2", b"two", "published"))  # others, and what changes something, do not wait
    world.turn()
    world.settle()
    assert "published" in dict(world.routes.take())
    assert (len(calls), world.paused) == (4, [1])
    while world.paused:
        world.turn()
    world.settle()
    assert [subject for subject, _ in world.routes.take()] == ["r4", "r5", "r6"]


def test_many_direct_gets_together_are_cut_into_parts(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count(monkeypatch, world, takes_s=0.003)
    world.routes.publish_together(*[("$JS.API.DIRECT.GET.S.s.1", b"", f"r{number}") for number in range(1000)])
    assert (len(calls), world.paused) == (2, [1])
    while world.paused:
        world.turn()
    world.settle()
    assert [subject for subject, _ in world.routes.take()] == [f"r{number}" for number in range(1000)]


def test_a_message_that_is_got_reads_as_it_was(world: FakeAccount) -> None:
    payload, headers = bytes(range(256)), b"NATS/1.0\r\nA: <b>\r\n\r\n"
    world.routes.publish(("s.&", payload, ""), headers=headers)
    world.turn()
    answer = world.ask("STREAM.MSG.GET.S", {"seq": 2})
    assert list(answer["message"]) == ["subject", "seq", "hdrs", "data", "time"]
    assert base64.b64decode(answer["message"]["data"]) == payload
    assert base64.b64decode(answer["message"]["hdrs"]) == headers
    assert answer["message"]["subject"] == "s.&"
    world.routes.publish(("s.3", b"", ""))
    assert "data" not in world.ask("STREAM.MSG.GET.S", {"seq": 3})["message"]
