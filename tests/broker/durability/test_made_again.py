"""A stream is removed and another made of its name, and the power goes: nothing of the old one is the new one's."""

from random import Random

import pytest

from strandline.errors import StrandlineError
from tests.broker.durability.simulated import SimBroker
from tests.broker.socket_client import SocketClient


def make(client: SocketClient, subject: str) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": [subject]})


def begin() -> SimBroker:
    """Return a broker with a stream and its consumer."""
    broker = SimBroker()
    broker.start()
    client = broker.connect()
    make(client, "old")
    client.request("old", b"x")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    return broker


def make_again(broker: SimBroker) -> None:
    client = broker.connect()
    client.api("STREAM.DELETE.S")
    make(client, "new")


def subjects_after_a_crash(broker: SimBroker, seed: int) -> object:
    """Lose power and start again; return what the stream keeps, None if there is none."""
    broker.crash(Random(seed))
    broker.start()
    assert not broker.jetstream.failures
    assert not broker.jetstream.consumers.unreadable
    client = broker.connect()
    config = client.request("$JS.API.STREAM.INFO.S", b"").json().get("config")
    if config is None:
        return None
    assert isinstance(config, dict)
    consumers = client.api("CONSUMER.NAMES.S")["consumers"]
    assert consumers == (["c"] if config["subjects"] == ["old"] else [])
    return config["subjects"]


@pytest.mark.parametrize("seed", range(12))
def test_consumers_of_a_stream_that_was_removed_are_gone(seed: int) -> None:
    broker = begin()
    make_again(broker)
    assert subjects_after_a_crash(broker, seed) == ["new"]


def test_the_same_wherever_it_is_interrupted() -> None:
    broker = begin()
    before = broker.cut.seen
    make_again(broker)
    for number in range(broker.cut.seen - before):
        broker = begin()
        broker.cut.left = number
        with pytest.raises((AssertionError, OSError, StrandlineError)):
            make_again(broker)
        if subjects_after_a_crash(broker, number) is None:
            make(broker.connect(), "new")
            assert subjects_after_a_crash(broker, number) == ["new"]
