"""Consumers in the turn: one that fails, or is asked for the impossible, takes nothing away from the others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.consumers import Consumer
from tests.broker.jetstream.fakes import FakeAccount

LARGEST = 2**64 - 1
DIGITS = b"9" * 5_000
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeAccount]:
    made = FakeAccount(tmp_path)
    made.stream("S")
    for name in "AB":
        create(made, name)
        made.routes.listened |= {name.encode()}
    made.routes.publish(*[("S", b"%d" % number, "") for number in range(1, 5)])
    made.turn()
    made.settle()
    yield made
    made.close()


def create(world: FakeAccount, name: str, **config: object) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    answer = world.ask(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    assert "error" not in answer, answer


def pull(world: FakeAccount, *names: str) -> list[tuple[str, bytes]]:
    """Ask for one message for each consumer in one turn, and return what came."""
    world.routes.publish(*[(NEXT + name, b"1", name) for name in names])
    world.turn()
    return world.routes.take()


def info(world: FakeAccount, name: str) -> dict[str, Any]:
    return world.ask(f"CONSUMER.INFO.S.{name}")


def test_numbers_of_any_length_are_refused_and_nobody_else_notices(world: FakeAccount) -> None:
    for required in (DIGITS, b"\xc2\xb2"):
        headers = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % required
        world.routes.publish((NEXT + "A", b"", "A"), headers=headers)
        assert ("A", b"NATS/1.0 412 Required Api Level\r\n\r\n") in pull(world, "B")
        world.routes.publish(("$JS.API.CONSUMER.INFO.S.A", b"", "answer"), headers=headers)
        world.settle()
        assert json.loads(world.routes.take()[0][1])["error"]["err_code"] == 10185


@pytest.mark.parametrize(
    "payload", [b'-NAK {"delay": %d}' % (2**63 - 1), b'-NAK {"delay": %d}' % 2**70, b"-NAK 2562047h", b"-NAK " + DIGITS]
)
def test_a_message_may_be_given_back_for_as_long_as_one_likes(world: FakeAccount, payload: bytes) -> None:
    assert len(pull(world, "A")) == 1
    world.routes.publish(("$JS.ACK.S.A.1.1.1.1.0", payload, ""), (NEXT + "B", b"1", "B"))
    world.turn()
    assert [to for to, _ in world.routes.take()] == ["B"]
    assert info(world, "A")["num_ack_pending"] == 1
    assert len(pull(world, "A")) == 1


def test_a_wait_for_answers_may_be_as_long_as_one_likes(world: FakeAccount) -> None:
    create(world, "C", ack_wait=2**63 - 1)
    world.routes.listened.add(b"C")
    assert pull(world, "C", "B") == [("C", b"1"), ("B", b"1")]
    world.routes.publish(("$JS.ACK.S.C.1.1.1.1.0", b"+WPI", ""))
    world.turn()
    assert info(world, "C")["num_ack_pending"] == 1


@pytest.mark.parametrize("asked", ["STREAM.PURGE.S", "CONSUMER.RESET.S.A"])
def test_beyond_the_last_sequence_there_is_still_room(world: FakeAccount, asked: str) -> None:
    assert "error" not in world.ask(asked, {"seq": LARGEST})
    world.turn()
    world.routes.publish(("S", b"more", "stored"))
    world.turn()
    world.settle()
    assert b"seq" in dict(world.routes.take())["stored"]
    assert len(pull(world, "B")) == 1
    assert "error" not in info(world, "A")


def test_an_answer_to_what_was_never_delivered_does_no_harm(world: FakeAccount) -> None:
    create(world, "C", ack_policy="all")
    for number in (10**18 - 1, 2**63, 10**19 - 1, LARGEST):
        for payload in (b"", b"-NAK", b"+WPI", b"+TERM"):
            world.routes.publish((f"$JS.ACK.S.C.{number}.{number}.{number}.1.0", payload, ""))
    assert len(pull(world, "B")) == 1
    assert info(world, "C")["ack_floor"]["stream_seq"] == 0


def test_a_consumer_that_fails_is_offline_and_the_others_go_on(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = Consumer.step

    def fail(self: Consumer, now_ns: int) -> bool:
        if self.name == "A":
            raise ValueError("as it may be")
        return step(self, now_ns)

    monkeypatch.setattr(Consumer, "step", fail)
    assert pull(world, "A", "B") == [("B", b"1")]
    assert info(world, "A")["error"]["description"] == "consumer is offline: as it may be"
    assert pull(world, "A", "B") == [("B", b"2")]
    assert world.routes.lonely == ["A"]
    world.close()
    monkeypatch.undo()
    again = FakeAccount(tmp_path)
    again.routes.listened.add(b"A")
    assert pull(again, "A") == [("A", b"1")]
    again.close()


def test_a_consumer_in_memory_that_fails_is_gone(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    create(world, "C", mem_storage=True)

    def fail(self: Consumer, now_ns: int) -> bool:
        raise ValueError(self, now_ns)

    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "step", fail)
        pull(world, "C")
    assert info(world, "C")["error"]["err_code"] == 10014
    create(world, "C", mem_storage=True)


def test_nothing_is_due_for_a_consumer_that_is_gone(world: FakeAccount) -> None:
    assert len(pull(world, "A", "B")) == 2
    assert world.jetstream.timers.next_ns is not None
    assert world.ask("CONSUMER.DELETE.S.A")["success"]
    assert world.ask("STREAM.DELETE.S")["success"]
    world.turn()
    assert world.jetstream.timers.next_ns is None


def test_pulls_hear_that_the_server_ends(world: FakeAccount) -> None:
    world.routes.publish((NEXT + "A", b'{"batch":9}', "A"))
    world.turn()
    world.routes.take()
    world.jetstream.end_pulls()
    text = b"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: 5\r\nNats-Pending-Bytes: 0\r\n\r\n"
    assert world.routes.take() == [("A", text)]
