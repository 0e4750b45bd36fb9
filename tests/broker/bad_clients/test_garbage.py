"""Nonsense, half of a frame, frames too large, and clients that never say who they are."""

import random
import time
from contextlib import suppress

import pytest

from tests.broker.bad_clients.conftest import Servers
from tests.broker.bad_clients.neighbours import undisturbed, wait_until_left
from tests.broker.socket_client import Ended, SocketClient, pub_frame
from tests.servers_nats import NatsServer, fresh_bucket

GOOD = b"".join(
    [
        b"PING\r\nSUB a.b 1\r\nSUB a.* 2\r\nSUB c.> q 3\r\nUNSUB 2 5\r\n",
        pub_frame("a.b", b"hello", reply="a.r"),
        pub_frame("a.b", b"hello", headers=b"NATS/1.0\r\nK: v\r\n\r\n"),
        pub_frame("$JS.API.STREAM.NAMES", b"{}", reply="a.b"),
        b'CONNECT {"verbose":false}\r\nUNSUB 1\r\nPONG\r\n',
    ]
)
IMPATIENT = "authorization { user: a, password: b, timeout: 0.3 }"
PATIENT = "authorization { user: a, password: b, timeout: 600 }"
"""On a machine that stalls, a client may be late with its words."""


def mutated(chance: random.Random) -> bytes:
    """Return good frames with something wrong in them."""
    data = bytearray(GOOD)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(1, 20)]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 20))
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 200)]
    return bytes(data)


def test_nonsense_of_all_kinds_disturbs_nobody_and_leaves_nothing_behind(server: NatsServer) -> None:
    chance = random.Random(7)
    with undisturbed(server):
        for number in range(150):
            client = SocketClient(server.port, greet=number % 3 > 0)
            try:
                client.send(chance.randbytes(chance.randrange(1, 3000)) if number % 10 == 0 else mutated(chance))
                client.flush(0.02)
            except (Ended, TimeoutError):
                pass
            finally:
                client.close()
    wait_until_left(server)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ["Unknown Protocol Operation"]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), ["Unknown Protocol Operation"]),
        (b"PUB a 5\r\nhelloXX\r\n", ["Unknown Protocol Operation"]),
        (b"PUB a 262145\r\n", ["Maximum Payload Violation"]),
        (b"PUB a 99999999999\r\n", []),
        (b"PUB a -1\r\n", []),
        (b"HPUB a 9 8\r\n", []),
        (b"PUB " + b"a" * 3000 + b" 0\r\n\r\n", ["maximum control line exceeded"]),
        (b"SUB " + b"a" * 1_000_000, ["maximum control line exceeded"]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value[:16])[1:],
)
def test_what_cannot_be_understood_ends_the_connection_with_the_same_word(
    server: NatsServer, sent: bytes, said: list[str]
) -> None:
    with SocketClient(server.port) as client:
        with suppress(Ended):
            client.send(sent)
        assert client.wait_for_end() == said


def test_half_a_frame_is_kept_waiting_and_forgotten_with_its_client(server: NatsServer) -> None:
    with undisturbed(server):
        clients = [SocketClient(server.port) for _ in range(60)]
        for number, client in enumerate(clients):
            client.send(GOOD[: 30 + number * 2])
            client.send(b"" if number % 2 else b"PUB a.b 250000\r\nonly this much")
        time.sleep(0.05)
        for client in clients:
            client.close()
    wait_until_left(server)


def test_a_promise_of_large_payloads_takes_no_memory(server: NatsServer) -> None:
    with undisturbed(server, grows_at_most=16 << 20):
        clients = [SocketClient(server.port) for _ in range(200)]
        for client in clients:
            client.send(b"PUB a.b 262144\r\nand no more")
        time.sleep(0.1)
        for client in clients:
            client.close()


def test_frames_may_come_one_byte_at_a_time(server: NatsServer) -> None:
    name = fresh_bucket()
    with SocketClient(server.port) as client:
        for byte in f"SUB {name} 1\r\nPUB {name} r 5\r\nhello\r\nHPUB {name} 12 14\r\nNATS/1.0\r\n\r\nhi\r\n".encode():
            client.send(bytes([byte]))
        got = [client.next(), client.next()]
    assert [(each.reply, each.headers, each.payload) for each in got] == [
        ("r", b"", b"hello"),
        ("", b"NATS/1.0\r\n\r\n", b"hi"),
    ]


def test_who_does_not_say_who_it_is_is_not_kept_waiting(servers: Servers) -> None:
    server = servers(IMPATIENT)
    silent = SocketClient(server.port, greet=False)
    slow = SocketClient(server.port, greet=False)
    slow.send(b'CONNECT {"user":"a"')
    assert silent.wait_for_end() == ["Authentication Timeout"]
    assert slow.wait_for_end() == ["Authentication Timeout"]
    for client in (silent, slow):
        client.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"user": "a"},
        {"user": "a", "pass": "c"},
        {"user": "b", "pass": "b"},
        {"auth_token": "b"},
        {"jwt": "eyJ", "sig": "x"},
    ],
    ids=str,
)
def test_wrong_credentials_are_refused(servers: Servers, options: dict[str, object]) -> None:
    server = servers(PATIENT)
    with SocketClient(server.port, {"user": "a", "pass": "b"}) as good:
        good.flush()
    with pytest.raises(Ended) as caught:
        SocketClient(server.port, options)
    assert caught.value.args[0] == ["Authorization Violation"]


def test_nothing_is_done_for_who_has_not_said_who_it_is(servers: Servers) -> None:
    server = servers(PATIENT)
    name = fresh_bucket()
    with SocketClient(server.port, {"user": "a", "pass": "b"}) as good, SocketClient(server.port, greet=False) as bad:
        good.subscribe(name, "1")
        good.flush()
        bad.send(pub_frame(name, b"x") + pub_frame("$JS.API.STREAM.NAMES", b"", reply=name) + b"PING\r\n")
        assert bad.wait_for_end() == ["Authorization Violation"]
        good.publish(name, b"y")
        assert good.next().payload == b"y"
