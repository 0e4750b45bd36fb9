"""The life of a connection: greetings, pings, limits, and its end."""

import json

import pytest

from strandline.broker.routes import Deliveries
from strandline.broker.settings import ServerSettings
from tests.broker.core.world import CLOSED, CONNECT, InMemoryServer

SECOND_NS = 1_000_000_000


def test_whoever_writes_is_called_once_for_each_turn() -> None:
    world = InMemoryServer()
    client = world.client()
    client.say(b"SUB a 1\r\n")
    world.woken.clear()
    client.session.feed(b"PUB a 0\r\n\r\nPING\r\n")
    client.session.feed(b"PING\r\n")
    assert world.woken == [client.session.client_id]
    assert client.heard() == b"MSG a 1 0\r\n\r\nPONG\r\nPONG\r\n"
    client.session.feed(b"PING\r\n")
    assert len(world.woken) == 2


def test_a_client_that_says_nothing_is_pinged_and_then_left() -> None:
    world = InMemoryServer(ServerSettings(ping_interval_s=10, ping_max=2))
    client = world.client()
    said = b""
    for _ in range(8):
        world.clock.advance(5)
        client.session.tick(world.clock.now_ns())
        said += client.heard()
        if client.session.closing is not None:
            break
    assert said == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n" + CLOSED
    assert client.session.closing == "Stale Connection"


def test_a_client_that_answers_or_talks_stays() -> None:
    world = InMemoryServer(ServerSettings(ping_interval_s=10, ping_max=2))
    client = world.client()
    for n in range(20):
        world.clock.advance(10)
        client.session.tick(world.clock.now_ns())
        if client.heard() == b"PING\r\n":
            world.clock.advance(0.25)
            client.say(b"PONG\r\n" if n % 2 else b"PONG\r\nPUB a 0\r\n\r\n")
            assert client.session.rtt_ns == SECOND_NS // 4
    assert client.session.closing is None
    assert client.session.next_due_ns > world.clock.now_ns()


def test_nothing_is_heard_or_done_once_it_closes() -> None:
    world = InMemoryServer()
    client, other = world.client(CONNECT + b"SUB a 1\r\n"), world.client(CONNECT + b"SUB b 1\r\n")
    assert client.say(b"NONSENSE\r\nPUB b 0\r\n\r\n") == b"-ERR 'Unknown Protocol Operation'\r\n" + CLOSED
    assert client.say(b"PUB b 0\r\n\r\n") == CLOSED
    assert not world.router.send(b"a", b"x")
    assert other.heard() == b""
    client.session.close("again")
    assert client.session.closing == "Protocol Violation"


def test_what_came_before_a_violation_took_effect() -> None:
    world = InMemoryServer()
    client, other = world.client(), world.client(CONNECT + b"SUB b 1\r\n")
    assert (
        client.say(b"PUB b 1\r\nx\r\nPING\r\nPUB b 99999999\r\n")
        == b"PONG\r\n-ERR 'Maximum Payload Violation'\r\n" + CLOSED
    )
    assert other.heard() == b"MSG b 1 1\r\nx\r\n"


@pytest.mark.parametrize(
    ("sent", "said"),
    [(b"SUB c 3\r\n", b"maximum subscriptions exceeded"), (b"SUB a.b.c.d 3\r\n", b'to "a.b.c.d", too')],
)
def test_subscriptions_are_limited(sent: bytes, said: bytes) -> None:
    world = InMemoryServer(ServerSettings(max_subscriptions=2, max_subscription_tokens=3))
    client = world.client(CONNECT + b"SUB a.b.c 1\r\nSUB b 2\r\n")
    assert said in client.say(sent)
    assert len(client.session.subscriptions) == 2
    assert client.say(b"UNSUB 2\r\nSUB c 3\r\n") == b""


def test_lines_and_payloads_are_limited() -> None:
    world = InMemoryServer(ServerSettings(max_control_line=100, max_payload=10))
    assert world.client().say(b"PUB a 10\r\n0123456789\r\n") == b""
    assert world.client().say(b"PUB a 11\r\n") == b"-ERR 'Maximum Payload Violation'\r\n" + CLOSED
    assert world.client().say(b"SUB " + b"a" * 200) == b"-ERR 'maximum control line exceeded'\r\n" + CLOSED


def test_a_lame_duck_says_so_to_those_who_understand() -> None:
    world = InMemoryServer()
    modern, plain = world.client(CONNECT.replace(b"{", b'{"protocol":1,')), world.client()
    for client in (modern, plain):
        client.session.lame_duck()
    assert json.loads(modern.heard()[5:])["ldm"] is True
    assert plain.heard() == b""


def test_a_subscription_before_connect_hears_as_connect_says() -> None:
    world = InMemoryServer()
    client, publisher = world.client(b"SUB a 1\r\n"), world.client()
    assert client.heard() == b""
    client.say(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"echo":false}\r\n')
    publisher.say(b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n")
    assert client.say(b"PUB a 1\r\ny\r\n") == b"HMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n"


def test_the_origin_tells_who_it_is() -> None:
    world = InMemoryServer()
    client = world.client(b'CONNECT {"verbose":false,"name":"n","lang":"python","version":"1.2"}\r\n')
    origin = client.session.origin
    assert (origin.account, origin.name, origin.language, origin.version) == ("$G", "n", "python", "1.2")
    assert (origin.host, origin.start_ns) == ("127.0.0.1", client.session.started_ns)


def test_a_drained_subscription_hears_what_was_sent_before_it_ended() -> None:
    world = InMemoryServer()
    client = world.client(CONNECT + b"SUB a 1\r\n")
    world.router.send_many(Deliveries([b"a"] * 3, [b"x"] * 3))
    assert client.say(b"UNSUB 1\r\nPING\r\n") == b"MSG a 1 1\r\nx\r\n" * 3 + b"PONG\r\n"
    assert not world.router.send(b"a", b"y")
