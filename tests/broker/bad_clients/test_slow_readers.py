"""Clients that do not read what they asked for are cut off, or kept waiting; the server's memory stays small."""

import json
import threading
from contextlib import suppress

from tests.broker.bad_clients.conftest import PULLED
from tests.broker.bad_clients.neighbours import undisturbed, wait_until_left
from tests.broker.socket_client import Ended, SocketClient, pub_frame
from tests.servers_nats import NatsServer, fresh_bucket
from tests.waiting import eventually

PAYLOAD = b"x" * 8000
FLOOD = 2000
"""So many of those are four times what a client may have waiting."""
BUFFER = 1 << 16


def send_until_ended(client: SocketClient, data: bytes) -> None:
    """Send, and do not mind being cut off."""
    with suppress(Ended, OSError):
        client.send(data)


def test_a_subscriber_that_does_not_read_is_cut_off_and_others_get_everything(server: NatsServer) -> None:
    name = fresh_bucket()
    deaf = SocketClient(server.port, buffer=BUFFER)
    deaf.subscribe(name, "1")
    deaf.flush()
    with (
        undisturbed(server),
        SocketClient(server.port) as reader,
        SocketClient(server.port) as publisher,
    ):
        reader.subscribe(name, "1")
        reader.flush()
        frames = pub_frame(name, PAYLOAD) * 20
        for _ in range(FLOOD // 20):
            publisher.send(frames)
            for _ in range(20):
                assert reader.next().payload == PAYLOAD
        publisher.flush()
        # By now the one that does not read is gone, and may read why.
        errors = deaf.wait_for_end()
        assert errors in ([], ["Slow Consumer"]), errors
        assert len(deaf.messages) < FLOOD
    deaf.close()
    wait_until_left(server)


def test_who_publishes_and_does_not_read_acknowledgements_takes_no_memory(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port) as owner, undisturbed(server, grows_at_most=128 << 20):
        owner.api(f"STREAM.CREATE.{name}", {"name": name, "max_msgs": 1000})
        deaf = SocketClient(server.port, buffer=4096)
        deaf.subscribe("acks", "1")
        frames = pub_frame(name, b"y", reply="acks") * 1000
        for _ in range(150):
            send_until_ended(deaf, frames)
        deaf.close()
        assert owner.request(name, b"z").json()["stream"] == name
        eventually(lambda: owner.api(f"STREAM.INFO.{name}")["state"]["messages"] == 1000)  # type: ignore[index]
        owner.api(f"STREAM.DELETE.{name}")


def delivered(client: SocketClient, stream: str) -> list[int]:
    """Return how many messages each consumer of a stream has delivered."""
    consumers = client.api(f"CONSUMER.LIST.{stream}")["consumers"]
    assert isinstance(consumers, list)
    return [each["delivered"]["consumer_seq"] for each in consumers]


def test_what_a_consumer_delivers_waits_for_a_client_that_does_not_read(server: NatsServer, kind: str) -> None:
    name = fresh_bucket()
    with SocketClient(server.port) as owner, SocketClient(server.port, buffer=BUFFER) as deaf:
        owner.api(f"STREAM.CREATE.{name}", {"name": name})
        for _ in range(FLOOD // 100):
            owner.send(pub_frame(name, PAYLOAD) * 99)
            owner.request(name, PAYLOAD)
        deaf.subscribe(f"push.{name}", "1")
        deaf.subscribe(f"pull.{name}", "2")
        deaf.flush()
        with undisturbed(server, grows_at_most=64 << 20):
            for _ in range(3):
                config = {"deliver_subject": f"push.{name}", "ack_policy": "none"}
                owner.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config})
                made = owner.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": PULLED})
                pull = json.dumps({"batch": FLOOD, "expires": 600 * 10**9}).encode()
                owner.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{made['name']}", pull, reply=f"pull.{name}")
            eventually(lambda: kind != "strandline" or sum(delivered(owner, name)) > 0)
            threading.Event().wait(0.2)  # as much as it likes
            assert kind != "strandline" or sum(delivered(owner, name)) < 6 * FLOOD
        if kind == "strandline":  # the other one cuts the client off
            taken = [deaf.next().sid for _ in range(6 * FLOOD)]
            assert (taken.count("1"), taken.count("2")) == (3 * FLOOD, 3 * FLOOD)
        owner.api(f"STREAM.DELETE.{name}")


def test_who_looks_on_and_does_not_read_holds_no_consumer_up(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port, buffer=BUFFER) as onlooker, SocketClient(server.port) as reader:
        onlooker.subscribe(">", "1")
        onlooker.flush()
        reader.api(f"STREAM.CREATE.{name}", {"name": name})
        made = reader.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": PULLED})
        reader.subscribe(f"in.{name}", "in")
        for _ in range(FLOOD // 50):
            reader.send(pub_frame(name, PAYLOAD) * 50)
            reader.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{made['name']}", b"50", reply=f"in.{name}")
            assert [reader.next().payload for _ in range(50)] == [PAYLOAD] * 50
        reader.api(f"STREAM.DELETE.{name}")
        assert onlooker.wait_for_end() in ([], ["Slow Consumer"])
    wait_until_left(server)


def test_a_client_may_stop_reading_for_a_while(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port, buffer=BUFFER) as slow, SocketClient(server.port) as publisher:
        slow.subscribe(name, "1")
        slow.flush()
        publisher.send(pub_frame(name, PAYLOAD) * 300)
        publisher.flush()
        assert [slow.next().payload for _ in range(300)] == [PAYLOAD] * 300
