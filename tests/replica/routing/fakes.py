"""A node without a replica, servers in threads, and servers that break: what the tests of routing talk to."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from wsgiref.types import WSGIApplication

import uvicorn
from werkzeug.serving import make_server

from strandline.errors import StrandlineError, Unavailable
from strandline.replica.roles import Role
from strandline.replica.routing import RoutingLimits
from tests.waiting import PATIENCE_S, eventually

PATIENT = RoutingLimits(hold_s=600, wait_s=600, durable_s=600, connect_s=600, answer_s=600, idle_s=600, head_s=600)
"""Limits that no healthy run meets, however long the machine pauses."""


@dataclass
class FakeNode:
    """A node that a test moves by hand."""

    role: Role = Role.FOLLOWER
    epoch: int = 0
    leader: str | None = None
    txid: int = 0
    failure: StrandlineError | None = None
    """What `wait_durable` raises."""
    durable_epochs: list[int | None] = field(default_factory=list)
    writes: int = 0
    waited: list[int] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def leader_address(self) -> str | None:
        return self.leader

    def position(self) -> int:
        return self.txid

    def move(self, txid: int) -> None:
        """Apply transactions."""
        with self._changed:
            self.txid = txid
            self._changed.notify_all()

    def wait_for(self, txid: int, timeout_s: float) -> bool:
        self.waited.append(txid)
        with self._changed:
            return self._changed.wait_for(lambda: self.txid >= txid, timeout_s)

    def wait_for_leader(self, timeout_s: float) -> str | None:
        del timeout_s
        return self.leader

    @contextmanager
    def serving_write(self) -> Iterator[int]:
        epoch = self.epoch if self.role is Role.LEADER else 0
        self.writes += bool(epoch)
        try:
            yield epoch
        finally:
            self.writes -= bool(epoch)

    def wait_durable(self, timeout_s: float, *, epoch: int | None = None) -> int:
        del timeout_s
        self.durable_epochs.append(epoch)
        if self.failure is not None:
            raise self.failure
        if epoch != self.epoch:
            raise Unavailable("it does not lead under that epoch", hint="")
        return self.txid


def leading(txid: int = 7) -> FakeNode:
    """Return a leader."""
    return FakeNode(Role.LEADER, 1, None, txid)


@contextmanager
def serving(app: Any) -> Iterator[str]:  # noqa: ANN401 - any ASGI application
    """Serve an ASGI application in a thread, by uvicorn; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


@contextmanager
def serving_wsgi(app: WSGIApplication) -> Iterator[str]:
    """Serve a WSGI application in a thread, by werkzeug; yields its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()


Behaviour = Callable[[socket.socket, bytes], None]


@dataclass
class BrokenServer:
    """A server that does with each request what a test says; it reads the head and what came with it."""

    behaviour: Behaviour
    heads: list[bytes] = field(default_factory=list)
    """What each connection sent first."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve; yields the address."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=self._run, args=(listener,))
            thread.start()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join(PATIENCE_S)

    def _run(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(PATIENCE_S)
                self.heads.append(read_head(connection))
                self.behaviour(connection, self.heads[-1])


def read_head(connection: socket.socket) -> bytes:
    """Read to the end of a head; return what came."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            break
        data += chunk
    return data


def answering(body: bytes = b"ok", status: str = "200 OK", headers: str = "") -> Behaviour:
    """Return a behaviour that answers, and closes the connection."""

    def behave(connection: socket.socket, _: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
        connection.sendall(head.encode() + body)

    return behave


def closing(_: socket.socket, __: bytes) -> None:
    """Close the connection without an answer."""


@contextmanager
def refusing() -> Iterator[str]:
    """Yield an address that refuses connections; it is held, so that no other server is given it meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(
    address: str,
    method: str = "GET",
    path: str = "/",
    body: Any = None,  # noqa: ANN401 - as http.client takes it
    **headers: str,
) -> Got:
    """Send one request; underscores in names of headers are dashes."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return Got(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def ask_raw(address: str, data: bytes, *, ends: bool = False) -> bytes:
    """Send bytes, end the sending if asked to, and return everything that comes until the server closes."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        received = b""
        with suppress(ConnectionError):  # a server may answer, and close, before it has read everything
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while chunk := connection.recv(65536):
                received += chunk
        return received
