"""A connection to a NATS server that blocks: large reads, frames as batches, and a limit on every wait.

Invariants: PINGs are answered whenever something is received. A server that says no to a login is told apart from one
that cannot be reached. The connection belongs to the process that made it: a child that inherited it is refused. No
error shows a secret. `close` may be called from any thread, and ends a wait of another with `Closed`.
"""

import contextlib
import errno
import ipaddress
import os
import secrets
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from strandline.errors import Closed, FormatError
from strandline.nats.cancellation import CancelToken
from strandline.nats.deadline import Deadline
from strandline.nats.errors import (
    AccessRefused,
    ConnectionDropped,
    LoginRefused,
    NoAnswer,
    ServerRefused,
    TlsRefused,
    Unreachable,
)
from strandline.nats.handshake import (
    LINE_BYTES_MAX,
    ServerInfo,
    format_login,
    greeted,
    parse_info,
    problem_of,
    tells_of_login,
    tls_problem_of,
)
from strandline.nats.receive_buffer import ReceiveBuffer
from strandline.nats.settings import DEFAULT_INBOX, DEFAULT_PORT, NatsSettings
from strandline.wire import (
    PING,
    PONG,
    FrameBatch,
    Headers,
    Op,
    WireLimits,
    format_pub,
    format_sub,
    format_unsub,
    parse_headers,
)

HEADER_ROOM = 1 << 16
"""A server adds headers to what it hands out, and writes messages in base64 in some answers: beyond what it takes."""

NO_RESPONDERS = 503
REFUSALS_MAX = 64
_PERMISSIONS = b"permissions violation for "


class Reply(NamedTuple):
    """The answer to a request."""

    headers: Headers
    payload: bytes


