"""The proxy over real sockets: nodes with the middleware, servers that break, and clients that misbehave."""

import asyncio
import json
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from strandline.replica import Discovered, Leader, NodeRecord, ReplicaDirectory
from strandline.replica.directory import FAILURES_MAX
from strandline.replica.routing import AsgiRouting, ProxySettings, ProxyThread, RoutingLimits, RoutingRules
from strandline.replica.routing.proxy import _tunnel
from strandline.replica.routing.upstream import AnswerCut
from tests.fold.virtual_time import run_virtually
from tests.replica.routing.apps import echoed, starlette_app
from tests.replica.routing.fakes import (
    PATIENT,
    BrokenServer,
    FakeNode,
    answering,
    ask,
    ask_raw,
    closing,
    leading,
    read_head,
    refusing,
    serving,
)
from tests.waiting import PATIENCE_S, eventually

Logged = list[Mapping[str, object]]


class Nodes:
    """What a look finds; a test changes it."""

    def __init__(self, leader: str | None, *followers: str) -> None:
        self.session = "s1"
        self.leader = leader
        self.followers = followers
        self.looks = 0

    def look(self) -> Discovered:
        self.looks += 1
        leader = Leader("l", self.leader, self.session, 1) if self.leader else None
        records = [NodeRecord(f"f{n}", address, self.session, 1) for n, address in enumerate(self.followers)]
        return Discovered(leader, records)


@contextmanager
def proxied(nodes: Nodes, limits: RoutingLimits = PATIENT, **settings: object) -> Iterator[tuple[str, Logged]]:
    """Run a proxy; yields its address and its log."""
    logged: Logged = []
    directory = ReplicaDirectory(nodes.look).start()
    chosen = ProxySettings(limits=limits, **settings)  # type: ignore[arg-type]
    try:
        with ProxyThread(directory, chosen, log=logged.append, drain_s=PATIENCE_S) as proxy:
            yield proxy.address, logged
    finally:
        directory.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, str, str]]:
    """Serve a leader and two followers."""
    limits = replace(PATIENT, wait_s=0.01)
    with serving(AsgiRouting(starlette_app("leader"), leading(), limits=limits)) as leader:
        first, second = FakeNode(leader=leader, txid=6), FakeNode(leader=leader, txid=6)
        with (
            serving(AsgiRouting(starlette_app("first"), first, limits=limits)) as one,
            serving(AsgiRouting(starlette_app("second"), second, limits=limits)) as other,
        ):
            yield leader, one, other


def test_reads_go_to_followers_in_turn_and_writes_to_the_leader(cluster: tuple[str, str, str]) -> None:
    with proxied(Nodes(*cluster)) as (proxy, logged):
        assert {ask(proxy, "GET", "/a").body.split()[0] for _ in range(4)} == {b"first", b"second"}
        got = ask(proxy, "POST", "/a%2Fb?c=d", b"123", Connection="X-Drop", X_Drop="1")
        assert got.body == b"leader POST /a/b?c=d 3 127.0.0.1"
        assert got.headers["strandline-position"] == "7"
        lagging = ask(proxy, "GET", "/a", Cookie=got.headers["set-cookie"].split(";")[0])
        assert lagging.body.split()[0] == b"leader", "the followers have not applied it, and forward the read"
        assert ask(proxy, "GET", "/a", Cookie="strandline-position=leader").body.split()[0] == b"leader"
    assert [(line["kind"], line["status"]) for line in logged][-3:] == [("write", 200), ("read", 200), ("read", 200)]


def test_curl_gets_its_answers_over_one_connection(cluster: tuple[str, str, str], tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(3 << 20))
    with proxied(Nodes(*cluster)) as (proxy, _):
        urls = [f"{proxy}/a", f"{proxy}/b?x=1"]
        ran = subprocess.run(["/usr/bin/curl", "-sv", *urls], capture_output=True, text=True, check=True)
        assert ran.stderr.count("Re-using existing connection") + ran.stderr.count("Reusing existing") == 1
        upload = ["/usr/bin/curl", "-s", "-T", str(big), f"{proxy}/up"]  # with Expect: 100-continue
        assert subprocess.run(upload, capture_output=True, check=True).stdout.startswith(b"leader PUT /up 3145728")
        head = subprocess.run(["/usr/bin/curl", "-sI", f"{proxy}/a"], capture_output=True, text=True, check=True)
        assert head.stdout.startswith("HTTP/1.1 200 OK\n")
        assert "content-length: 26" in head.stdout


