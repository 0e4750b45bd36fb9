"""The ASGI and the WSGI middleware over real sockets: Starlette under uvicorn, Flask under werkzeug."""

import asyncio
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from strandline.errors import Closed, Unavailable
from strandline.replica.roles import Role
from strandline.replica.routing import AsgiRouting, RoutingLimits, RoutingRules, WsgiRouting
from tests.replica.routing.apps import echoed, flask_app, starlette_app
from tests.replica.routing.fakes import (
    PATIENT,
    BrokenServer,
    FakeNode,
    answering,
    ask,
    ask_raw,
    closing,
    leading,
    refusing,
    serving,
    serving_wsgi,
)
from tests.waiting import PATIENCE_S, eventually

QUICK = replace(PATIENT, hold_s=0.2, wait_s=0.1)
RULES = RoutingRules(local_paths=("/health",))


Serve = Callable[..., AbstractContextManager[str]]


@contextmanager
def _serve_asgi(
    name: str,
    node: FakeNode,
    limits: RoutingLimits = PATIENT,
    *,
    durable: bool = True,
    rules: RoutingRules = RULES,
) -> Iterator[str]:
    with serving(AsgiRouting(starlette_app(name), node, rules=rules, limits=limits, durable=durable)) as address:
        yield address


@contextmanager
def _serve_wsgi(
    name: str,
    node: FakeNode,
    limits: RoutingLimits = PATIENT,
    *,
    durable: bool = True,
    rules: RoutingRules = RULES,
) -> Iterator[str]:
    app = WsgiRouting(flask_app(name), node, rules=rules, limits=limits, durable=durable)
    with serving_wsgi(app) as address:
        yield address
    app.close()


