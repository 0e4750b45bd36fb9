"""An HTTP proxy before the nodes of a replica: reads to followers in turn, writes to the leader.

Invariants: what is forwarded is written anew from a head that was parsed whole; memory does not grow with the size of
bodies; an answer that a server cut off is cut off for the client too; after `drain` began no request begins, and those
that run are finished within a limit.
"""

import asyncio
import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote

from strandline.errors import InvalidInput
from strandline.extras import needs
from strandline.replica.directory import ReplicaDirectory
from strandline.replica.routing.answers import NOT_DONE, PlainAnswer, answer, bad_request, looping, reason_of
from strandline.replica.routing.client import Client, RequestRefused
from strandline.replica.routing.forwarder import Forwarded, Forwarder, ForwardRequest
from strandline.replica.routing.headers import (
    Headers,
    Peer,
    body_size,
    check_framing,
    check_hops,
    forwarded_headers,
    get_header,
    list_header,
    origin_form,
)
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.locators import LeaderLocator, ReaderLocator
from strandline.replica.routing.positions import wanted_position
from strandline.replica.routing.rules import Kind, RoutingRules
from strandline.replica.routing.upstream import CHUNK_BYTES, Answer, AnswerCut, ClientFailed, RequestHead, end_tasks

with needs("replica"):
    import h11

Log = Callable[[Mapping[str, object]], None]


@dataclass(frozen=True)
class ProxySettings:
    """How a proxy routes, and what it tells."""

    rules: RoutingRules = field(default_factory=RoutingRules)
    limits: RoutingLimits = field(default_factory=RoutingLimits)
    connections_max: int = 1000
    health_path: str = "/strandline/health"
    trusts_peers: bool = False
    """Whether `X-Forwarded-…` of clients are believed, because another proxy stands before this one."""


class Proxy:
    """Serves clients; used within one event loop."""

    def __init__(self, directory: ReplicaDirectory, settings: ProxySettings, log: Log | None = None) -> None:
        self._directory = directory
        self._settings = settings
        self._log = log
        self._identity = secrets.token_hex(8)
        self._forwarder = Forwarder(settings.limits)
        self._clients: dict[asyncio.Task[None], Client] = {}
        self._server: asyncio.Server | None = None
        self._is_draining = False

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return where."""
        self._server = await asyncio.start_server(self._serve_client, host, port, limit=CHUNK_BYTES, backlog=1024)
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, finish those that began, and end."""
        self._is_draining = True
        if self._server is not None:
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(5):  # turns that a client which was accepted just now needs until it is known here
                await asyncio.sleep(0)
            self._server.close()
        for client in self._clients.values():
            if client.is_idle:
                client.writer.close()
        tasks = set(self._clients)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._forwarder.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - the server runs this as a task
        client = Client(reader, writer, self._settings.limits)
        is_refused = len(self._clients) >= self._settings.connections_max
        self._clients[task] = client
        try:
            if is_refused:
                await client.send_plain(answer(503, "too many connections", outcome=NOT_DONE, retry_s=1), closes=True)
            else:
                while not self._is_draining and await self._serve_request(client):
                    pass
            await client.close()
        except (ClientFailed, OSError):
            client.abort()
        except asyncio.CancelledError:
            client.abort()  # the limit of a drain has passed
        finally:
            del self._clients[task]

    async def _serve_request(self, client: Client) -> bool:
        """Serve one request; return whether another one may follow."""
        try:
            request = await client.next_request()
            if request is None:
                return False
            began_s, told = time.monotonic(), Forwarded()
            try:
                status, kind = await self._route(client, request, told)
            except AnswerCut as error:
                told.failures.append(str(error))
                status, kind = 0, None
                client.abort()
            self._tell(client, request, began_s, told, status, kind)
            return status != 0 and client.is_reusable()
        except RequestRefused as error:
            await client.send_plain(error.refusal, closes=True)
            return False

    async def _route(self, client: Client, request: "h11.Request", told: Forwarded) -> tuple[int, Kind | None]:
        headers = list(request.headers)
        is_head = request.method == b"HEAD"
        target, refusal = self._check(request, headers)
        path = unquote(target.partition(b"?")[0].decode("latin-1"))
        kind = self._settings.rules.kind_of(request.method.decode("latin-1"), path)
        if refusal is None and path == self._settings.health_path:
            refusal = self._health()
        if refusal is not None:
            closes = self._is_draining or not client.is_read()
            await client.send_plain(refusal, closes=closes, is_head=is_head)
            return refusal.status, kind
        upgrade = _upgrade(headers)
        to_leader = (
            kind is Kind.WRITE or bool(upgrade) or wanted_position(headers, self._settings.rules.cookie).at_leader
        )
        sent = forwarded_headers(
            headers,
            Peer(client.host, "http"),
            self._identity,
            to_leader=to_leader,
            trusts_peer=self._settings.trusts_peers,
        )
        body = self._forwarder.body(client.read_body, body_size(headers))
        locator = (LeaderLocator if to_leader else ReaderLocator)(self._directory, client.is_here)
        forwarded = ForwardRequest(kind, RequestHead(request.method, target, sent, upgrade), body)
        try:
            found = await self._forwarder.forward(forwarded, locator, told)
            if isinstance(found, Answer):
                status = found.status
                await self._relay(client, found, upgrade)
            else:
                assert isinstance(found, PlainAnswer)  # noqa: S101 - a proxy serves nothing itself
                status = found.status
                await client.send_plain(found, closes=self._is_draining or not client.is_read(), is_head=is_head)
        except ClientFailed as error:
            if error.status is None or client.http.our_state is not h11.SEND_RESPONSE:
                raise
            status = error.status
            await client.send_plain(answer(status, str(error)), closes=True)
        finally:
            await body.close()
        return status, kind

    def _check(self, request: "h11.Request", headers: Headers) -> tuple[bytes, PlainAnswer | None]:
        """Return the target of a request, and the answer to one that is refused."""
        try:
            if request.http_version not in (b"1.0", b"1.1"):
                return b"", answer(505, "this proxy speaks HTTP/1.1", outcome=NOT_DONE)
            check_framing(headers, request.http_version)
            if request.method == b"CONNECT":
                return b"", answer(501, "this proxy makes no tunnels", outcome=NOT_DONE)
            target = origin_form(request.method, request.target, get_header(headers, b"host"))
            wanted_position(headers, self._settings.rules.cookie)
        except InvalidInput as error:
            return b"", bad_request(error)
        try:
            check_hops(headers, self._identity)
        except InvalidInput as error:
            return target, looping(error)
        return target, None

    async def _relay(self, client: Client, found: Answer, upgrade: bytes) -> None:
        try:
            if found.tunnel is not None:
                headers = [*found.headers, (b"connection", b"upgrade"), (b"upgrade", upgrade)]
                client.write(
                    h11.InformationalResponse(status_code=found.status, headers=headers, reason=reason_of(found.status))
                )
                await _tunnel(client, *found.tunnel, idle_s=self._settings.limits.tunnel_idle_s)
                return
            headers = [*found.headers, (b"connection", b"close")] if self._is_draining else found.headers
            client.write(h11.Response(status_code=found.status, headers=headers, reason=reason_of(found.status)))
            async for chunk in found.body:
                await client.send_chunk(chunk)
            client.write(h11.EndOfMessage())
            await client.flush()
        finally:
            await found.close()

    def _health(self) -> PlainAnswer:
        """Return whether requests are served: 200, or 503 while no leader is known or the proxy ends."""
        found = self._directory.found
        is_well = found.leader is not None and not self._is_draining
        fields = {
            "status": "ok" if is_well else "draining" if self._is_draining else "no leader",
            "leader": found.leader.address if found.leader else None,
            "followers": [node.address for node in found.followers],
            "held": self._forwarder.held,
            "connections": len(self._clients),
            "age_s": round(self._directory.age_s, 1),
            "error": self._directory.error or next(iter(found.errors), None),
        }
        body = (json.dumps(fields) + "\n").encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        return PlainAnswer(200 if is_well else 503, headers, body)

    def _tell(
        self, client: Client, request: "h11.Request", began_s: float, told: Forwarded, status: int, kind: Kind | None
    ) -> None:
        if self._log is None:
            return
        self._log(
            {
                "client": client.host,
                "method": request.method.decode("latin-1"),
                "path": request.target.partition(b"?")[0].decode("latin-1"),
                "status": status,
                "kind": kind.value if kind is not None else None,
                "node": told.address,
                "attempts": told.attempts,
                "held_ms": round(told.held_s * 1000),
                "duration_ms": round((time.monotonic() - began_s) * 1000, 1),
                "sent_bytes": client.sent,
                "failures": told.failures,
            }
        )