def test_large_bodies_are_streamed_both_ways(cluster: tuple[str, str, str]) -> None:
    body = bytes(range(256)) * 4096 * 5
    with proxied(Nodes(*cluster)) as (proxy, _):
        assert echoed(proxy, f"Content-Length: {len(body)}", body) == body
        assert echoed(proxy, "Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)) == body


MALFORMED = [
    b"nonsense\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 4\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET http://other/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nStrandline-Position: 9223372036854775808\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nStrandline-Position: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nStrandline-Position: \xc2\xb2\r\n\r\n",
    b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nStrandline-Position: x\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", MALFORMED)
def test_malformed_requests_are_refused_and_never_forwarded(request_bytes: bytes) -> None:
    server = BrokenServer(answering())
    with server.running() as address, proxied(Nodes(address)) as (proxy, _):
        smuggled = request_bytes + b"GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        received = ask_raw(
            proxy, smuggled if b"POST" in request_bytes else request_bytes[:-2] + b"Connection: close\r\n\r\n"
        )
        assert received.startswith(b"HTTP/1.1 400 ")
        assert received.count(b"HTTP/1.1 ") == 1, "the connection closes: what follows is of no known framing"
        assert server.heads == []


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", b"501"),
        (b"GET / HTTP/2.0\r\nHost: a\r\nConnection: close\r\n\r\n", b"505"),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000, b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nStrandline-Via: a,b,c,d\r\nConnection: close\r\n\r\n", b"508"),
    ],
)
def test_what_is_not_served_is_said(request_bytes: bytes, status: bytes) -> None:
    server = BrokenServer(answering())
    with server.running() as address, proxied(Nodes(address)) as (proxy, _):
        assert ask_raw(proxy, request_bytes).startswith(b"HTTP/1.1 " + status)
        assert server.heads == []


def test_a_malformed_body_ends_the_forwarded_request() -> None:
    server = BrokenServer(lambda connection, _: read_to_end(connection))
    with server.running() as address, proxied(Nodes(address)) as (proxy, _):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        received = ask_raw(proxy, head + b"3\r\nabc\r\nzz\r\n")
        assert received.startswith(b"HTTP/1.1 400 ")


def read_to_end(connection: socket.socket) -> None:
    """Read until the peer closes."""
    while connection.recv(65536):
        pass


def test_slow_clients_are_answered_and_let_go() -> None:
    server = BrokenServer(lambda connection, _: read_to_end(connection))
    limits = replace(PATIENT, idle_s=0.1)
    with server.running() as address, proxied(Nodes(address), limits) as (proxy, _):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
        received = eventually(lambda: ask_raw(proxy, head + b"abc"))  # nothing where not even the head came in time
        assert received.startswith(b"HTTP/1.1 408 ")
        assert ask_raw(proxy, b"") == b"", "a connection without a request is closed in silence"


def test_a_head_that_comes_drop_by_drop_is_answered_in_time() -> None:
    server = BrokenServer(answering())
    limits = replace(PATIENT, head_s=0.1)
    with server.running() as address, proxied(Nodes(address), limits) as (proxy, _):
        assert ask_raw(proxy, b"GET / HTTP/1.1\r\nHost: a\r\n").startswith(b"HTTP/1.1 408 ")
        assert server.heads == []


def test_an_answer_421_of_an_application_is_an_answer() -> None:
    server = BrokenServer(answering(b"wrong host", "421 Misdirected Request"))
    with server.running() as address, proxied(Nodes(address)) as (proxy, _):
        got = ask(proxy, "POST", "/a", b"123")
        assert (got.status, got.body, len(server.heads)) == (421, b"wrong host", 1)