@pytest.fixture(params=[_serve_asgi, _serve_wsgi], ids=["asgi", "wsgi"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Serve a node, of either kind."""
    found: Serve = request.param
    return found


def test_reads_are_served_here_and_writes_by_the_leader(serve: Serve) -> None:
    with serve("leader", leading()) as leader, serve("follower", FakeNode(leader=leader)) as follower:
        assert ask(follower, "GET", "/a").body == b"follower GET /a 0"
        written = ask(follower, "POST", "/a%20b?x=%2F", b"12345")
        assert written.body == b"leader POST /a b?x=%2F 5 127.0.0.1"
        assert written.headers["strandline-position"] == "7"
        assert written.headers["set-cookie"].startswith("strandline-position=7; Path=/;")
        assert ask(follower, "POST", "/health", b"1").body == b"follower POST /health 1", "it is never routed"
        assert ask(leader, "PUT", "/a", b"12").body == b"leader PUT /a 2"


def test_two_applications_on_one_host_have_cookies_of_their_own(serve: Serve) -> None:
    orders = RoutingRules(cookie="orders-position")
    with serve("leader", leading(), rules=orders) as leader:
        written = ask(leader, "POST", "/a", b"1").headers["set-cookie"]
        assert written.startswith("orders-position=7; ")
        with serve("follower", FakeNode(leader=leader, txid=1), QUICK, rules=orders) as follower:
            behind = ask(follower, "GET", "/a", Cookie="orders-position=7")
            assert behind.body.split()[0] == b"leader", "its own cookie is read back"
            others = ask(follower, "GET", "/a", Cookie="strandline-position=7")
            assert others.body.split()[0] == b"follower", "the position of another application is none of this one"


@pytest.mark.parametrize("length", ["-1", "+5", " 5", "1_0", "abc", "5,5"])
def test_a_length_that_is_no_number_is_refused_by_the_wsgi_middleware(length: str) -> None:
    node, statuses = leading(), list[str]()

    def start_response(status: str, *_: object) -> Callable[[bytes], object]:
        statuses.append(status)
        return lambda _: None

    app = WsgiRouting(flask_app("leader"), node)
    for method, role in (("POST", Role.LEADER), ("POST", Role.FOLLOWER), ("GET", Role.FOLLOWER)):
        node.role = role
        environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": "/a", "CONTENT_LENGTH": length}
        setup_testing_defaults(environ)
        body = app(environ, start_response)
        assert b"Content-Length is" in b"".join(body)
    app.close()
    assert statuses == ["400 Bad Request"] * 3


def test_a_wsgi_middleware_that_is_closed_ends_the_requests_that_it_forwards(serve: Serve) -> None:
    with serve("leader", leading()) as leader:
        app = WsgiRouting(flask_app("follower"), FakeNode(leader=leader), limits=PATIENT)
        answer = app(_posted(io.BytesIO(b"123")), lambda *_: lambda _: None)
        is_reading, goes_on = threading.Event(), threading.Event()

        class SlowBody(io.BytesIO):
            def read(self, _: int | None = -1) -> bytes:
                is_reading.set()
                goes_on.wait()
                return b"123"

        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(app, _posted(SlowBody()), lambda *_: lambda _: None)
            is_reading.wait()
            app.close()
            goes_on.set()
            with pytest.raises(CancelledError):
                other.result(PATIENCE_S)
        answer.close()  # type: ignore[attr-defined] # a body of ours has it
        with pytest.raises(Closed):
            next(iter(answer))


def _posted(body: io.BytesIO) -> dict[str, Any]:
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": "/a", "CONTENT_LENGTH": "3", "wsgi.input": body}
    setup_testing_defaults(environ)
    return environ


def test_large_bodies_are_streamed_both_ways(serve: Serve) -> None:
    body = bytes(range(256)) * 4096 * 5  # more than is kept for a second attempt
    with serve("leader", leading()) as leader, serve("follower", FakeNode(leader=leader)) as follower:
        assert echoed(follower, f"Content-Length: {len(body)}", body) == body
        assert echoed(follower, "Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)) == body


def test_a_write_waits_for_the_leader_that_comes(serve: Serve) -> None:
    node = FakeNode()
    with refusing() as nobody, serve("leader", leading()) as leader, serve("follower", node) as follower:
        node.leader = nobody
        found: list[bytes] = []
        asking = threading.Thread(target=lambda: found.append(ask(follower, "POST", "/a", b"123").body))
        asking.start()
        asking.join(0.1)  # it is given the time to find nothing at the old address; the test does not depend on it
        assert not found
        node.leader = leader
        asking.join()
        assert found == [b"leader POST /a 3 127.0.0.1"]


def test_a_write_is_served_here_if_this_node_comes_to_lead(serve: Serve) -> None:
    node = FakeNode(Role.CHANGING, txid=3)
    with serve("other", node) as address:
        found: list[bytes] = []
        asking = threading.Thread(target=lambda: found.append(ask(address, "POST", "/a", b"123").body))
        asking.start()
        asking.join(0.1)  # as above
        assert not found
        node.epoch, node.role = 2, Role.LEADER
        asking.join()
        assert found == [b"other POST /a 3"]
        assert node.durable_epochs == [2]


def test_a_body_that_was_sent_to_a_former_leader_is_served_here(serve: Serve) -> None:
    refused = answering(b"", "421 Misdirected Request", "Strandline-Refused: not-leader\r\n")
    server, node = BrokenServer(refused), FakeNode(txid=3)
    with server.running() as former, serve("other", node) as address:
        node.leader = former
        found: list[bytes] = []
        asking = threading.Thread(target=lambda: found.append(ask(address, "POST", "/a", b"123").body))
        asking.start()
        eventually(lambda: server.heads)
        node.epoch, node.role = 2, Role.LEADER
        asking.join()
        assert found == [b"other POST /a 3"]


def test_a_hold_ends_in_an_answer_that_says_that_nothing_was_done(serve: Serve) -> None:
    with refusing() as nobody, serve("follower", FakeNode(leader=nobody), QUICK) as follower:
        got = ask(follower, "POST", "/a", b"123")
        assert (got.status, got.headers["strandline-outcome"]) == (503, "not-done")
        assert json.loads(got.body)["hint"] == "nothing was done; send it again"
        assert ask(follower, "GET", "/a").status == 200


def test_the_number_of_held_requests_is_bounded(serve: Serve) -> None:
    limits = replace(PATIENT, held_max=0)
    with serve("follower", FakeNode(leader=None), limits) as follower:
        got = ask(follower, "POST", "/a", b"123")
        assert (got.status, json.loads(got.body)["error"]) == (503, "too many requests are waiting for a leader")


def test_a_forwarded_write_of_unknown_outcome_is_not_sent_again(serve: Serve) -> None:
    server = BrokenServer(closing)
    with server.running() as leader, serve("follower", FakeNode(leader=leader)) as follower:
        got = ask(follower, "POST", "/a", b"123")
        assert (got.status, got.headers["strandline-outcome"]) == (502, "unknown")
        assert "may have been executed" in json.loads(got.body)["error"]
        assert len(server.heads) == 1


def test_with_an_idempotency_key_it_is_sent_again(serve: Serve) -> None:
    def once(connection: socket.socket, head: bytes) -> None:
        if len(server.heads) > 1:
            answering(b"done")(connection, head)

    server = BrokenServer(once)
    with server.running() as leader, serve("follower", FakeNode(leader=leader)) as follower:
        got = ask(follower, "POST", "/a", b"123", Idempotency_Key="k1")
        assert (got.status, got.body) == (200, b"done")
        assert [head.count(b"k1") for head in server.heads] == [1, 1]


def test_a_leader_that_is_silent_leaves_the_outcome_unknown(serve: Serve) -> None:
    released = threading.Event()

    def silent(_: socket.socket, __: bytes) -> None:
        released.wait()

    server = BrokenServer(silent)
    limits = replace(PATIENT, answer_s=0.1)
    with server.running() as leader, serve("follower", FakeNode(leader=leader), limits) as follower:
        got = ask(follower, "POST", "/a", b"123", Idempotency_Key="k1")
        assert (got.status, got.headers["strandline-outcome"]) == (504, "unknown")
        released.set()
        ask_raw(leader, b"GET /last HTTP/1.1\r\n\r\n")  # connections are served in their order
        assert [head.split()[1] for head in server.heads] == [b"/a", b"/last"]


def test_a_node_that_does_not_lead_says_so_to_a_forwarder_and_forwards_nothing(serve: Serve) -> None:
    with serve("follower", FakeNode(leader="http://127.0.0.1:1")) as follower:
        got = ask(follower, "POST", "/a", b"1", Strandline_Expect_Leader="1")
        assert (got.status, got.headers["strandline-refused"]) == (421, "not-leader")


def test_a_forwarder_looks_again_when_its_leader_is_none(serve: Serve) -> None:
    former = FakeNode(leader="http://127.0.0.1:1")
    with serve("former", former) as old, serve("leader", leading()) as new:
        node = FakeNode(leader=old)
        with serve("follower", node) as follower:
            found: list[bytes] = []
            asking = threading.Thread(target=lambda: found.append(ask(follower, "POST", "/a", b"12").body))
            asking.start()
            asking.join(0.1)  # it may or may not have asked the former leader; both must end well
            node.leader = new
            asking.join()
            assert found == [b"leader POST /a 2 127.0.0.1"]


def test_requests_in_a_circle_are_refused(serve: Serve) -> None:
    with serve("follower", FakeNode(leader="http://127.0.0.1:1")) as follower:
        got = ask(follower, "POST", "/a", b"1", Strandline_Via="a, b, c, d")
        assert (got.status, got.headers["strandline-outcome"]) == (508, "not-done")


def test_a_client_reads_its_own_write_on_a_follower_that_lags(serve: Serve) -> None:
    node = FakeNode(leader="http://127.0.0.1:1", txid=6)
    with serve("follower", node) as follower:
        found: list[bytes] = []

        def read() -> None:
            found.append(ask(follower, "GET", "/a", Cookie="x=y; strandline-position=7").body)

        reading = threading.Thread(target=read)
        reading.start()
        eventually(lambda: node.waited == [7])
        assert not found
        node.move(7)
        reading.join()
        assert found == [b"follower GET /a 0"]


def test_a_follower_that_lags_for_too_long_forwards_the_read(serve: Serve) -> None:
    limits = replace(PATIENT, wait_s=0.05)
    with (
        serve("leader", leading()) as leader,
        serve("follower", FakeNode(leader=leader, txid=6), limits) as follower,
    ):
        got = ask(follower, "GET", "/a", Strandline_Position="7")
        assert got.body == b"leader GET /a 0 127.0.0.1"
        assert ask(follower, "GET", "/a", Strandline_Position="6").body == b"follower GET /a 0"
        assert ask(follower, "GET", "/a", Strandline_Position="x").status == 400


def test_a_write_that_is_not_durable_in_time_is_not_acknowledged(serve: Serve) -> None:
    node = leading()
    node.failure = Unavailable("the store is away", hint="")
    with serve("leader", node) as leader:
        got = ask(leader, "POST", "/a", b"1")
        assert (got.status, got.headers["strandline-outcome"]) == (504, "unknown")
        assert "strandline-position" not in got.headers
        refused = ask(leader, "POST", "/conflict", b"1")
        assert (refused.status, refused.body) == (409, b"leader POST /conflict 1"), "an error acknowledges nothing"


def test_without_waiting_a_client_reads_at_the_leader_for_a_while(serve: Serve) -> None:
    node = leading()
    node.failure = Unavailable("the store is away", hint="")
    with serve("leader", node, durable=False) as leader:
        got = ask(leader, "POST", "/a", b"1")
        assert (got.status, "strandline-position" in got.headers) == (200, False)
        cookie = got.headers["set-cookie"].split(";")[0]
        with serve("follower", FakeNode(leader=leader)) as follower:
            assert ask(follower, "GET", "/a", Cookie=cookie).body == b"leader GET /a 0 127.0.0.1"
    assert node.durable_epochs == []


def test_the_epoch_is_read_before_the_application_runs() -> None:
    node = leading()

    async def app(scope: Any, _: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        assert scope["type"] == "http"
        node.epoch = 2  # another tenure begins while the application works
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    with serving(AsgiRouting(app, node, limits=PATIENT)) as leader:
        got = ask(leader, "POST", "/a", b"1")
        assert (got.status, got.headers["strandline-outcome"]) == (504, "unknown")
    assert node.durable_epochs == [1]


def test_other_scopes_pass_through() -> None:
    seen: list[str] = []

    async def app(scope: Any, _: Any, __: Any) -> None:  # noqa: ANN401 - ASGI
        seen.append(scope["type"])

    async def main() -> None:
        routing = AsgiRouting(app, FakeNode())
        for kind in ("websocket", "lifespan"):
            await routing({"type": kind}, None, None)  # type: ignore[arg-type]

    asyncio.run(main())
    assert seen == ["websocket", "lifespan"]


def test_a_client_that_gave_up_while_it_was_held_is_not_served_later() -> None:
    server, node = BrokenServer(answering()), FakeNode(Role.CHANGING)
    app = AsgiRouting(starlette_app("follower"), node, limits=PATIENT)
    with server.running() as leader, serving(app) as follower:
        host, _, port = follower.removeprefix("http://").partition(":")
        for body in (b"", b"abc"):
            with socket.create_connection((host, int(port))) as connection:
                head = b"POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)
                eventually(lambda: _held(app) == 1)
            eventually(lambda: _held(app) == 0)
        node.leader, node.role = leader, Role.FOLLOWER
        assert ask(follower, "POST", "/here", b"").status == 200
        assert [head.split()[1] for head in server.heads] == [b"/here"]


def _held(app: AsgiRouting) -> int:
    return sum(state.forwarder.held for state in app._loops.values())  # noqa: SLF001 - counted there alone


def test_the_number_of_forwarded_requests_that_a_changing_node_holds_is_bounded(serve: Serve) -> None:
    limits = replace(PATIENT, held_max=0)
    with serve("changing", FakeNode(Role.CHANGING), limits) as address:
        got = ask(address, "POST", "/a", b"1", Strandline_Expect_Leader="1")
        assert (got.status, got.headers["strandline-refused"]) == (421, "not-leader"), "the forwarder holds it"


def test_a_write_that_loses_its_leader_before_it_is_served_goes_to_the_next_one(serve: Serve) -> None:
    @dataclass
    class Losing(FakeNode):
        @contextmanager
        def serving_write(self) -> Iterator[int]:
            self.role = Role.FOLLOWER
            yield 0

    with serve("leader", leading()) as leader, serve("former", Losing(Role.LEADER, 1, leader)) as former:
        assert ask(former, "POST", "/a", b"123").body == b"leader POST /a 3 127.0.0.1"


def test_a_hand_over_waits_until_the_answer_is_settled(serve: Serve) -> None:
    class Counting(FakeNode):
        def wait_durable(self, timeout_s: float, *, epoch: int | None = None) -> int:
            seen.append(self.writes)
            return super().wait_durable(timeout_s, epoch=epoch)

    seen: list[int] = []
    node = Counting(Role.LEADER, 1, None, 7)
    with serve("leader", node) as leader:
        assert ask(leader, "POST", "/a", b"1").status == 200
        assert (seen, node.writes) == ([1], 0)
