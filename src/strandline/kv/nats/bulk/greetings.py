"""The first words of a connection: the server's INFO, and TLS if either side wants it.

Invariants: nothing but a TLS handshake is sent before INFO was read; a connection that is to be encrypted and cannot be
is refused here, before anything secret is sent. A socket that fails is closed.
"""

import socket
import ssl

from strandline.kv.errors import TlsRefused
from strandline.kv.nats.bulk.deadlines import Deadline
from strandline.kv.nats.bulk.handshake import ServerInfo, parse_info
from strandline.kv.nats.settings import NatsSettings

LINE_BYTES_MAX = 1 << 16
_SOON_S = 0.001
_INFO = b"INFO "


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


def _info_line(raw: socket.socket, deadline: Deadline) -> bytes:
    """Return the first line without its word; a server says nothing more before it is answered."""
    line = b""
    while not line.endswith(b"\r\n"):
        raw.settimeout(max(deadline.left_s(), _SOON_S))
        piece = raw.recv(LINE_BYTES_MAX)
        line += piece
        if not piece or not line.startswith(_INFO[: len(line)]) or len(line) > LINE_BYTES_MAX:
            raise ConnectionRefusedError("what answers there is no NATS server")
    return line[len(_INFO) :]


def _over_tls(raw: socket.socket, context: ssl.SSLContext | None, name: str, deadline: Deadline) -> ssl.SSLSocket:
    raw.settimeout(max(deadline.left_s(), _SOON_S))
    return (context or ssl.create_default_context()).wrap_socket(raw, server_hostname=name)
