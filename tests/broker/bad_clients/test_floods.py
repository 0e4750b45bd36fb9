"""Too many subscriptions, requests, pulls, connections and tokens: counted, limited and survived."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.broker.bad_clients.conftest import Servers
from tests.broker.bad_clients.neighbours import connections, undisturbed, wait_until_left
from tests.broker.socket_client import Ended, SocketClient, pub_frame
from tests.servers_nats import NatsServer, fresh_bucket
from tests.waiting import eventually

FEW = "max_connections: 5\nmax_subscriptions: 10"


@contextmanager
def files_allowed(count: int) -> Iterator[None]:
    """Let this process have so many files open, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this process may have {hard} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_connections_are_served(server: NatsServer, count: int) -> None:
    with files_allowed(count + 1000):
        name = fresh_bucket()
        clients = []
        with undisturbed(server, grows_at_most=(32 << 20) + count * 100_000):
            for _ in range(count):
                client = SocketClient(server.port)
                client.subscribe(name, "1")
                clients.append(client)
            for client in clients:
                client.flush()
            assert connections(server) > count  # the neighbour, too; those of others may still be counted
            clients[0].publish(name, b"to all")
            assert all(client.next().payload == b"to all" for client in clients)
            for client in clients:
                client.close()
        wait_until_left(server)


def test_more_connections_than_allowed_are_refused(servers: Servers) -> None:
    server = servers(FEW)
    wait_until_left(server)
    clients = [SocketClient(server.port) for _ in range(5)]
    with SocketClient(server.port, greet=False) as sixth:
        assert sixth.wait_for_end() == ["maximum connections exceeded"]
    clients.pop().close()
    eventually(lambda: connections(server) == 4)
    with SocketClient(server.port) as other:
        other.flush()
    for client in clients:
        client.flush()
        client.close()


def test_more_subscriptions_than_allowed_are_refused_and_those_before_stay(servers: Servers) -> None:
    server = servers(FEW)
    wait_until_left(server)
    with SocketClient(server.port) as client:
        for number in range(12):
            client.subscribe(f"s.{number}", str(number))
        assert client.wait_for_error() == "maximum subscriptions exceeded"
        try:
            client.publish("s.3", b"x")
            heard = client.next().payload
        except Ended:
            heard = b"ended"
        assert heard == b"x"


def test_a_flood_of_subscriptions_is_taken_and_let_go_of(server: NatsServer) -> None:
    name, count = fresh_bucket(), 20_000
    with undisturbed(server, grows_at_most=96 << 20), SocketClient(server.port) as client:
        lines = [
            f"SUB {name}.{number % 100}.{number}.{'*' if number % 3 else '>'} {number}\r\n" for number in range(count)
        ]
        client.send("".join(lines).encode())
        client.flush()
        client.publish(f"{name}.77.177.x", b"one")
        assert (client.next().sid, client.next(0.5) if client.messages else None) == ("177", None)
        client.send("".join(f"UNSUB {number}\r\n" for number in range(count)).encode())
        client.flush()
        client.publish(f"{name}.77.177.x", b"none")
        client.flush()
        assert not client.messages


def test_the_same_wildcards_many_times_cost_each_listener_once(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port) as client:
        for number in range(500):
            client.subscribe(f"{name}.*.>", str(number))
        client.publish(f"{name}.a.b", b"x")
        client.flush()
        assert sorted(int(each.sid) for each in client.messages) == list(range(500))


def test_subjects_of_very_many_tokens_go_through(server: NatsServer) -> None:
    name = fresh_bucket()
    deep = f"{name}." + ".".join("abc"[number % 3] for number in range(900))
    with SocketClient(server.port) as client:
        client.subscribe(f"{name}.>", "1")
        client.subscribe(deep, "2")
        client.subscribe(f"{name}." + ".".join("*" * 900), "3")
        client.publish(deep, b"x")
        client.flush()
        assert sorted(each.sid for each in client.messages) == ["1", "2", "3"]
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
        assert client.request(deep, b"y").json() == {"stream": name, "seq": 1}
        found = client.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": deep})["message"]
        assert isinstance(found, dict)
        assert found["subject"] == deep
        client.api(f"STREAM.DELETE.{name}")


