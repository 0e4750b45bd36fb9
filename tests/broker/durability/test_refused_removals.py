"""Changes that would have removed messages, but were refused or undone by a power cut: no consumer heeds them."""

from random import Random

import pytest

from tests.broker.durability.failing import FailingFolder, fail, recover
from tests.broker.durability.simulated import SimBroker
from tests.broker.socket_client import SocketClient

RETENTIONS = ("workqueue", "interest", "limits")
ALL = [b"1", b"2", b"3"]
CHANGES = {
    "publish that discards": ("BAD.a", b"never"),
    "purge": ("$JS.API.STREAM.PURGE.BAD", b""),
    "purge of some": ("$JS.API.STREAM.PURGE.BAD", b'{"seq":2}'),
    "delete": ("$JS.API.STREAM.MSG.DELETE.BAD", b'{"seq":1}'),
}


def broker_with(retention: str, **consumer: object) -> tuple[SimBroker, SocketClient]:
    broker = SimBroker()
    broker.cut = FailingFolder("journal")
    broker.start()
    client = connect(broker)
    stream = {"name": "BAD", "subjects": ["BAD.*"], "max_msgs": 3, "retention": retention}
    client.api("STREAM.CREATE.BAD", stream)
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 5 * 10**9, **consumer}
    client.api("CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": config})
    for payload in ALL:
        assert "seq" in client.request("BAD.a", payload).json()
    return broker, client


def connect(broker: SimBroker) -> SocketClient:
    client = broker.connect()
    client.subscribe("pulled.*", "p")
    return client


def ask(client: SocketClient, count: int) -> None:
    body = b'{"batch":%d,"no_wait":true}' % count
    client.publish("$JS.API.CONSUMER.MSG.NEXT.BAD.c", body, reply="pulled.x")


def pulled(client: SocketClient, count: int) -> list[bytes]:
    """Return what a pull gets, until it is told that there is no more."""
    ask(client, count)
    found = []
    while not (message := client.next()).status:
        found.append(message.payload)
        if len(found) == count:
            break
    return found


def end(broker: SimBroker, client: SocketClient, how: str) -> SocketClient:
    """Let the disk work again, or the power go; and enough time pass for everything to be delivered again."""
    if how == "mended":
        recover(broker)
    else:
        broker.advance(3)  # consumers have synced what they know
        broker.crash(Random(1))
        broker.cut = FailingFolder("journal")
        broker.start()
        client = connect(broker)
    broker.advance(10)
    broker.advance(10)
    return client


def check_as_before(client: SocketClient, delivered: int) -> None:
    state, info = client.api("STREAM.INFO.BAD")["state"], client.api("CONSUMER.INFO.BAD.c")
    assert isinstance(state, dict)
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (1, 3, 3)
    assert info["ack_floor"] == {"consumer_seq": 0, "stream_seq": 0}
    assert (info["num_ack_pending"], info["num_pending"]) == (delivered, 3 - delivered)
    assert pulled(client, 3) == ALL


@pytest.mark.parametrize("ending", ["mended", "cut"])
@pytest.mark.parametrize("delivered", [3, 0])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("retention", RETENTIONS)
def test_what_a_refused_change_would_have_removed_is_still_the_consumers(
    retention: str, change: str, delivered: int, ending: str
) -> None:
    broker, client = broker_with(retention)
    if delivered:
        assert pulled(client, delivered) == ALL
    fail(broker)
    assert "error" in client.request(*CHANGES[change]).json()
    client = end(broker, client, ending)
    check_as_before(client, delivered)


@pytest.mark.parametrize("deliver_max", [-1, 1])
@pytest.mark.parametrize("ending", ["mended", "cut"])
@pytest.mark.parametrize("change", [name for name in CHANGES if "purge" not in name])
@pytest.mark.parametrize("retention", RETENTIONS)
def test_what_was_passed_over_is_delivered_after_all_if_it_comes_back(
    retention: str, change: str, ending: str, deliver_max: int
) -> None:
    broker, client = broker_with(retention, max_deliver=deliver_max)
    subject, body = CHANGES[change]
    client.subscribe("answer.*", "a")
    fail(broker)
    broker.executor.is_waiting = True
    client.publish(subject, body, reply="answer.x")
    ask(client, 1)
    broker.turn()
    got = client.next()
    assert (got.sid, got.payload) == ("p", b"2")
    client.publish(got.reply, b"+ACK")
    broker.executor.is_waiting = False
    answer = client.next()
    assert answer.sid == "a"
    assert "error" in answer.json()
    client = end(broker, client, ending)
    floor = client.api("CONSUMER.INFO.BAD.c")["ack_floor"]
    assert isinstance(floor, dict)
    assert floor["stream_seq"] == 0
    assert sorted(pulled(client, 3)) == [b"1", b"3"]


def test_what_was_passed_over_and_is_gone_for_good_holds_nothing_up() -> None:
    broker, client = broker_with("workqueue")
    broker.executor.is_waiting = True
    client.publish("BAD.a", b"4")
    ask(client, 1)
    broker.turn()
    got = client.next()
    assert got.payload == b"2"
    client.publish(got.reply, b"+ACK")
    broker.executor.is_waiting = False
    broker.settle()
    info = client.api("CONSUMER.INFO.BAD.c")
    floor = info["ack_floor"]
    assert isinstance(floor, dict)
    assert (floor["consumer_seq"], floor["stream_seq"]) == (1, 2)
    assert (info["num_ack_pending"], info["num_pending"]) == (0, 2)
    broker.advance(3)
    broker.crash(Random(1))
    broker.start()
    client = connect(broker)
    assert pulled(client, 3) == [b"3", b"4"]


def test_after_a_purge_of_some_what_is_left_comes_when_that_is_durable() -> None:
    broker, client = broker_with("limits")
    broker.executor.is_waiting = True
    client.publish("$JS.API.STREAM.PURGE.BAD", b'{"seq":2}')
    ask(client, 2)
    broker.turn()
    assert client.api("CONSUMER.INFO.BAD.c")["num_pending"] == 2
    assert [client.next().payload for _ in range(2)] == [b"2", b"3"]
