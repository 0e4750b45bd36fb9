"""What needs servers of its own: lists of everything, domains, and the door that WebSockets come by."""

import socket
from collections.abc import Callable
from contextlib import ExitStack

from tests.broker.clients.raw import PACES, Talk
from tests.broker.clients.servers import KINDS, set_up
from tests.ports import free_ports
from tests.waiting import PATIENCE_S

API = "$JS.API"
Compare = Callable[..., None]


def test_lists_of_everything(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        talk.ask(f"{API}.INFO")
        for subject in ("STREAM.NAMES", "STREAM.LIST"):
            talk.ask(f"{API}.{subject}")
        for name in ("B", "A", "C"):
            talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
            for number in range(3):
                talk.ask(f"{name}.{number}", "x")
            config = {"durable_name": "c", "ack_policy": "explicit"}
            talk.ask(f"{API}.CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": config})
        for body in (
            "",
            {"offset": 1},
            {"offset": 9},
            {"offset": -1},
            {"subject": "A.1"},
            {"subject": "*.1"},
            "nope",
            "{",
        ):
            for subject in ("STREAM.NAMES", "STREAM.LIST"):
                talk.ask(f"{API}.{subject}", body)
        talk.ask(f"{API}.INFO")
        talk.ask(f"{API}.STREAM.DELETE.A")
        talk.ask(f"{API}.INFO")

    compare_with(script, "")


def test_a_domain(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        for prefix in ("$JS.hub.API", API, "$JS.other.API"):
            talk.ask(f"{prefix}.INFO", answers=-1)
        talk.ask("$JS.hub.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
        talk.ask("s.1", "x")
        talk.ask("$JS.hub.API.STREAM.INFO.S")
        talk.ask("$JS.hub.API.DIRECT.GET.S.s.1")
        config = {"durable_name": "c", "ack_policy": "explicit"}
        talk.ask("$JS.hub.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        heard = talk.ask("$JS.hub.API.CONSUMER.MSG.NEXT.S.c", {"batch": 1})
        talk.ask(heard[0].split(" ")[2], "+ACK")
        talk.ask("$JS.hub.API.CONSUMER.MSG.NEXT.S.none", {"batch": 1})
        events = talk.listen("$JS.EVENT.ADVISORY.STREAM.DELETED.S")
        talk.ask("$JS.hub.API.STREAM.DELETE.S")
        talk.heard(events, 1)

    compare_with(script, "", jetstream="domain: hub")


GUEST = """
authorization: { users: [ { user: guest, password: g, permissions: { publish: {
  allow: ["$JS.API.>", "$JS.hub.API.>", "_INBOX.>"], deny: ["$KV.>", "$JS.API.STREAM.PURGE.>"] } } } ] }
"""


def test_what_may_not_be_published_below_the_prefix_of_a_domain(compare_with: Compare) -> None:
    def script(talk: Talk) -> None:
        talk.ask("$JS.hub.API.STREAM.CREATE.KV_B", {"name": "KV_B", "subjects": ["$KV.B.>"]})
        for subject in ("$KV.B.k", "$JS.hub.API.$KV.B.k", "$JS.API.$KV.B.k", "$JS.hub.API.STREAM.PURGE.KV_B"):
            talk.raw(b"PUB %b 1\r\nx\r\n" % subject.encode())
        talk.ask("$JS.hub.API.STREAM.INFO.KV_B")

    login = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "user": "guest", "pass": "g"}
    compare_with(script, GUEST, login, jetstream="domain: hub")


def _heard_at_the_end(kind: str, pace: int) -> list[str]:
    with set_up(kind) as server:
        talk = Talk(server.port, pace=pace)
        talk.ask(f"{API}.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        config = {"durable_name": "c", "ack_policy": "explicit"}
        talk.ask(f"{API}.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        talk.ask(f"{API}.CONSUMER.MSG.NEXT.S.c", {"batch": 1, "expires": 600_000_000_000}, answers=0)
    talk.heard("1", 1)
    talk.raw(b"", lines=99)
    talk.close()
    return talk.said


def test_what_clients_hear_when_a_server_ends() -> None:
    for pace in PACES:  # a server that is in a hurry may not have sent the last word
        theirs, ours = (_heard_at_the_end(kind, pace) for kind in KINDS)
        if ours == theirs:
            return
    assert ours == theirs


KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", KEY)
KNOCKS = (
    ("GET / HTTP/1.1", *UPGRADE),
    ("GET /some/where?a=b HTTP/1.1", *UPGRADE),
    ("POST / HTTP/1.1", *UPGRADE),
    ("GET / HTTP/1.1", *UPGRADE[1:]),
    ("GET / HTTP/1.1", UPGRADE[0], *UPGRADE[2:]),
    ("GET / HTTP/1.1", *UPGRADE[:2], "Sec-WebSocket-Version: 12", KEY),
    ("GET / HTTP/1.1", *UPGRADE[:3]),
    ("GET / HTTP/1.1", *UPGRADE, "Sec-WebSocket-Protocol: nats"),
    ("GET / HTTP/1.1", *UPGRADE, "Origin: http://elsewhere"),
)


def test_how_websockets_are_let_in() -> None:
    with ExitStack() as stack:
        ports = free_ports(2)
        for kind, port in zip(KINDS, ports, strict=True):
            stack.enter_context(set_up(kind, f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}"))
        for knock in KNOCKS:
            theirs, ours = (_answer(port, knock) for port in ports)
            assert ours == theirs, knock


def _answer(port: int, knock: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the status line, and the headers if it is let in."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall("\r\n".join([knock[0], f"Host: 127.0.0.1:{port}", *knock[1:], "", ""]).encode())
        data = b""
        while b"\r\n\r\n" not in data and (part := connection.recv(65536)):
            data += part
    status, *headers = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return status, sorted(line.lower() for line in headers if "101" in status)
