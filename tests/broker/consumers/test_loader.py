"""A consumer that fails is loaded again from its files: what was acknowledged stays so, and nothing is lost."""

from random import Random

import pytest

from strandline.broker.consumers import Consumer
from strandline.broker.consumers.feed import Feed
from tests.broker.durability.failing import FailingFolder
from tests.broker.durability.simulated import FOLDER, SimBroker
from tests.broker.socket_client import Message, SocketClient

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.c"


class Client(SocketClient):
    """A client of the consumer `c`."""

    def ask(self, batch: int) -> None:
        """WaitingPull messages, without waiting for them."""
        self.subscribe("pulled", "p")
        self.publish(NEXT, b'{"batch":%d,"no_wait":true}' % batch, reply="pulled")

    def pull(self, batch: int) -> list[Message]:
        """Return messages of a pull, up to its status."""
        self.ask(batch)
        found: list[Message] = []
        while len(found) < batch and not (message := self.next()).status:
            found.append(message)
        return found

    def info(self) -> dict[str, object]:
        return self.request("$JS.API.CONSUMER.INFO.S.c", b"").json()


def deliveries(messages: list[Message]) -> list[tuple[bytes, str]]:
    """Return what came, and how often each was delivered."""
    return [(message.payload, message.reply.split(".")[4]) for message in messages]


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker()
    broker.cut = FailingFolder("c")
    broker.start()
    client = connect(broker)
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for number in range(1, 7):
        client.request("s", b"%d" % number)
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 30_000_000_000}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    return broker


def connect(broker: SimBroker) -> Client:
    return Client(broker.connect().socket)


def reason(client: Client) -> object:
    error = client.info().get("error", {})
    assert isinstance(error, dict)
    return error.get("description")


def fail(broker: SimBroker, *, fails: bool = True) -> None:
    assert isinstance(broker.cut, FailingFolder)
    broker.cut.fails = fails


def test_a_write_that_fails_and_heals_takes_no_consumer_away(
    broker: SimBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(broker)
    pulled = client.pull(3)
    client.request(pulled[0].reply, b"+ACK")
    fail(broker)
    client.publish(pulled[1].reply, b"+ACK")
    for _ in range(5):
        assert reason(client) == "consumer is offline: c: No space left on device (ENOSPC)"
        broker.advance(1)
    fail(broker, fails=False)
    broker.advance(10)
    assert deliveries(client.pull(4)) == [(b"4", "1"), (b"5", "1"), (b"6", "1")]
    client.request(pulled[2].reply, b"+ACK")
    broker.advance(31)
    assert deliveries(client.pull(9)) == [(b"2", "2"), (b"4", "2"), (b"5", "2"), (b"6", "2")]
    broker.crash(Random(1))
    broker.start()
    info = connect(broker).info()
    assert info["num_ack_pending"] == 4
    assert "next attempt in 0.1 s" in caplog.text
    assert "consumer c of stream S is online again" in caplog.text


def test_what_was_acknowledged_stays_so_when_the_delivery_after_it_fails(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(broker)
    pulled = client.pull(2)
    following = Feed.next

    def fail_once(self: Feed, limit: int, room: int, now_ns: int) -> object:
        monkeypatch.setattr(Feed, "next", following)
        raise ValueError(self, limit, room, now_ns)

    monkeypatch.setattr(Feed, "next", fail_once)
    client.publish(pulled[0].reply, b"+ACK")
    client.ask(1)
    assert client.next().status == "409 Server Shutdown"
    assert deliveries(client.pull(2)) == [(b"3", "1"), (b"4", "1")]
    broker.advance(31)
    assert deliveries(client.pull(9)) == [(b"2", "2"), (b"3", "2"), (b"4", "2"), (b"5", "1"), (b"6", "1")]


def test_files_that_cannot_be_made_are_noticed_and_made_later(broker: SimBroker) -> None:
    client = connect(broker)
    fail(broker)
    (first,) = client.pull(1)
    assert reason(client) is None
    broker.advance(1)
    fail(broker, fails=False)
    client.publish(first.reply, b"+ACK")
    broker.advance(10)
    assert deliveries(client.pull(1)) == [(b"1", "1")]
    client.request(first.reply, b"+ACK")
    broker.crash(Random(1))
    broker.start()
    assert deliveries(connect(broker).pull(1)) == [(b"2", "1")]


def test_one_whose_files_are_bad_stays_offline_and_may_be_removed(broker: SimBroker) -> None:
    client = connect(broker)
    client.pull(1)
    fail(broker)
    client.ask(1)
    assert "No space left" in str(reason(client))
    path = FOLDER / "streams" / "S" / "consumers" / "c.consumer"
    file = broker.disk.open(path, "write")
    file.pwritev([b"?"], 30)
    fail(broker, fails=False)
    broker.advance(1)
    assert reason(client) == "consumer is offline: c.consumer: the checksum does not match"
    assert broker.jetstream.consumers.next_due_ns is None
    assert client.api("CONSUMER.DELETE.S.c")["success"]
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c"}})
    client.messages.clear()  # what came before it could be noted
    assert len(client.pull(9)) == 6


def test_one_that_is_removed_while_it_waits_does_not_come_back(broker: SimBroker) -> None:
    client = connect(broker)
    client.pull(1)
    fail(broker)
    client.ask(1)
    assert "No space left" in str(reason(client))
    fail(broker, fails=False)
    client.api("STREAM.DELETE.S")
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    assert broker.jetstream.consumers.next_due_ns is None
    assert reason(client) == "consumer not found"


def test_one_that_fails_while_it_is_loaded_is_tried_again(broker: SimBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(broker)
    client.pull(1)

    def fail_to_begin(self: Consumer) -> None:
        raise ValueError(self.name)

    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "_forget_removed", fail_to_begin)
        fail(broker)
        client.ask(1)
        broker.turn()
        fail(broker, fails=False)
        broker.advance(1)
        assert reason(client) == "consumer is offline: c"
    broker.advance(1)
    assert len(client.pull(1)) == 1