def test_pulls_without_end_are_refused_beyond_what_a_consumer_lets_wait(server: NatsServer) -> None:
    name, count = fresh_bucket(), 3000
    with SocketClient(server.port) as client, undisturbed(server):
        client.api(f"STREAM.CREATE.{name}", {"name": name})
        config = {"durable_name": "c", "ack_policy": "explicit"}
        client.api(f"CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": config})
        client.subscribe(f"{name}.in", "1")
        pull = json.dumps({"batch": 1, "expires": 600 * 10**9}).encode()
        client.send(pub_frame(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", pull, reply=f"{name}.in") * count)
        refused = [client.next().status for _ in range(count - 512)]
        assert set(refused) == {"409 Exceeded MaxWaiting"}
        assert client.api(f"CONSUMER.INFO.{name}.c")["num_waiting"] == 512
        client.request(name, b"x")
        assert client.next().payload == b"x"
        client.api(f"STREAM.DELETE.{name}")


def test_a_flood_of_requests_is_answered(server: NatsServer) -> None:
    name, count = fresh_bucket(), 1500
    with SocketClient(server.port) as client, undisturbed(server, grows_at_most=64 << 20):
        client.api(f"STREAM.CREATE.{name}", {"name": name})
        client.subscribe(f"{client.inbox}.flood.*", "1")
        subjects = [f"STREAM.INFO.{name}", "STREAM.NAMES", "INFO", f"CONSUMER.NAMES.{name}", "STREAM.INFO.absent"]
        frames = [
            pub_frame(f"$JS.API.{subjects[number % 5]}", b"", reply=f"{client.inbox}.flood.{number}")
            for number in range(count)
        ]
        client.send(b"".join(frames))
        answers = {client.next().subject for _ in range(count)}
        assert len(answers) == count
        client.api(f"STREAM.DELETE.{name}")


def test_consumers_made_and_left_go_away(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port) as client, undisturbed(server):
        client.api(f"STREAM.CREATE.{name}", {"name": name})
        config = {"ack_policy": "none", "inactive_threshold": 200_000_000, "mem_storage": True}
        made = [client.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config}) for _ in range(100)]
        assert len({each["name"] for each in made}) == 100
        eventually(lambda: client.api(f"CONSUMER.NAMES.{name}")["total"] == 0)
        client.api(f"STREAM.DELETE.{name}")


def test_connections_that_come_and_go_leave_nothing_behind(server: NatsServer) -> None:
    with undisturbed(server):
        for number in range(200):
            with SocketClient(server.port, greet=number % 4 > 0) as client:
                client.send(f"SUB churn.{number} 1\r\nSUB churn.> q 2\r\n".encode())
    wait_until_left(server)
    with SocketClient(server.port) as client:
        assert client.request("churn.1", b"").status == "503"


def test_wildcards_in_the_wrong_place_are_refused_or_are_no_wildcards(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port) as client:
        for wrong in (f"{name}.>.a", f"{name}..a", f".{name}", f"{name}."):
            client.subscribe(wrong, "1")
            assert client.wait_for_error() == "Invalid Subject"
        client.subscribe(f"{name}.*", "2")
        client.publish(f"{name}.*", b"literal")
        client.publish(f"{name}.a*", b"literal too")
        client.flush()
        assert [each.payload for each in client.messages] == [b"literal", b"literal too"]
        client.messages.clear()
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"]})
        answers = [client.request(f"{name}.{token}", b"x").json() for token in "*>"]
        assert answers == [{"stream": name, "seq": 1}, {"stream": name, "seq": 2}]
        client.api(f"STREAM.DELETE.{name}")
