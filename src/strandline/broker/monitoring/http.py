"""The HTTP listener of the monitoring endpoints: the part of HTTP/1.1 that probes, scrapers and browsers use.

Invariants: a request's head is short and arrives in time, or the connection is closed; a body is not read, and a
request that has one is the last of its connection. A page that fails is a 500, and the server continues.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from strandline.broker.monitoring.connections import describe_end
from strandline.broker.monitoring.pages import TEXT, Page, answer
from strandline.broker.monitoring.query import parse_target
from strandline.broker.sockets.acceptor import ConnectionAcceptor

if TYPE_CHECKING:
    from strandline.broker.core.session import Session
    from strandline.broker.server import Server

logger = logging.getLogger("strandline.broker")
HEAD_BYTES_MAX = 16 << 10
HEAD_WITHIN_S = 10.0


@dataclass(slots=True)
class MonitorCounters:
    """Counters and closed connections, kept for the monitoring endpoints."""

    closed: deque[dict[str, Any]]
    requests: Counter[str] = field(default_factory=Counter)
    slow: int = 0
    stale: int = 0


class Monitor:
    """The monitoring listener of one server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.counters = MonitorCounters(deque(maxlen=max(0, server.settings.max_closed_clients)))
        self._acceptor = ConnectionAcceptor(lambda: server.descriptors.monitors)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @classmethod
    async def start(cls, server: "Server") -> "Monitor":
        """Listen at the address of the server's settings."""
        monitor = cls(server)
        host = server.settings.http_host or server.settings.host
        monitor.port = await monitor._acceptor.listen(host, server.settings.http_port or 0, monitor._connection)
        return monitor

    def _connection(self, address: object) -> "_Connection":
        del address
        return _Connection(self._serve, self._acceptor)

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        await self._acceptor.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def note_closed(self, session: "Session") -> None:
        """Keep a closed connection for `/connz`."""
        reason = session.closing or ""
        self.counters.slow += reason.startswith("Slow Consumer")
        self.counters.stale += reason == "Stale Connection"
        self.counters.closed.append(describe_end(session, self._server.clock.now_ns()))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                while await self._answer_one(reader, writer):
                    pass
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), HEAD_WITHIN_S)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()  # a client that does not read must not hold a connection

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another may follow."""
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_WITHIN_S)
        first, _, rest = head.decode("latin-1").partition("\r\n")
        words = first.split(" ")
        headers = dict(line.split(":", 1) for line in rest.lower().splitlines() if ":" in line)
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
            writer.write(_format(Page(b"400 Bad Request\n", 400, TEXT), last=True))
            return False
        last = (
            "close" in headers.get("connection", "")
            or words[2] == "HTTP/1.0"
            or "content-length" in headers
            or "transfer-encoding" in headers
        )
        page = self._page(words[1])
        writer.write(_format(page, last=last, body=words[0] != "HEAD"))
        await asyncio.wait_for(writer.drain(), HEAD_WITHIN_S)
        return not last

    def _page(self, target: str) -> Page:
        try:
            return answer(self._server, self.counters, parse_target(target))
        except Exception:
            logger.exception("cannot answer %s", target)
            return Page(b"500 Internal Server Error\n", 500, TEXT)


class _Connection(asyncio.StreamReaderProtocol):
    """One connection, counted by the acceptor until it is lost."""

    def __init__(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        acceptor: ConnectionAcceptor,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(asyncio.StreamReader(HEAD_BYTES_MAX, loop), serve, loop)
        self._acceptor = acceptor

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        super().connection_lost(exc)
        self._acceptor.release(self)


def _format(page: Page, *, last: bool, body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
        f"Access-Control-Allow-Origin: *\r\nContent-Type: {page.kind}\r\nDate: {formatdate(usegmt=True)}\r\n"
        f"Content-Length: {len(page.body)}\r\n{'Connection: close' + chr(13) + chr(10) if last else ''}\r\n"
    )
    return head.encode() + (page.body if body else b"")
