"""One stream's files fail: whoever publishes to it is told so, nothing is claimed that is not so, and others go on."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from tests.broker.durability.simulated import SimBroker
from tests.broker.socket_client import SocketClient
from tests.journal.model import CHANGES, PowerCut


class FailingFolder(PowerCut):
    """A watch that fails changes of some files, from when it is told to."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.fails = False
        self._part = part

    def __call__(self, operation: str, path: Path, size: int) -> None:
        super().__call__(operation, path, size)
        if self.fails and self._part in path.parts and operation in CHANGES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker()
    broker.cut = FailingFolder("BAD")
    broker.start()
    client = broker.connect()
    for name in ("BAD", "GOOD"):
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], "allow_direct": True})
        assert client.request(f"{name}.a", b"before").json()["seq"] == 1
    return broker


def fail(broker: SimBroker) -> None:
    assert isinstance(broker.cut, FailingFolder)
    broker.cut.fails = True


def stored(client: SocketClient, name: str) -> object:
    state = client.api(f"STREAM.INFO.{name}")["state"]
    assert isinstance(state, dict)
    return state["last_seq"]


def test_a_publish_that_cannot_be_stored_is_refused_and_others_are_not(broker: SimBroker) -> None:
    client = broker.connect()
    fail(broker)
    for _ in range(3):
        error = client.request("BAD.a", b"x").json()["error"]
        assert isinstance(error, dict)
        assert (error["code"], error["err_code"]) == (503, 10077)
        assert "seq" in client.request("GOOD.a", b"y").json()
    assert stored(client, "GOOD") == 4
    assert list(broker.jetstream.failures) == ["BAD"]


def test_what_was_refused_may_be_published_again_after_a_restart(broker: SimBroker) -> None:
    client = broker.connect()
    fail(broker)
    assert "error" in client.request("BAD.a", b"x").json()
    broker.crash(Random(3))
    broker.cut = FailingFolder("BAD")
    broker.start()
    client = broker.connect()
    last = stored(client, "BAD")
    assert isinstance(last, int)
    assert client.request("BAD.a", b"x").json() == {"stream": "BAD", "seq": last + 1}
    assert stored(client, "GOOD") == 1


def test_what_was_never_stored_is_shown_to_nobody(broker: SimBroker) -> None:
    client = broker.connect()
    consumer = {"stream_name": "BAD", "config": {"durable_name": "c", "ack_policy": "none"}}
    client.api("CONSUMER.CREATE.BAD.c", consumer)
    fail(broker)
    assert "error" in client.request("BAD.a", b"never").json()
    for subject, body in (
        ("STREAM.MSG.GET.BAD", b'{"last_by_subj":"BAD.a"}'),
        ("STREAM.INFO.BAD", b""),
        ("CONSUMER.INFO.BAD.c", b""),
        ("CONSUMER.LIST.BAD", b""),
    ):
        answer = client.request(f"$JS.API.{subject}", body).json()
        assert "error" in answer, answer
    for body in (b'{"last_by_subj":"BAD.a"}', b'{"seq":1}'):
        assert client.request("$JS.API.DIRECT.GET.BAD", body).status == "503 Storage Failed"
    client.subscribe("pulled", "p")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.BAD.c", b'{"batch":2,"no_wait":true}', reply="pulled")
    assert client.next().payload == b""
    client.subscribe("copied", "c")
    answer = client.request("$JS.API.STREAM.SNAPSHOT.BAD", b'{"deliver_subject":"copied"}').json()
    assert "error" in answer


def test_a_stream_that_failed_keeps_nobody_from_the_others(broker: SimBroker) -> None:
    client = broker.connect()
    fail(broker)
    assert "error" in client.request("BAD.a", b"never").json()
    assert client.api("STREAM.NAMES")["streams"] == ["BAD", "GOOD"]
    listed = client.api("STREAM.LIST")
    assert isinstance(listed["streams"], list)
    assert [each["config"]["name"] for each in listed["streams"]] == ["GOOD"]
    assert isinstance(listed["offline"], dict)
    assert list(listed["offline"]) == ["BAD"]
    assert client.api("INFO")["streams"] == 2
    assert stored(client, "GOOD") == 1
    assert client.api("STREAM.DELETE.GOOD")["success"]


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("STREAM.UPDATE.BAD", b'{"name":"BAD","subjects":["BAD.*"],"description":"new","allow_direct":true}'),
        ("STREAM.PURGE.BAD", b""),
        ("STREAM.MSG.DELETE.BAD", b'{"seq":1}'),
    ],
)
def test_a_change_that_cannot_be_stored_is_refused(broker: SimBroker, subject: str, body: bytes) -> None:
    client = broker.connect()
    fail(broker)
    answer = client.request(f"$JS.API.{subject}", body).json()
    assert "error" in answer
    assert "success" not in answer
    broker.crash(Random(3))
    broker.cut = FailingFolder("BAD")
    broker.start()
    info = broker.connect().api("STREAM.INFO.BAD")
    assert isinstance(info["config"], dict)
    assert isinstance(info["state"], dict)
    assert "description" not in info["config"]
    assert info["state"]["messages"] == 1
