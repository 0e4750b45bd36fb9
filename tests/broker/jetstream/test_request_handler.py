"""Requests to JetStream: what they are answered, and what is told of them, comes when it is durable."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.jetstream.fakes import FakeAccount


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeAccount]:
    made = FakeAccount(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("asked", "payload", "told"),
    [
        ("STREAM.PURGE.S", b"", []),
        ("STREAM.UPDATE.S", b'{"name":"S","subjects":["S","T"]}', ["$JS.EVENT.ADVISORY.STREAM.UPDATED.S"]),
    ],
)
@pytest.mark.parametrize("reply", ["answer", ""])
def test_nobody_is_told_of_a_change_that_a_crash_could_undo(
    world: FakeAccount, asked: str, payload: bytes, told: list[str], reply: str
) -> None:
    world.stream("S")
    world.routes.publish(("S", b"1", ""))
    world.turn()
    world.settle()
    world.routes.listened |= {b"$JS.EVENT.ADVISORY.STREAM.UPDATED.S", b"$JS.EVENT.ADVISORY.API"}
    world.routes.publish((f"$JS.API.{asked}", payload, reply))
    world.turn()
    while world.posted:
        world.posted.pop(0)()
    assert world.routes.take() == []
    world.settle()
    heard = [subject for subject, _ in world.routes.take()]
    assert heard == [*told, *([reply] if reply else []), "$JS.EVENT.ADVISORY.API"]


def test_a_list_waits_for_every_stream_whatever_streams_are_called(world: FakeAccount) -> None:
    world.stream("LIST")
    world.stream("INFO")
    world.stream("S")
    world.routes.publish(("S", b"1", ""))
    world.routes.publish(("$JS.API.STREAM.LIST", b"", "list"), ("$JS.API.INFO", b"", "info"))
    assert world.routes.take() == []
    world.settle()
    assert [subject for subject, _ in world.routes.take()] == ["list", "info"]
