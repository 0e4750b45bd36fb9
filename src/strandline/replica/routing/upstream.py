"""One exchange with a server: a request out, an answer back, both streamed.

Invariants: `AttemptFailed` says whether a byte of the request was handed to the system; a write has a connection of its
own, so that a server which closes an idle one never leaves its outcome open; connections that stood idle serve reads
alone. Memory stays within the buffers of two sockets.
"""

import asyncio
import contextlib
import functools
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakSet

from strandline.errors import InvalidInput
from strandline.extras import needs
from strandline.replica.nodes import parse_address
from strandline.replica.routing.body import RequestBody
from strandline.replica.routing.headers import end_to_end, get_header
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.rules import Failure

with needs("replica"):
    import h11

CHUNK_BYTES = 64 << 10
CONTINUE_S = 1.0
"""How long a server is waited for to ask for a large body; some never ask."""
IDLE_S = 3.0
"""How long a connection stays open without a request; servers keep theirs for five seconds and more."""
IDLE_MAX = 32
_SWITCHING_PROTOCOLS = 101


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()  # which reads all authorities


async def end_tasks() -> None:
    """End what is left in the loop, and let transports close, before the loop does."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for _ in range(3):  # a transport closes in the turn after its writer, and tells its protocol in the one after that
        await asyncio.sleep(0)


class RequestHead(NamedTuple):
    """A request without its body; `headers` are those of the forwarder, without framing."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    upgrade: bytes = b""
    """The protocol that the client wants to change to."""


class AttemptFailed(Exception):
    """An attempt to forward that has no answer."""

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure


