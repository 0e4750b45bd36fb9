"""Requests from an event loop over one connection, each answered, refused or lost within its time limit.

The connection is made in a thread (`NatsSocket.connect`), and served by the loop from then on: answers are handed to
the requests that wait for them, and writes of one turn of the loop leave together.

Invariants: a request that was not sent raises `ConnectionDropped`, and nothing was done. A request that was sent, and
has no answer when the connection or the time is gone, is `Unanswered`: what that means is the caller's to say. A lost
connection is made again, to any server that is known by then, until the client is closed or its credentials have
expired. A connection that must be encrypted sends nothing in plain text, after a reconnect neither. The protocol's
`-ERR` has no codes: here alone a text decides, and only the words that the protocol defines.
"""

import asyncio
import re
import ssl
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from strandline.errors import RecordTooLarge, StrandlineError
from strandline.nats.cancellation import CancelToken
from strandline.nats.errors import AccessRefused, ConnectionDropped, LoginRefused, TlsRefused, Unreachable
from strandline.nats.handshake import ServerInfo, tells_of_login
from strandline.nats.requests import NoListener, Unanswered
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NO_RESPONDERS, NatsSocket, new_inbox
from strandline.wire import PING, format_headers, format_pub, parse_headers

ANSWERS_WITHIN_S = 5.0
RECONNECT_EVERY_S = 0.25
PING_EVERY_S = 60.0
PINGS_LOST_MAX = 2
_PUBLISH = re.compile(r'permissions violation for publish to "([^"]*)"', re.IGNORECASE)
_SUBSCRIBE = re.compile(r'permissions violation for subscription to "([^"]*)"', re.IGNORECASE)


@dataclass(slots=True)
class _Request:
    """A request that was sent, and waits for its answer."""

    subject: str
    answer: "asyncio.Future[tuple[bytes, bytes]]"


