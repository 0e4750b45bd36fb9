"""One HTTP request, bounded as a whole: name resolution, connection, proxy, TLS, answer.

Invariants: a redirect is an answer, and is not followed; TLS is verified; an answer is read up to `BODY_BYTES_MAX`; no
error holds a byte of the request, whose address may hold a token, or of the answer. Proxies are those of the
environment (`HTTPS_PROXY`, `NO_PROXY`); the secret passes them inside TLS.
"""

import base64
import ipaddress
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from strandline.errors import Unavailable

TIMEOUT_S = 10.0
BODY_BYTES_MAX = 65_536
_HTTPS_PORT = 443


@dataclass(frozen=True)
class Request:
    """A request; its address and headers hold secrets."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """An answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class NotAnswered(Unavailable):
    """A host gave no answer: the message is the reason, in our words."""


class Client(Protocol):
    """Sends requests."""

    def send(self, request: Request) -> Answer:
        """Return the answer; `NotAnswered` if there is none in time."""
        ...


class HttpClient:
    """Sends requests, one after another."""

    def __init__(self, timeout_s: float = TIMEOUT_S, *, socket_s: float = 2 * TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._socket_s = socket_s  # ends a thread that was left to itself

    def send(self, request: Request) -> Answer:
        """Return the answer.

        The exchange runs in a thread of its own: some steps, as the resolution of names, have no timeout. What runs
        beyond the bound is cut off by closing its socket, and sends nothing if it is not yet connected.
        """
        exchange = _Exchange(self._connection(urlsplit(request.url)), request)
        threading.Thread(target=exchange.run, name="verify", daemon=True).start()
        try:
            result = exchange.done.get(timeout=self._timeout_s)
        except queue.Empty:
            exchange.cut_off()
            raise NotAnswered(f"no answer within {self._timeout_s:g} s") from None
        if isinstance(result, Answer):
            return result
        raise NotAnswered(_reason(result)) from None

    def _connection(self, parts: SplitResult) -> HTTPConnection:
        host = parts.hostname or ""
        if parts.scheme == "http":
            if not is_here(parts):
                raise AssertionError("an address without TLS is of this machine")
            return HTTPConnection(host, parts.port, timeout=self._socket_s)
        proxy = _proxy_of(parts)
        if proxy is None:
            return HTTPSConnection(host, parts.port, timeout=self._socket_s, context=self._context)
        connection = HTTPSConnection(
            proxy.hostname or "", proxy.port or 80, timeout=self._socket_s, context=self._context
        )
        connection.set_tunnel(host, parts.port or _HTTPS_PORT, _proxy_login(proxy))
        return connection

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def is_here(parts: SplitResult) -> bool:
    """Return whether an address is of this machine."""
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _proxy_of(parts: SplitResult) -> SplitResult | None:
    """Return the proxy for an https address, None if there is none."""
    proxies = getproxies()
    address = proxies.get("https") or proxies.get("all")
    if not address or is_here(parts) or proxy_bypass(parts.netloc):
        return None
    try:
        proxy = urlsplit(address if "://" in address else f"http://{address}")
        is_usable = proxy.scheme == "http" and proxy.hostname and (proxy.port is None or proxy.port)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise NotAnswered("the proxy of HTTPS_PROXY cannot be used: its address is not http://host:port")
    return proxy


def _proxy_login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


class _Exchange:
    """A request and its answer, in a thread of its own."""

    def __init__(self, connection: HTTPConnection, request: Request) -> None:
        self.done: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._connection = connection
        self._request = request
        self._is_cut_off = False

    def run(self) -> None:
        """Put the answer, or why there is none, into `done`."""
        connection, request = self._connection, self._request
        try:
            parts = urlsplit(request.url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.connect()
            if self._is_cut_off:
                return
            connection.request(request.method, target, headers=dict(request.headers))
            response = connection.getresponse()
            body = response.read(BODY_BYTES_MAX)
            headers = {name.lower(): value for name, value in response.getheaders()}
            self.done.put(Answer(response.status, headers, body))
        except Exception as error:  # noqa: BLE001 - told by `send`, in its thread
            self.done.put(error)
        finally:
            connection.close()

    def cut_off(self) -> None:
        """End it, from another thread."""
        self._is_cut_off = True
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                # That of the base class: an `SSLSocket` would drop its TLS first, and then send what comes in plain.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _reason(error: Exception) -> str:  # noqa: PLR0911 - one for each kind of failure
    """Return why there is no answer; the text of an error may hold what was sent, and is not taken."""
    match error:
        case ssl.SSLCertVerificationError():
            return "its certificate is not trusted"
        case ssl.SSLError():
            return "TLS failed"
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return "the name of the host is not known"
        case ConnectionRefusedError():
            return "nothing listens there"
        case HTTPException():
            return "its answer is not HTTP"
        case OSError() if str(error).startswith("Tunnel connection failed"):
            return "the proxy refuses the connection"
        case OSError():
            return "the connection broke"
        case _:
            return f"the request failed ({type(error).__name__})"