class NatsSocket:
    """One connection; one thread uses it."""

    def __init__(self, raw: socket.socket, settings: NatsSettings) -> None:
        self._socket = raw
        self.timeout_s = settings.timeout_s
        self._addresses = settings.addresses
        self._inbound = ReceiveBuffer(WireLimits(line_bytes_max=LINE_BYTES_MAX))
        self._pid = os.getpid()
        self._is_closed = False
        self._pongs = 0
        self._sids = 0
        self._inbox = ""
        self._inbox_prefix = settings.inbox_prefix
        self._requests = 0
        self._refusal: str | None = None
        self._refusals: deque[str] = deque(maxlen=REFUSALS_MAX)
        self._sender: Callable[[bytes], None] | None = None
        self._is_introduced = False
        self.info = ServerInfo()

    @staticmethod
    def connect(
        settings: NatsSettings,
        *,
        timeout_s: float | None = None,
        cancel: CancelToken | None = None,
        also: Sequence[str] = (),
    ) -> "NatsSocket":
        """Return a connection to the first server that takes us; `cancel` ends it, and ends the wait for it.

        If none does: `LoginRefused` if one does not take the credentials, `TlsRefused` if there is no trust, and
        `Unreachable` if none answers in time. `also` has addresses of more servers, as a server's INFO names those of
        its cluster; where they are numeric, certificates must be for the name of the first server of the settings.
        """
        deadline = Deadline(settings.timeout_s if timeout_s is None else timeout_s)
        last: Exception = TimeoutError("no time was left")
        refusal: LoginRefused | TlsRefused | None = None
        targets = _targets(settings, also)
        for left, target in zip(range(len(targets), 0, -1), targets, strict=True):
            # A server that says nothing leaves time for the others.
            share = Deadline(deadline.left_s() / left)
            try:
                return _connected(target, settings, share, cancel or CancelToken())
            except (LoginRefused, TlsRefused) as refused:
                refusal = refusal or refused
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as ended:  # the end of a connection tells nothing of TLS
                last = ended
            except ssl.SSLError as refused:
                refusal = refusal or TlsRefused(settings.addresses, tls_problem_of(refused))
            except (OSError, ConnectionDropped, NoAnswer, FormatError) as refused:
                last = refused
            except UnicodeError:  # what the lookup of a name raises that cannot be one
                last = ConnectionRefusedError("the name of the server is not that of a host")
        if refusal is not None:
            raise refusal from None
        raise Unreachable(settings.addresses, problem_of(last)) from last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a connection cannot be pickled; pickle its settings and connect there")

    def fileno(self) -> int:
        """Return the file number of the socket, to wait for several at once."""
        return self._socket.fileno()

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed here."""
        return self._is_closed

    def close(self) -> None:
        """Disconnect; a second time does nothing."""
        self._is_closed = True
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def introduce(self, info: ServerInfo, login: bytes, deadline: Deadline) -> None:
        """Log in, and return when the server has taken it; `LoginRefused` if it does not."""
        self.info = info
        largest = 2 * max(info.payload_bytes_max, 0) + HEADER_ROOM
        self._inbound.limits = WireLimits(largest, LINE_BYTES_MAX)
        self.send(login + PING)
        while not self._pongs:
            if not deadline.left_s():
                raise NoAnswer("the login", self.timeout_s)
            self._receive_once(deadline)
        self._is_introduced = True

    def divert(self, sender: Callable[[bytes], None]) -> None:
        """Hand all frames to a function from now on, which sends them with `send_some`, as an event loop must.

        From then on the refusals are taken, so that none of them is dropped.
        """
        self._sender = sender
        self._refusals = deque(self._refusals)

    def send_some(self, data: memoryview) -> int:
        """Send as much as can be sent without waiting, and return how many bytes that was."""
        self._check_open()
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except OSError as lost:
            raise self._dropped() from lost

    def send(self, data: bytes) -> None:
        """Send frames; `ConnectionDropped` if they cannot all be sent within the settings' limit."""
        self._check_open()
        if self._sender is not None:
            self._sender(data)
            return
        deadline = Deadline(self.timeout_s)
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, deadline.left_s())
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline.left_s())
            except OSError as lost:
                raise self._dropped() from lost
            if view and not deadline.left_s():
                raise self._dropped()

    def subscribe(self, subject: str) -> int:
        """Subscribe to a subject and return the subscription's number."""
        self._sids += 1
        self.send(format_sub(subject.encode(errors="surrogateescape"), self._sids))
        return self._sids

    def unsubscribe(self, sid: int) -> None:
        """End a subscription; what is on its way may still come."""
        self.send(format_unsub(sid))

    def receive(self, timeout_s: float, *, linger_s: float = 0.0) -> FrameBatch:
        """Return the messages that come within a time, perhaps none; everything else is seen to here.

        With `linger_s` it waits for so long after each piece, as long as there is room: larger batches cost less.
        """
        deadline = Deadline(timeout_s)
        while True:
            if self._inbound.is_promising:
                messages = self.take_messages()
                if len(messages):
                    return messages
            if not self.fill(deadline.left_s(), linger_s=linger_s):
                return FrameBatch.empty()

    def take_messages(self) -> FrameBatch:
        """Return the messages that have come, perhaps none; everything else is seen to here."""
        batch = self._inbound.take_frames()
        messages = batch.messages()
        if len(messages) < len(batch):
            self._see_to(batch.others())
        return messages

    @property
    def inbound(self) -> ReceiveBuffer:
        """Return what has come and was not taken yet."""
        return self._inbound

    def flush(self, timeout_s: float | None = None) -> list[FrameBatch]:
        """Return when the server has seen everything that was sent, with the messages that came meanwhile."""
        deadline = Deadline(self.timeout_s if timeout_s is None else timeout_s)
        before = self._pongs
        self.send(PING)
        came = []
        while self._pongs == before:
            if not deadline.left_s():
                raise NoAnswer("a PING", self.timeout_s)
            messages = self._receive_once(deadline)
            came += [messages] if len(messages) else []
        self.raise_refusal()
        return came

    def request(
        self, subject: str, payload: bytes = b"", headers: bytes = b"", *, timeout_s: float | None = None
    ) -> Reply:
        """Ask and return the first answer; `NoAnswer` if none comes in time, `ServerRefused` if no subscriber listens.

        Messages of other subjects that come meanwhile are dropped: what is subscribed to is read elsewhere.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = Deadline(timeout_s)
        inbox = self.ask(subject, payload, headers)
        while deadline.left_s():
            for frame in self._receive_once(deadline):
                if frame.subject == inbox:
                    return checked_reply(subject, bytes(frame.headers), bytes(frame.payload))
            self.raise_refusal()
        raise NoAnswer(f"a request to {subject}", timeout_s)

    def ask(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> bytes:
        """Send a request and return the subject that its answers come to."""
        if not self._inbox:
            self._inbox = new_inbox(self._inbox_prefix)
            self.subscribe(f"{self._inbox}.*")
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}".encode()
        self.send(format_pub(subject.encode(errors="surrogateescape"), payload, inbox, headers))
        return inbox

    def _receive_once(self, deadline: Deadline) -> FrameBatch:
        """As `receive`, but return after the first bytes, whatever they were."""
        if not self._inbound.is_promising and not self.fill(deadline.left_s()):
            return FrameBatch.empty()
        return self.take_messages()

    def fill(self, timeout_s: float, *, linger_s: float = 0.0) -> int:
        """Read what is there, after waiting for something; return how many bytes, 0 if none came in time."""
        self._check_open()
        view = self._inbound.room()
        size = 0
        while size < len(view):
            try:
                count = self._socket.recv_into(view[size:])
            except (BlockingIOError, ssl.SSLWantReadError):
                if size and not linger_s:
                    break
                if not self._wait(select.POLLIN, linger_s if size else timeout_s):
                    break
                continue
            except OSError as lost:
                if size:
                    break
                raise self._dropped() from lost
            if not count:
                if size:
                    break  # the end is told by the next call, after what came before it
                raise self._dropped()
            size += count
        self._inbound.add(size)
        return size

    def _wait(self, event: int, timeout_s: float) -> bool:
        poll = select.poll()
        try:
            poll.register(self._socket, event)
            return bool(poll.poll(timeout_s * 1000))
        except (OSError, ValueError) as lost:  # closed by another thread
            raise self._dropped() from lost

    def _see_to(self, batch: FrameBatch) -> None:
        for frame in batch:
            match frame.op:
                case Op.PING:
                    self.send(PONG)
                case Op.PONG:
                    self._pongs += 1
                case Op.INFO:
                    self.info = parse_info(bytes(frame.payload))
                case Op.ERR:
                    self._note_refusal(bytes(frame.payload))
                case _:
                    pass

    @property
    def pongs(self) -> int:
        """Return how many PONGs have come."""
        return self._pongs

    def take_refusals(self) -> list[str]:
        """Return the texts of the server's `-ERR` lines since the last call, the newest few of them."""
        taken = list(self._refusals)
        self._refusals.clear()
        return taken

    def _note_refusal(self, text: bytes) -> None:
        """Remember what the server will not do. The protocol has no codes for this, so here a text has to decide."""
        plain = text.strip(b"' ")
        words = plain.decode(errors="replace")
        if not self._is_introduced:
            raise LoginRefused(self._addresses) if tells_of_login(words) else ConnectionRefusedError(words)
        self._refusals.append(words)
        if plain.lower().startswith(_PERMISSIONS):
            self._refusal = self._refusal or plain[len(_PERMISSIONS) :].decode(errors="replace")

    def raise_refusal(self) -> None:
        """Raise `AccessRefused` if the server refused a subject since the connection was made."""
        if self._refusal is not None:
            raise AccessRefused(self._refusal)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the connection")
        if self._pid != os.getpid():
            raise Closed("a connection of another process")

    def _dropped(self) -> Closed | ConnectionDropped:
        return Closed("the connection") if self._is_closed else ConnectionDropped()


