"""The first lines of a connection: the server's INFO, TLS if either side wants it, and our CONNECT.

Invariants: nothing but a TLS handshake is sent before INFO was read. A connection that must be encrypted and cannot be
is refused before a secret is sent. The CONNECT line is the only place where a secret is written, and no error quotes
it. A socket that fails is closed.
"""

import json
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from strandline.errors import FormatError
from strandline.nats.deadline import Deadline
from strandline.nats.errors import TlsRefused
from strandline.nats.logins import Login
from strandline.nats.settings import NatsSettings
from strandline.wire import format_connect

LINE_BYTES_MAX = 1 << 16
_SOON_S = 0.001
_INFO = b"INFO "
_ERR = b"-ERR "
_LOGIN = re.compile(r"authorization violation|authentication (timeout|expired)|user authentication \w+", re.IGNORECASE)
PAYLOAD_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The INFO that a server sends to a new connection."""

    server_id: str = ""
    version: str = ""
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    nonce: str = ""
    tls_required: bool = False
    tls_available: bool = False
    auth_required: bool = False
    headers: bool = False
    jetstream: bool = False
    connect_urls: tuple[str, ...] = ()
    """The addresses of the other servers of its cluster."""
    is_leaving: bool = False
    """Whether it asks its clients to go elsewhere, because it is about to stop."""


def parse_info(payload: bytes) -> ServerInfo:
    """Return what an INFO line tells; `FormatError` if it is not the JSON of an object."""
    try:
        told: dict[str, Any] = json.loads(payload)
        return ServerInfo(
            server_id=str(told.get("server_id", "")),
            version=str(told.get("version", "")),
            payload_bytes_max=int(told.get("max_payload", PAYLOAD_BYTES_MAX)),
            nonce=str(told.get("nonce", "")),
            tls_required=bool(told.get("tls_required", False)),
            tls_available=bool(told.get("tls_available", False)),
            auth_required=bool(told.get("auth_required", False)),
            headers=bool(told.get("headers", False)),
            jetstream=bool(told.get("jetstream", False)),
            connect_urls=tuple(map(str, told.get("connect_urls") or ())),
            is_leaving=bool(told.get("ldm", False)),
        )
    except (ValueError, TypeError, AttributeError):
        raise FormatError("NATS protocol", "the server's INFO is not the JSON of an object") from None


def format_login(info: ServerInfo, login: Login, *, name: str, tls: bool) -> bytes:
    """Return the CONNECT line of a login; a server that gives nothing to sign wants no signature."""
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "strandline",
        "name": name,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
        "tls_required": tls,
    }
    if login.signs:
        options |= {"sig": login.signature(info.nonce)} if info.nonce else {}
        options |= {"jwt": login.jwt} if login.jwt else {"nkey": login.public_key}
    elif login.token:
        options["auth_token"] = login.token
    elif login.user or login.password:
        options |= {"user": login.user, "pass": login.password}
    return format_connect(options)


def greeted(
    raw: socket.socket, settings: NatsSettings, name: str, deadline: Deadline
) -> tuple[socket.socket, ServerInfo]:
    """Hear what the server says first, and go over to TLS if either side wants it; `name` is the server's."""
    try:
        context = settings.ssl_context()
        if settings.tls_first:
            raw = _over_tls(raw, context, name, deadline)
        info = parse_info(_info_line(raw, deadline))
        if (context is not None or info.tls_required) and not settings.tls_first:
            _check_offer(info, settings)
            raw = _over_tls(raw, context, name, deadline)
    except BaseException:
        raw.close()
        raise
    return raw, info


def _check_offer(info: ServerInfo, settings: NatsSettings) -> None:
    if not (info.tls_required or info.tls_available):
        raise TlsRefused(settings.addresses, "the server does not speak it")


def problem_of(refused: Exception) -> str:
    """Return why a server could not be connected to."""
    if isinstance(refused, OSError):
        return refused.strerror or str(refused) or type(refused).__name__
    return str(refused)


def tls_problem_of(refused: ssl.SSLError) -> str:
    """Return why there is no TLS."""
    if isinstance(refused, ssl.SSLCertVerificationError):
        return refused.verify_message
    return refused.reason or "the handshake failed"


def tells_of_login(text: str) -> bool:
    """Tell whether the words of an `-ERR` are about credentials; it has no codes, so a text has to decide."""
    return bool(_LOGIN.search(text))


def _info_line(raw: socket.socket, deadline: Deadline) -> bytes:
    """Return the first line without its word; after it, a server says nothing but why it hangs up."""
    line = b""
    while not line.endswith(b"\r\n"):
        raw.settimeout(max(deadline.left_s(), _SOON_S))
        piece = raw.recv(LINE_BYTES_MAX)
        line += piece
        if not piece or not line.startswith(_INFO[: len(line)]) or len(line) > LINE_BYTES_MAX:
            raise ConnectionRefusedError("what answers there is no NATS server")
    line, _, more = line.partition(b"\r\n")
    if more.startswith(_ERR):
        raise ConnectionRefusedError(more[len(_ERR) :].strip(b"' \r\n").decode(errors="replace"))
    if more:
        raise ConnectionRefusedError("the server sent more than its INFO")
    return line[len(_INFO) :]


def _over_tls(raw: socket.socket, context: ssl.SSLContext | None, name: str, deadline: Deadline) -> ssl.SSLSocket:
    raw.settimeout(max(deadline.left_s(), _SOON_S))
    return (context or ssl.create_default_context()).wrap_socket(raw, server_hostname=name)
