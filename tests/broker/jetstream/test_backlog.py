"""Reads share the loop: what takes long is continued in later turns, and what nobody hears is not done at all."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.broker.jetstream.backlog import BUDGET_NS, Backlog
from strandline.broker.streams.stream import Stream
from strandline.clock import ManualClock
from tests.broker.jetstream.fakes import World

GET = "$JS.API.STREAM.MSG.GET.S"


class Turns:
    """A backlog, whose work takes as long as a test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wakes = 0
        self.paused: list[int] = []
        self.done: list[str] = []
        self.backlog = Backlog(self.clock, self._wake, self.paused.append, self.paused.remove)

    def _wake(self) -> None:
        self.wakes += 1

    def work(self, name: str, takes_ns: int = BUDGET_NS) -> Callable[[], None]:
        def do() -> None:
            self.clock.advance(takes_ns / 1e9)
            self.done.append(name)

        return do

    def turn(self) -> list[str]:
        done = len(self.done)
        self.backlog.flush()
        return self.done[done:]


def test_what_is_short_is_done_at_once() -> None:
    turns = Turns()
    for name in "abc":
        turns.backlog.do(1, turns.work(name, 1000))
    assert (turns.done, turns.paused) == (["a", "b", "c"], [])
    assert turns.wakes == 1  # the next turn has time anew
    assert turns.turn() == []


def test_what_takes_long_goes_on_in_later_turns_one_client_after_the_other() -> None:
    turns = Turns()
    for name in ("a1", "a2", "a3"):
        turns.backlog.do(1, turns.work(name))
    turns.backlog.do(2, turns.work("b1"))
    assert (turns.done, turns.paused) == (["a1"], [1, 2])
    wakes = turns.wakes
    assert [turns.turn() for _ in range(4)] == [["a2"], ["b1"], ["a3"], []]
    assert turns.wakes == wakes + 2  # while something waits
    assert turns.paused == []
    turns.backlog.do(1, turns.work("a4"))
    assert turns.done[-1] == "a4"


def test_an_order_is_kept_though_there_would_be_time_for_what_comes_later() -> None:
    turns = Turns()
    for number in range(3):
        turns.backlog.do(1, turns.work(f"a{number}"))
    turns.turn()
    turns.backlog.do(1, turns.work("a3", 0))
    while turns.paused:
        turns.turn()
    assert turns.done == ["a0", "a1", "a2", "a3"]


def test_work_that_fails_keeps_nobody_else_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    turns.backlog.do(1, turns.work("a"))
    turns.backlog.do(1, iter(()).__next__)
    turns.backlog.do(2, turns.work("b"))
    assert turns.turn() == ["b"]
    assert turns.paused == []
    assert "StopIteration" in caplog.text


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.stream("S", "s.>", allow_direct=True)
    world.routes.publish(("s.1", b"<one>", ""))
    world.turn()
    world.settle()
    yield world
    world.close()


def _count(monkeypatch: pytest.MonkeyPatch, world: World, *, takes_s: float = 0) -> list[int]:
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
def test_nothing_is_read_that_nobody_would_hear(world: World, monkeypatch: pytest.MonkeyPatch, subject: str) -> None:
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
    world: World, monkeypatch: pytest.MonkeyPatch, subject: str
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


def test_many_direct_gets_together_are_cut_into_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count(monkeypatch, world, takes_s=0.003)
    world.routes.publish_together(*[("$JS.API.DIRECT.GET.S.s.1", b"", f"r{number}") for number in range(1000)])
    assert (len(calls), world.paused) == (2, [1])
    while world.paused:
        world.turn()
    world.settle()
    assert [subject for subject, _ in world.routes.take()] == [f"r{number}" for number in range(1000)]


def test_a_message_that_is_got_reads_as_it_was(world: World) -> None:
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