class NatsClient:
    """A `RequestTransport` over sockets of our own; `connect` makes it."""

    def __init__(self, settings: NatsSettings) -> None:
        self._settings = settings
        self._socket: NatsSocket | None = None
        self._waiting: dict[bytes, _Request] = {}
        self._outgoing: deque[memoryview] = deque()
        self._inbox = ""
        self._requests = 0
        self._is_deaf = False
        self._has_expired = False
        self._is_closed = False
        self._cancel = CancelToken()
        self._reconnecting: asyncio.Task[None] | None = None
        self._pinging: asyncio.TimerHandle | None = None
        self._discovered: tuple[str, ...] = ()

    @classmethod
    async def connect(cls, settings: NatsSettings) -> "NatsClient":
        """Return a client that is connected; `LoginRefused`, `TlsRefused` or `Unreachable` within the time limit."""
        client = cls(settings)
        try:
            await client._connect()
        except Unreachable as refused:
            await client.close()
            if settings.wants_tls and _was_hung_up(refused):
                problem = "the server hung up; it may want a certificate"
                raise TlsRefused(settings.addresses, problem) from refused
            raise
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def settings(self) -> NatsSettings:
        """Return how it is connected."""
        return self._settings

    @property
    def server(self) -> ServerInfo | None:
        """Return what the server said of itself that it is connected to, None while it is connected to none."""
        return None if self._socket is None else self._socket.info

    @property
    def is_over(self) -> bool:
        """Tell whether it was closed, or its credentials have expired: it does not come back by itself."""
        return self._is_closed

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        limit_s: float | None = None,
    ) -> bytes:
        """Send and return the answer's payload; `ConnectionDropped`, `NoListener`, `Unanswered`, or a refusal."""
        socket = self._socket
        if socket is None:
            raise ConnectionDropped
        block = format_headers(headers.items()) if headers else b""
        if len(payload) + len(block) > socket.info.payload_bytes_max:
            raise RecordTooLarge(len(payload) + len(block), socket.info.payload_bytes_max, "message")
        if self._is_deaf:
            raise _deaf()
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}".encode()
        waiting = self._waiting[inbox] = _Request(subject, asyncio.get_running_loop().create_future())
        limit_s = limit_s or self._settings.timeout_s
        try:
            self._send(format_pub(subject.encode(errors="surrogateescape"), payload, inbox, block))
            async with asyncio.timeout(limit_s):
                told, answer = await waiting.answer
        except TimeoutError as late:
            raise Unanswered(limit_s) from late
        finally:
            del self._waiting[inbox]
        if told and parse_headers(told).status == NO_RESPONDERS:
            raise NoListener
        return answer

    async def answers(self) -> bool:
        """Tell whether the server answers now, if only with a refusal; never raises."""
        try:
            await self.request(
                f"{self._settings.api_prefix}.INFO", limit_s=min(self._settings.timeout_s, ANSWERS_WITHIN_S)
            )
        except (NoListener, AccessRefused):
            return True
        except (Unanswered, StrandlineError):
            return False
        return True

    async def close(self) -> None:
        """Disconnect; a second time does nothing."""
        self._is_closed = True
        self._disconnect()
        self._cancel.set()
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.wait([self._reconnecting])

    async def _connect(self) -> None:
        """Connect to one of the servers in a thread, and let the loop serve the connection."""
        socket, inbox = await self._dial_in_thread()
        self._inbox, self._is_deaf = inbox, False
        self._discovered = tuple(dict.fromkeys((*self._discovered, *socket.info.connect_urls)))
        self._socket = socket
        socket.divert(self._send)
        loop = asyncio.get_running_loop()
        loop.add_reader(socket.fileno(), self._read)
        self._hear_refusals(socket)
        self._ping(0, socket.pongs)

    async def _dial_in_thread(self) -> tuple[NatsSocket, str]:
        loop = asyncio.get_running_loop()
        dialed: asyncio.Future[tuple[NatsSocket, str]] = loop.create_future()

        def settle(result: tuple[NatsSocket, str] | BaseException) -> None:
            if isinstance(result, BaseException):
                if not dialed.done():
                    dialed.set_exception(result)
            elif dialed.done() or self._is_closed:
                result[0].close()
                dialed.cancel()
            else:
                dialed.set_result(result)

        def run() -> None:
            result: tuple[NatsSocket, str] | BaseException
            try:
                result = self._dial()
            except BaseException as error:  # noqa: BLE001 - a login may call a caller's function, which raises anything
                result = error
            try:
                loop.call_soon_threadsafe(settle, result)
            except RuntimeError:  # the loop is gone
                if not isinstance(result, BaseException):
                    result[0].close()

        threading.Thread(target=run, name="strandline-connect", daemon=True).start()
        return await dialed

    def _dial(self) -> tuple[NatsSocket, str]:
        socket = NatsSocket.connect(self._settings, cancel=self._cancel, also=self._discovered)
        try:
            inbox = new_inbox(self._settings.inbox_prefix)
            socket.subscribe(f"{inbox}.*")
            with suppress(AccessRefused):  # which requests tell
                socket.flush()
        except BaseException:
            socket.close()
            raise
        return socket, inbox

    def _read(self) -> None:
        socket = self._socket
        if socket is None:
            return
        try:
            while socket.fill(0.0):  # TLS may hold bytes back of which the loop knows nothing
                for frame in socket.take_messages():
                    waiting = self._waiting.get(bytes(frame.subject))
                    if waiting is not None and not waiting.answer.done():
                        waiting.answer.set_result((bytes(frame.headers), bytes(frame.payload)))
                self._hear_refusals(socket)
        except StrandlineError:
            with suppress(StrandlineError):
                self._hear_refusals(socket)
            self._lose()
            return
        self._discovered = tuple(dict.fromkeys((*self._discovered, *socket.info.connect_urls)))
        if self._outgoing:
            self._write()

    def _hear_refusals(self, socket: NatsSocket) -> None:
        """Fail the requests that the server refused in words."""
        refused = set()
        for text in socket.take_refusals():
            if found := _PUBLISH.search(text):
                refused.add(found[1])
            elif _SUBSCRIBE.search(text):
                self._is_deaf = True
                for waiting in self._waiting.values():
                    _fail(waiting, _deaf())
            elif tells_of_login(text):
                self._has_expired = True
        for waiting in self._waiting.values() if refused else ():
            if waiting.subject in refused:
                _fail(waiting, AccessRefused(f"the credentials do not allow to publish to {waiting.subject}"))

    def _send(self, data: bytes) -> None:
        """Queue frames; those of one turn of the loop are written together."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._write)
        self._outgoing.append(memoryview(data))

    def _write(self) -> None:
        socket, loop = self._socket, asyncio.get_running_loop()
        if socket is None or not self._outgoing:
            return
        data = memoryview(b"".join(self._outgoing)) if len(self._outgoing) > 1 else self._outgoing[0]
        self._outgoing.clear()
        try:
            data = data[socket.send_some(data) :]
        except StrandlineError:
            self._lose()
            return
        if data:
            self._outgoing.append(data)
            loop.add_writer(socket.fileno(), self._write)
        else:
            loop.remove_writer(socket.fileno())

    def _ping(self, lost: int, pongs: int) -> None:
        """Ask for a sign of life now and then; a server that gives none is lost."""
        socket = self._socket
        if socket is None:
            return
        if lost > PINGS_LOST_MAX:
            self._lose()
            return
        if lost:
            self._send(PING)
        missed = lost + 1 if socket.pongs == pongs else 1
        loop = asyncio.get_running_loop()
        self._pinging = loop.call_later(PING_EVERY_S, self._ping, missed, socket.pongs)

    def _lose(self) -> None:
        """Let go of a connection that is lost, and make another."""
        self._disconnect()
        if not self._is_closed:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        self._outgoing.clear()
        if self._pinging is not None:
            self._pinging.cancel()
        if socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(socket.fileno())
            loop.remove_writer(socket.fileno())
            socket.close()
        for waiting in self._waiting.values():
            _fail(waiting, Unanswered(None))

    async def _reconnect(self) -> None:
        while not self._is_closed:
            try:
                await self._connect()
            except LoginRefused:
                if self._has_expired:
                    self._is_closed = True
            except Exception:  # noqa: BLE001, S110 - whatever a login raises now, it may not raise the next time
                pass
            else:
                self._has_expired = False
                return
            await asyncio.sleep(RECONNECT_EVERY_S)


def _was_hung_up(refused: Unreachable) -> bool:
    """Tell whether the server ended the connection without a word, as some do that want a certificate."""
    last = refused.__cause__
    causes = (last, None if last is None else last.__cause__)
    return any(isinstance(cause, ConnectionResetError | ssl.SSLEOFError) for cause in causes)


def _fail(waiting: _Request, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)


def _deaf() -> AccessRefused:
    return AccessRefused("the credentials do not allow to hear answers", hint="allow to subscribe to _INBOX.>")