def _tls_alert(dropped: ConnectionDropped) -> ssl.SSLError | None:
    """Return the TLS alert that ended a login, such as that of a server which wants a certificate; else None."""
    cause = dropped.__cause__
    is_end = isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return cause if isinstance(cause, ssl.SSLError) and not is_end else None


def wait_for_any(connections: Sequence[NatsSocket], timeout_s: float) -> bool:
    """Wait until there is something to receive on one of several connections, or one of them is closed."""
    poll = select.poll()
    try:
        for connection in connections:
            poll.register(connection.fileno(), select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    except (OSError, ValueError):  # closed by another thread, which receiving tells
        return True


def new_inbox(prefix: str = DEFAULT_INBOX) -> str:
    """Return a subject that no other client uses."""
    return f"{prefix}.{secrets.token_hex(11)}"


def checked_reply(subject: str, headers: bytes, payload: bytes) -> Reply:
    """Return an answer; `ServerRefused` if it says that the subject has no subscriber."""
    told = parse_headers(headers)
    if told.status == NO_RESPONDERS:
        raise ServerRefused(NO_RESPONDERS, f"no responder listens at {subject}")
    return Reply(told, payload)


class _Target(NamedTuple):
    """Where a server listens, and the name that its certificate must be for."""

    host: str
    port: int
    name: str


def _targets(settings: NatsSettings, also: Sequence[str]) -> list[_Target]:
    """Return the servers of the settings, then the other ones."""
    targets: dict[tuple[str, int], _Target] = {}
    first = settings.tls_server_name
    for number, url in enumerate((*settings.urls, *(f"nats://{address}" for address in also))):
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or DEFAULT_PORT
        except ValueError:  # an address of the server's that cannot be read
            continue
        first = first or host
        is_numeric = number >= len(settings.urls) and _is_numeric(host)
        name = settings.tls_server_name or (first if is_numeric else host)
        targets.setdefault((host, port), _Target(host, port, name))
    return list(targets.values())


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _reached(target: _Target, deadline: Deadline, cancel: CancelToken) -> socket.socket:
    """Return a socket that is connected to one of the addresses of a host; the time is shared among them."""
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    last = OSError("the host has no address")
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        raw = socket.socket(family, kind, protocol)
        try:
            raw.setblocking(False)  # noqa: FBT003 - the name of the method says it
            _check(raw.connect_ex(address))
            with cancel.over(raw):  # which can only end an attempt that has begun
                _wait_until_connected(raw, deadline.left_s() / left)
        except BaseException as refused:
            raw.close()
            if not isinstance(refused, OSError):
                raise
            last = refused
        else:
            return raw
    raise last


def _wait_until_connected(raw: socket.socket, timeout_s: float) -> None:
    poll = select.poll()
    poll.register(raw, select.POLLOUT)
    if not poll.poll(timeout_s * 1000):
        raise TimeoutError("timed out")
    _check(raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def _check(code: int) -> None:
    if code not in (0, errno.EINPROGRESS):
        raise OSError(code, os.strerror(code))


def _connected(target: _Target, settings: NatsSettings, deadline: Deadline, cancel: CancelToken) -> NatsSocket:
    raw = _reached(target, deadline, cancel)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with cancel.over(raw):
            raw, info = greeted(raw, settings, target.name, deadline)
            login = format_login(info, settings.login(), name=settings.name, tls=isinstance(raw, ssl.SSLSocket))
            raw.settimeout(0.0)
            connection = NatsSocket(raw, settings)
            try:
                connection.introduce(info, login, deadline)
            except ConnectionDropped as dropped:
                raise _tls_alert(dropped) or dropped from dropped.__cause__
    except BaseException:
        raw.close()
        raise
    cancel.add(connection)
    return connection