NOT_LEADING = answering(b"", "421 Misdirected Request", "Strandline-Refused: not-leader\r\n")


def test_a_leader_that_never_leads_is_asked_for_a_bounded_time() -> None:
    server = BrokenServer(NOT_LEADING)
    with server.running() as address, proxied(Nodes(address), replace(PATIENT, hold_s=0.5)) as (proxy, _):
        got = ask(proxy, "POST", "/a", b"123")
        assert (got.status, got.headers["strandline-outcome"]) == (503, "not-done")
        assert server.heads


def test_a_leader_that_never_leads_is_not_asked_in_a_loop(
    cluster: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.replica.directory.PAUSE_S", 3600.0)
    server = BrokenServer(NOT_LEADING)
    with server.running() as address:
        nodes = Nodes(address)
        with proxied(nodes) as (proxy, _):
            found: list[bytes] = []
            asking = threading.Thread(target=lambda: found.append(ask(proxy, "POST", "/a", b"123").body))
            asking.start()
            eventually(lambda: len(server.heads) == FAILURES_MAX)
            looks = nodes.looks
            eventually(lambda: nodes.looks > looks + 2)
            nodes.session, nodes.leader = "s2", cluster[0]
            asking.join()
            assert found == [b"leader POST /a 3 127.0.0.1"]
            assert len(server.heads) == FAILURES_MAX


def test_a_node_that_leads_nothing_and_names_the_proxy_ends_in_a_circle() -> None:
    nodes, limits = Nodes(None), replace(PATIENT, wait_s=0.01)
    with (
        proxied(nodes) as (proxy, _),
        serving(AsgiRouting(starlette_app("f"), FakeNode(leader=proxy), limits=limits)) as follower,
    ):
        nodes.leader, nodes.followers = "http://127.0.0.1:1", (follower,)
        eventually(lambda: json.loads(ask(proxy, "GET", "/strandline/health").body)["followers"])
        got = ask(proxy, "GET", "/a", Strandline_Position="5", Connection="close")
        assert got.status == 508


def test_requests_over_one_connection_are_answered_in_order(cluster: tuple[str, str, str]) -> None:
    with proxied(Nodes(*cluster)) as (proxy, _):
        piped = (
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n"
            b"HEAD /b HTTP/1.1\r\nHost: a\r\n\r\n"
            b"GET http://a/c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        received = ask_raw(proxy, piped, ends=True)
        assert received.count(b"HTTP/1.1 200 ") == 3
        assert received.index(b"leader POST /a 3") < received.index(b" GET /c 0")
        assert b"HEAD /b" not in received


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_a_body_end_with_their_head(status: str) -> None:
    def bare(connection: socket.socket, _: bytes) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\nETag: x\r\nContent-Length: 5\r\n\r\n".encode())

    with BrokenServer(bare).running() as address, proxied(Nodes(address)) as (proxy, _):
        got = ask(proxy, "GET", "/a")
        assert (got.status, got.headers["etag"], got.body) == (int(status[:3]), "x", b"")


def test_a_change_to_http_2_is_no_way_past_the_proxy() -> None:
    server = BrokenServer(answering())
    with server.running() as address, proxied(Nodes(address)) as (proxy, _):
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
        head = b"GET / HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n"
        assert ask_raw(proxy, head, ends=True).startswith(b"HTTP/1.1 200 ")
        assert b"h2c" not in server.heads[0]


def test_a_write_of_unknown_outcome_is_not_sent_again() -> None:
    server = BrokenServer(closing)
    with server.running() as address, proxied(Nodes(address)) as (proxy, logged):
        got = ask(proxy, "POST", "/a", b"123")
        assert (got.status, got.headers["strandline-outcome"]) == (502, "unknown")
        assert ask(proxy, "GET", "/a").status == 502, "a read was sent three times, and changed nothing"
        assert [head.split()[0] for head in server.heads] == [b"POST", b"GET", b"GET", b"GET"]
    assert [line["attempts"] for line in logged] == [1, 3]


def test_an_answer_that_is_cut_off_is_cut_off_for_the_client() -> None:
    def cut(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    def cut_chunked(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")

    for behaviour, end in ((cut, b"abc"), (cut_chunked, b"3\r\nabc\r\n")):
        with BrokenServer(behaviour).running() as address, proxied(Nodes(address)) as (proxy, _):
            received = ask_raw(proxy, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not received or received.endswith(end)


def test_held_writes_succeed_at_the_new_leader(cluster: tuple[str, str, str]) -> None:
    with refusing() as nobody, proxied(nodes := Nodes(nobody, cluster[1])) as (proxy, logged):
        found: list[bytes] = []
        asking = [
            threading.Thread(target=lambda: found.append(ask(proxy, "POST", "/a", b"123").body)) for _ in range(5)
        ]
        for thread in asking:
            thread.start()
        eventually(lambda: json.loads(ask(proxy, "GET", "/strandline/health").body)["held"] == 5)
        assert ask(proxy, "GET", "/a").body == b"first GET /a 0 127.0.0.1", "reads go on meanwhile"
        nodes.session, nodes.leader = "s2", cluster[0]
        for thread in asking:
            thread.join()
        assert found == [b"leader POST /a 3 127.0.0.1"] * 5
    assert all(line["held_ms"] for line in logged if line["kind"] == "write")


def test_a_node_that_no_longer_leads_has_the_proxy_look_again(cluster: tuple[str, str, str]) -> None:
    nodes = Nodes(cluster[1])  # a follower that is taken for the leader
    with proxied(nodes) as (proxy, logged):
        found: list[bytes] = []
        asking = threading.Thread(target=lambda: found.append(ask(proxy, "POST", "/a", b"123").body))
        asking.start()
        eventually(lambda: json.loads(ask(proxy, "GET", "/strandline/health").body)["held"] == 1)
        nodes.session, nodes.leader = "s2", cluster[0]
        asking.join()
        assert found == [b"leader POST /a 3 127.0.0.1"]
    (written,) = [line for line in logged if line["kind"] == "write"]
    assert written["failures"][0].endswith("it does not lead")  # type: ignore[index]


def test_a_client_that_gave_up_while_it_was_held_is_not_served_later() -> None:
    server, nodes = BrokenServer(answering()), Nodes(None)
    with server.running() as address, proxied(nodes) as (proxy, _):
        host, _, port = proxy.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            connection.sendall(b"POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            eventually(lambda: json.loads(ask(proxy, "GET", "/strandline/health").body)["held"] == 1)
        eventually(lambda: json.loads(ask(proxy, "GET", "/strandline/health").body)["held"] == 0)
        nodes.leader = address
        assert ask(proxy, "POST", "/here", b"").status == 200
        assert [head.split()[1] for head in server.heads] == [b"/here"]


def test_a_reader_that_is_gone_is_left_out(cluster: tuple[str, str, str]) -> None:
    with refusing() as nobody, proxied(Nodes(cluster[0], nobody, cluster[2])) as (proxy, _):
        assert {ask(proxy, "GET", "/a").body.split()[0] for _ in range(4)} == {b"second"}


def test_health_says_who_leads() -> None:
    nodes = Nodes("http://127.0.0.1:1", "http://127.0.0.1:2")
    with proxied(nodes) as (proxy, _):
        got = ask(proxy, "GET", "/strandline/health")
        assert got.status == 200
        told = json.loads(got.body)
        assert (told["leader"], told["followers"]) == ("http://127.0.0.1:1", ["http://127.0.0.1:2"])
    with proxied(Nodes(None)) as (proxy, _):
        assert ask(proxy, "GET", "/strandline/health").status == 503


def test_the_number_of_connections_is_bounded() -> None:
    with proxied(Nodes(None), connections_max=0) as (proxy, _):
        assert ask_raw(proxy, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 503 ")


def test_requests_that_run_are_finished_when_the_proxy_ends() -> None:
    released = threading.Event()

    def slow(connection: socket.socket, head: bytes) -> None:
        released.wait()
        answering(b"late")(connection, head)

    server = BrokenServer(slow)
    with server.running() as address:
        directory = ReplicaDirectory(Nodes(address).look).start()
        proxy = ProxyThread(directory, ProxySettings(limits=PATIENT), drain_s=PATIENCE_S).start()
        found: list[bytes] = []
        asking = threading.Thread(target=lambda: found.append(ask(proxy.address, "GET", "/a").body))
        asking.start()
        eventually(lambda: server.heads)
        closing_proxy = threading.Thread(target=proxy.close)
        closing_proxy.start()
        eventually(lambda: not _listens(proxy.address))
        released.set()
        asking.join()
        closing_proxy.join()
        directory.close()
        assert found == [b"late"]


def _listens(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


WEBSOCKET = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def _echo_upgraded(connection: socket.socket, _: bytes) -> None:
    connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhello ")
    while data := connection.recv(100):
        connection.sendall(data)


def test_a_silent_tunnel_is_closed_on_both_sides() -> None:
    ended = threading.Event()

    def silent(connection: socket.socket, head: bytes) -> None:
        with suppress(ConnectionError):
            _echo_upgraded(connection, head)
        ended.set()

    limits = replace(PATIENT, tunnel_idle_s=0.2)
    with BrokenServer(silent).running() as address, proxied(Nodes(address), limits) as (proxy, logged):
        received = ask_raw(proxy, WEBSOCKET)  # the client sends nothing more, and reads until the proxy closes
        assert received.endswith(b"\r\n\r\nhello ")
        assert ended.wait(PATIENCE_S), "the leader is rid of it too"
    assert logged[0]["failures"] == ["no bytes went through the tunnel for 0.2 s"]


def test_the_limit_of_a_tunnel_counts_from_its_last_bytes() -> None:
    async def talk() -> list[float]:
        loop = asyncio.get_running_loop()
        near, far = asyncio.StreamReader(), asyncio.StreamReader()
        writers = [Mock(drain=AsyncMock()) for _ in range(2)]
        client = Mock(reader=near, writer=writers[0], http=Mock(trailing_data=(b"", False)))
        for at_s in range(10, 100, 10):  # each side talks in its turn
            loop.call_at(at_s, (near if at_s % 20 else far).feed_data, b"x")
        with pytest.raises(AnswerCut, match="for 15 s"):
            await _tunnel(client, far, writers[1], b"", idle_s=15)
        return [loop.time(), *(writer.write.call_count for writer in writers)]

    assert run_virtually(talk()) == pytest.approx([105, 4, 5])


def test_an_upgrade_becomes_a_tunnel_to_the_leader() -> None:
    leader, follower = BrokenServer(_echo_upgraded), BrokenServer(answering())
    with leader.running() as address, follower.running() as other, proxied(Nodes(address, other)) as (proxy, _):
        host, _, port = proxy.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            connection.sendall(WEBSOCKET)
            head = read_head(connection)
            assert head.startswith(b"HTTP/1.1 101 ")
            received = head.partition(b"\r\n\r\n")[2]
            connection.sendall(b"world")
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(100):
                received += data
            assert received == b"hello world"
    assert (len(leader.heads), follower.heads) == (1, [])


def test_a_proxy_that_is_registered_as_a_node_does_not_ask_itself_for_ever() -> None:
    nodes = Nodes(None)
    with proxied(nodes) as (proxy, _):
        nodes.leader = proxy
        eventually(lambda: json.loads(ask(proxy, "GET", "/strandline/health").body)["leader"] == proxy)
        assert ask(proxy, "GET", "/a").status == 508


def test_a_path_can_be_a_write(cluster: tuple[str, str, str]) -> None:
    with proxied(Nodes(*cluster), rules=RoutingRules(write_paths=("/logout",))) as (proxy, _):
        assert ask(proxy, "GET", "/logout").body.split()[0] == b"leader"
        assert ask(proxy, "GET", "/%6cogout").body.split()[0] == b"leader"