class ClientFailed(Exception):
    """The client went away, or sent a body that was too slow or malformed: `status` is the answer, if one is due."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class AnswerCut(Exception):
    """The server went away within its answer."""


@dataclass
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection
    idle_since_s: float = 0.0
    is_reused: bool = False

    def is_usable(self) -> bool:
        return (
            time.monotonic() - self.idle_since_s < IDLE_S and not self.reader.at_eof() and not self.writer.is_closing()
        )


@dataclass
class Answer:
    """An answer whose head has arrived."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """Without those of the connection."""
    body: AsyncIterator[bytes]
    close: Callable[[], Coroutine[Any, Any, None]]
    """Lets go of it, read to its end or not."""
    tunnel: tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes] | None = None
    """The connection after a change of protocol, and what was already read from it."""


@dataclass
class Upstreams:
    """Connections to servers; used within one event loop."""

    limits: RoutingLimits
    _idle: dict[str, list[_Connection]] = field(default_factory=lambda: defaultdict(list))
    _writers: "WeakSet[asyncio.StreamWriter]" = field(default_factory=WeakSet)

    async def exchange(self, address: str, head: RequestHead, body: RequestBody, *, may_reuse: bool) -> Answer:
        """Send a request and return the head of the answer; `AttemptFailed` where none came."""
        connection = await self._connect(address, may_reuse=may_reuse)
        exchange = _Exchange(self, address, connection, head, body)
        try:
            return await exchange.run()
        except BaseException:
            await exchange.abort()
            raise

    async def close(self) -> None:
        """Close all connections; answers that are still read end there."""
        for writer in self._writers:
            writer.close()
        self._idle.clear()

    def keep(self, address: str, connection: _Connection) -> None:
        """Keep a connection for a later read, or close it."""
        idle = self._idle[address]
        for each in [each for each in idle if not each.is_usable()]:
            each.writer.close()
            idle.remove(each)
        if len(idle) >= IDLE_MAX:
            connection.writer.close()
            return
        connection.http.start_next_cycle()
        connection.idle_since_s, connection.is_reused = time.monotonic(), True
        idle.append(connection)

    async def _connect(self, address: str, *, may_reuse: bool) -> _Connection:
        idle = self._idle.get(address, []) if may_reuse else []
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            connection.writer.close()
        try:
            host, port, is_tls = parse_address(address)
            async with asyncio.timeout(self.limits.connect_s):
                reader, writer = await asyncio.open_connection(
                    host, port, limit=CHUNK_BYTES, ssl=_tls() if is_tls else None
                )
        except (OSError, TimeoutError, InvalidInput) as error:
            raise AttemptFailed(Failure.NOT_SENT, f"{address}: {str(error) or 'no connection in time'}") from error
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=self.limits.head_bytes)
        self._writers.add(writer)
        return _Connection(reader, writer, http)


class _Exchange:
    """One request and its answer over one connection."""

    def __init__(
        self, upstreams: Upstreams, address: str, connection: _Connection, head: RequestHead, body: RequestBody
    ) -> None:
        self._upstreams = upstreams
        self._limits = upstreams.limits
        self._address = address
        self._connection = connection
        self._http = connection.http
        self._head = head
        self._body = body
        self._sender: asyncio.Task[None] | None = None
        self._go_on = asyncio.Event()
        self._moved_s = time.monotonic()
        self._is_ended = False

    async def run(self) -> Answer:
        """Return the answer as soon as its head is here; the body of the request is sent meanwhile and afterwards."""
        try:
            self._write(h11.Request(method=self._head.method, target=self._head.target, headers=self._framed()))
        except h11.LocalProtocolError as error:
            raise InvalidInput(f"the request cannot be forwarded: {error}", hint="send a well-formed one") from error
        if self._body.size == 0:
            self._write(h11.EndOfMessage())
        else:
            self._sender = asyncio.create_task(self._send_body())
        while True:
            event = await self._next_event()
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == _SWITCHING_PROTOCOLS:
                    return await self._switched(event)
                self._go_on.set()
            elif isinstance(event, h11.Response):
                self._go_on.set()
                headers = end_to_end(list(event.headers))
                if get_header(list(event.headers), b"transfer-encoding") is not None:
                    headers = [each for each in headers if each[0] != b"content-length"]
                return Answer(event.status_code, headers, self._answer_body(), self._end)
            else:
                raise AttemptFailed(Failure.LOST, f"{self._address}: it closed the connection")

    async def abort(self) -> None:
        """End the exchange in the middle."""
        self._is_ended = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        self._connection.writer.transport.abort()

    def _framed(self) -> list[tuple[bytes, bytes]]:
        framed = list(self._head.headers)
        if get_header(framed, b"host") is None:
            framed.append((b"host", parse_address(self._address).authority.encode()))
        if self._body.size is None:
            framed.append((b"transfer-encoding", b"chunked"))
        elif self._body.size or self._head.method in (b"POST", b"PUT", b"PATCH"):
            framed.append((b"content-length", b"%d" % self._body.size))
        if self._head.upgrade:
            framed += [(b"connection", b"upgrade"), (b"upgrade", self._head.upgrade)]
        elif not self._body.is_small:
            framed.append((b"expect", b"100-continue"))
        return framed

    def _write(self, event: "h11.Event") -> None:
        if data := self._http.send(event):
            self._connection.writer.write(data)

    async def _send_body(self) -> None:
        """Send the body; what the client does wrong ends the exchange, what the server does is seen by the reader."""
        try:
            if not self._body.is_small and not self._head.upgrade:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CONTINUE_S):
                        await self._go_on.wait()
            async for chunk in self._body.chunks():
                self._write(h11.Data(data=chunk))
                async with asyncio.timeout(self._limits.answer_s):
                    await self._connection.writer.drain()
                self._moved_s = time.monotonic()
            self._write(h11.EndOfMessage())
            await self._connection.writer.drain()
        except (ConnectionError, TimeoutError, h11.LocalProtocolError):
            self._connection.writer.close()
        except Exception:  # of the client, above all; the reader raises it
            self._connection.writer.transport.abort()
            raise

    async def _next_event(self) -> "type[h11.NEED_DATA | h11.PAUSED] | h11.Event":
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._raise_sender_failure()
                raise AttemptFailed(Failure.LOST, f"{self._address}: {error}") from error
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self._read())

    async def _read(self) -> bytes:
        while True:
            try:
                async with asyncio.timeout(self._limits.answer_s):
                    data = await self._connection.reader.read(CHUNK_BYTES)
            except TimeoutError:
                if time.monotonic() - self._moved_s < self._limits.answer_s:
                    continue  # the body is still on its way
                raise AttemptFailed(Failure.TIMED_OUT, f"{self._address}: no answer in time") from None
            except (OSError, ssl.SSLError) as error:
                self._raise_sender_failure()
                raise AttemptFailed(Failure.LOST, f"{self._address}: {error}") from error
            self._moved_s = time.monotonic()
            return data

    def _raise_sender_failure(self) -> None:
        if self._sender is not None and self._sender.done() and not self._sender.cancelled():
            error = self._sender.exception()
            if error is not None:
                raise error

    async def _answer_body(self) -> AsyncIterator[bytes]:
        try:
            while True:
                try:
                    event = await self._next_event()
                except AttemptFailed as error:
                    raise AnswerCut(str(error)) from error
                if not isinstance(event, h11.Data):
                    return
                yield bytes(event.data)
        finally:
            await self._end()

    async def _end(self) -> None:
        """Keep the connection after a whole exchange; a server that answered early does not get the rest."""
        if self._is_ended:
            return
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._is_ended = True
            if self._sender is not None:
                await asyncio.gather(self._sender, return_exceptions=True)
            self._upstreams.keep(self._address, self._connection)
        else:
            await self.abort()

    async def _switched(self, event: "h11.InformationalResponse") -> Answer:
        """Return the connection itself; the request had no body."""
        self._is_ended = True  # the connection is the tunnel's from here on
        data, _ = self._http.trailing_data

        tunnel = (self._connection.reader, self._connection.writer, data)
        return Answer(event.status_code, end_to_end(list(event.headers)), self._answer_body(), self._end, tunnel)
