"""A server without sockets: sessions that are fed bytes, and a real one to compare with."""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from strandline.broker.core import Accounts, Router, Session, make_server_info
from strandline.broker.core.auth import Background
from strandline.broker.routes import Inbound
from strandline.broker.settings import ServerSettings
from strandline.clock import ManualClock
from tests.waiting import PATIENCE_S

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
CLOSED = b"<closed>"


class InMemoryServer:
    """One server; nothing in it happens by itself."""

    def __init__(self, settings: ServerSettings | None = None, background: Background | None = None) -> None:
        self.settings = settings or ServerSettings()
        self.clock = ManualClock()
        self.soon: deque[Callable[[], None]] = deque()
        self.accounts = Accounts(self.settings, self.soon.append, background)
        self.server_info = make_server_info(self.settings, auth_required=self.accounts.needs_credentials)
        self.woken: list[int] = []
        self._last = 0

    @property
    def router(self) -> Router:
        """Return the router of the global account."""
        return self.accounts.by_name["$G"].router

    def run_soon(self) -> int:
        """Call whoever is to be called soon; return how many were."""
        count = 0
        while self.soon:
            self.soon.popleft()()
            count += 1
        return count

    def client(self, first: bytes = CONNECT, **options: Any) -> "Client":  # noqa: ANN401 - those of a session
        """Return a client that has said something."""
        self._last += 1
        number = self._last
        session = Session(
            number,
            self.server_info,
            self.accounts,
            self.clock,
            lambda: self.woken.append(number),
            **{"host": "127.0.0.1", **options},
        )
        client = Client(session)
        client.say(first)
        return client


class Client:
    """A session and what it has left to be written."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def say(self, *pieces: bytes) -> bytes:
        """Feed pieces and return what comes out, with a mark if the connection is over."""
        for piece in pieces:
            self.session.feed(piece)
        return self.heard()

    def heard(self) -> bytes:
        """Return what came out since."""
        data = b"".join(self.session.take_output())
        self.session.note_buffered(0)
        return data + (CLOSED if self.session.closing is not None else b"")


class Basket:
    """A sink that keeps what it was given."""

    def __init__(self, *, is_ordered: bool = False) -> None:
        self.is_ordered = is_ordered
        self.taken: list[Inbound] = []

    def take(self, messages: Inbound) -> None:
        """Keep messages."""
        self.taken.append(messages)

    @property
    def payloads(self) -> list[bytes]:
        """Return the payloads of all messages."""
        return [payload for messages in self.taken for payload in messages.frames.payloads()]


class RealClient:
    """A raw connection to a real server; what comes back ends with the answer to a PING of our own."""

    MARK = b"PING\r\n"

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.greeting = self._until(b"\r\n")

    def say(self, *pieces: bytes) -> bytes:
        """Send pieces, and return what came back before the PONG to one more PING, or before the end."""
        with suppress(OSError):  # what it said before it closed is still to be read
            self._socket.sendall(b"".join(pieces) + self.MARK)
        wanted = sum(piece.upper().count(b"PING") for piece in pieces) + 1
        data = b""
        while data.count(b"PONG\r\n") < wanted and not data.endswith(CLOSED):
            data += self._some()
        return data.removesuffix(b"PONG\r\n")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            data += self._some()
        return data

    def _some(self) -> bytes:
        try:
            return self._socket.recv(1 << 16) or CLOSED
        except ConnectionResetError:
            return CLOSED