class ProxyThread:
    """A proxy in a thread of its own, from `start` to `close`."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        settings: ProxySettings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        log: Log | None = None,
        drain_s: float = 30.0,
    ) -> None:
        self._directory = directory
        self._settings = settings or ProxySettings()
        self._where = (host, port)
        self._log = log
        self._drain_s = drain_s
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._listening: Future[tuple[str, int]] = Future()
        self._thread = threading.Thread(target=self._run, name="strandline-proxy", daemon=True)
        self.address = ""

    def start(self) -> Self:
        """Listen; `InvalidInput` where that is not possible."""
        self._thread.start()
        try:
            host, port = self._listening.result()
        except OSError as error:
            where = "{}:{}".format(*self._where)
            raise InvalidInput(f"cannot listen at {where}: {error}", hint="--listen another address") from error
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return self

    def close(self) -> None:
        """Drain, and end."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        proxy = Proxy(self._directory, self._settings, self._log)
        try:
            self._listening.set_result(await proxy.start(*self._where))
        except OSError as error:
            self._listening.set_exception(error)
            return
        await self._stop.wait()
        await proxy.drain(self._drain_s)
        await end_tasks()


def _upgrade(headers: Headers) -> bytes:
    """Return the protocol that a request wants to change to: WebSocket, without a body.

    A change to HTTP/2 would be a way past the proxy for every later request.
    """
    listed = [item.lower() for item in list_header(headers, b"connection")]
    if b"upgrade" not in listed or body_size(headers) != 0:
        return b""
    wanted = get_header(headers, b"upgrade") or b""
    return wanted if wanted.lower() == b"websocket" else b""


async def _tunnel(
    client: Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, early: bytes, *, idle_s: float
) -> None:
    """Copy bytes both ways until both sides have ended, or one is gone; `AnswerCut` after a silence of `idle_s`."""
    loop = asyncio.get_running_loop()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, first: bytes) -> None:
        with contextlib.suppress(OSError):
            data = first or await source.read(CHUNK_BYTES)
            while data:
                limit.reschedule(loop.time() + idle_s)
                sink.write(data)
                await sink.drain()
                data = await source.read(CHUNK_BYTES)
            sink.write_eof()

    try:
        async with asyncio.timeout(idle_s) as limit:
            await asyncio.gather(
                copy(client.reader, writer, client.http.trailing_data[0]), copy(reader, client.writer, early)
            )
    except TimeoutError:
        writer.transport.abort()
        raise AnswerCut(f"no bytes went through the tunnel for {idle_s:g} s") from None
    finally:
        writer.close()
