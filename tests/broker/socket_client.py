"""A client on a bare blocking socket, for tests that send what no library would, or that must be fast and exact.

Invariants: nothing is sent but what was asked for, and PONG; what comes in waits in order; once the server has ended
the connection every wait raises `Ended`, and `errors` has what the server said.
"""

import json
import socket
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self

from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
RECEIVE_BYTES = 1 << 18
OPTIONS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1, "lang": "socket"}


class Ended(Exception):
    """The server has ended the connection."""


class Message(NamedTuple):
    """A message as it came."""

    subject: str
    sid: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def status(self) -> str:
        """The status and its description, empty if there is none."""
        return self.headers.partition(b"\r\n")[0].decode().removeprefix("NATS/1.0").strip()

    def json(self) -> dict[str, object]:
        """Return what the payload says."""
        answer: dict[str, object] = json.loads(self.payload)
        return answer


class Wire(Protocol):
    """What a client needs of a socket."""

    def sendall(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class SocketClient:
    """One connection. `options` are added to CONNECT; with `greet=False` nothing is sent at all."""

    def __init__(
        self,
        to: int | Wire,
        options: Mapping[str, object] | None = None,
        *,
        greet: bool = True,
        buffer: int | None = None,
    ) -> None:
        self.socket: Wire = connected(to, buffer) if isinstance(to, int) else to
        self.inbox = f"_INBOX.{uuid.uuid4().hex}"
        self.messages: deque[Message] = deque()
        self.errors: list[str] = []
        self.pongs = 0
        self.is_ended = False
        self._buffer = bytearray()
        self._asked = 0
        self._answers: dict[str, Message] = {}
        if greet:
            self._greet(options or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection from this side."""
        self.socket.close()

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            self._read_the_rest()
            raise Ended(self.errors) from error

    def publish(self, subject: str, payload: bytes = b"", *, reply: str = "", headers: bytes = b"") -> None:
        """Send a message."""
        self.send(pub_frame(subject, payload, reply=reply, headers=headers))

    def subscribe(self, subject: str, sid: str, queue: str = "") -> None:
        """Listen on a subject."""
        self.send(f"SUB {subject} {queue} {sid}\r\n".encode())

    def request(
        self, subject: str, payload: bytes | object = b"", *, headers: bytes = b"", within_s: float = WAIT_S
    ) -> Message:
        """Send a request and return its answer; what else comes in waits."""
        if self._asked == 0:
            self.subscribe(f"{self.inbox}.asked.*", "asked")
        self._asked += 1
        reply = f"{self.inbox}.asked.{self._asked}"
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.publish(subject, data, reply=reply, headers=headers)
        give_up = time.monotonic() + within_s
        while reply not in self._answers:
            self._receive(give_up)
        return self._answers.pop(reply)

    def api(self, subject: str, body: object = None) -> dict[str, object]:
        """Ask the API something that must not be refused."""
        answer = self.request(f"$JS.API.{subject}", b"" if body is None else body).json()
        assert "error" not in answer, answer
        return answer

    def next(self, within_s: float = WAIT_S) -> Message:
        """Return the next message."""
        give_up = time.monotonic() + within_s
        while not self.messages:
            self._receive(give_up)
        return self.messages.popleft()

    def flush(self, within_s: float = WAIT_S) -> None:
        """Return when the server has read everything that was sent; raise if it refused something."""
        wanted = self.pongs + 1
        self.send(b"PING\r\n")
        give_up = time.monotonic() + within_s
        while self.pongs < wanted:
            self._receive(give_up)

    def wait_for_end(self, within_s: float = WAIT_S) -> list[str]:
        """Return what the server complained about before it ended the connection."""
        give_up = time.monotonic() + within_s
        try:
            while True:
                self._receive(give_up)
        except Ended:
            return self.errors

    def wait_for_error(self, within_s: float = WAIT_S) -> str:
        """Return the server's next complaint."""
        give_up = time.monotonic() + within_s
        while not self.errors:
            self._receive(give_up)
        return self.errors.pop(0)

    def _greet(self, options: Mapping[str, object]) -> None:
        try:
            self.send(b"CONNECT %s\r\n" % json.dumps({**OPTIONS, **options}).encode())
            self.flush()
        except BaseException:
            self.close()
            raise

    def _receive(self, give_up: float) -> None:
        left = give_up - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"nothing came; errors so far: {self.errors}")
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            data = b""
        finally:
            self.socket.settimeout(WAIT_S)
        if not data:
            self.is_ended = True
            raise Ended(self.errors)
        self._buffer += data
        self._take_frames()

    def _read_the_rest(self) -> None:
        try:
            while True:
                self._receive(time.monotonic() + 1)
        except (Ended, OSError):
            self.is_ended = True

    def _take_frames(self) -> None:
        at = 0
        while (end := self._buffer.find(b"\r\n", at)) >= 0:
            line = bytes(self._buffer[at:end])
            if line.startswith((b"MSG ", b"HMSG ")):
                size = int(line.rpartition(b" ")[2])
                if len(self._buffer) < end + size + 4:
                    break
                self._take_message(line.decode("latin-1").split(" "), bytes(self._buffer[end + 2 : end + 2 + size]))
                at = end + size + 4
            else:
                self._take_line(line)
                at = end + 2
        del self._buffer[:at]

    def _take_line(self, line: bytes) -> None:
        if line == b"PING":
            self.send(b"PONG\r\n")
        elif line == b"PONG":
            self.pongs += 1
        elif line.startswith(b"-ERR "):
            self.errors.append(line[5:].decode("latin-1").strip("'"))

    def _take_message(self, fields: list[str], body: bytes) -> None:
        kind, subject, sid, *rest = fields
        sizes = 2 if kind == "HMSG" else 1
        head = int(rest[-2]) if kind == "HMSG" else 0
        message = Message(subject, sid, rest[0] if len(rest) > sizes else "", body[:head], body[head:])
        if sid == "asked":
            self._answers[subject] = message
        else:
            self.messages.append(message)


def connected(port: int, buffer: int | None) -> socket.socket:
    """Return a connected socket, with a receive buffer of so many bytes if that is given."""
    connection = socket.socket()
    try:
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(WAIT_S)
        connection.connect(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        connection.close()
        raise
    return connection


def pub_frame(subject: str, payload: bytes = b"", *, reply: str = "", headers: bytes = b"") -> bytes:
    """Return the frame that publishes a message."""
    where = f"{subject} {reply}" if reply else subject
    if headers:
        sizes = f"{len(headers)} {len(headers) + len(payload)}"
        return f"HPUB {where} {sizes}\r\n".encode() + headers + payload + b"\r\n"
    return f"PUB {where} {len(payload)}\r\n".encode() + payload + b"\r\n"


def header_block(**pairs: object) -> bytes:
    """Return a header block; names begin with Nats- and underscores in them become dashes."""
    lines = "".join(f"Nats-{name.replace('_', '-')}: {value}\r\n" for name, value in pairs.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()
