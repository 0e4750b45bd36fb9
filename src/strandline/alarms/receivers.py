"""Receivers of notices: a webhook, and a command to run.

Invariants: a receiver has taken a notice when it answered 2xx, or ended with 0, in time; anything else is `NotTaken`.
The time limit of a webhook is for the whole request, from the look-up of its name to the head of the answer. A redirect
is not followed: the body was signed for one address. Names of receivers and errors hold no path of an address, because
receivers put tokens there.
"""

import json
import os
import shlex
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from strandline.alarms.alarm import Notice, format_notice, shortened
from strandline.alarms.signing import SIGNATURE, sign
from strandline.errors import InvalidInput, Unavailable
from strandline.version import __version__

TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0


class NotTaken(Unavailable):
    """A receiver has not taken a notice; it is sent again."""


class Receiver(Protocol):
    """Takes notices."""

    @property
    def name(self) -> str:
        """The name under which the outbox keeps what it has not taken; the same in every process."""
        ...

    def send(self, notice: Notice) -> None:
        """Hand a notice over; `NotTaken` where it was not taken."""
        ...


def payload(notice: Notice) -> bytes:
    """Return the body of a notice."""
    return json.dumps(format_notice(notice)).encode()


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow none."""


class Webhook:
    """An address that signed notices are posted to; proxies are taken from the environment."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidInput("the address of a webhook cannot be read: its host or port is wrong") from None
        if any(char.isspace() or not char.isprintable() or not char.isascii() for char in url):
            hint = "write such characters as %20 and the like"
            raise InvalidInput("a webhook's address holds a space or another character that none may hold", hint=hint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"a webhook needs an http or https address, not {parts.scheme or 'none'}")
        if parts.username or parts.password:
            raise InvalidInput("a webhook's address holds no user", hint="the signature tells who sent a notice")
        if not secret:
            hint = 'in strandline.toml: webhook-secret = { env = "NAME" }'
            raise InvalidInput("a webhook needs a secret to sign with", hint=hint)
        self._url, self._secret, self._timeout_s, self._now_s = url, secret, timeout_s, now_s
        self._host = parts.hostname if port is None else f"{parts.hostname}:{port}"
        self._is_tls, self._ca_file = parts.scheme == "https", ca_file
        self._context: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        """The host, and digits that tell addresses of one host apart."""
        return f"webhook {self._host} {sha256(self._url.encode()).hexdigest()[:8]}"

    def send(self, notice: Notice) -> None:
        """Post a notice."""
        body = payload(notice)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"strandline/{__version__}",
            "Strandline-Notice": notice.id,
            SIGNATURE: sign(self._secret, body, int(self._now_s())),
        }
        request = Request(self._url, body, headers, method="POST")  # noqa: S310 - checked to be http or https
        sending = _Sending(self._tls_context())
        thread = threading.Thread(target=sending.run, args=(request, self._timeout_s), daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if thread.is_alive():  # a socket's own limit is for each of its operations
            sending.cut_off()
            raise NotTaken(f"{self._host}: no answer within {self._timeout_s:g} s")
        self._check(sending.error)

    def _check(self, failure: Exception | None) -> None:
        try:
            if failure is not None:
                raise failure
        except HTTPError as error:
            code = error.code
            error.close()
            raise NotTaken(f"{self._host} {_answer(code)}", hint=_hint(code)) from None
        except HTTPException as error:  # its text may hold the path
            raise NotTaken(f"{self._host}: its answer is not HTTP ({type(error).__name__})") from None
        except (OSError, ValueError) as error:
            raise NotTaken(f"{self._host}: {_reason(error, self._timeout_s)}") from None

    def _tls_context(self) -> ssl.SSLContext | None:
        if self._is_tls and self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
            except (OSError, ssl.SSLError) as error:
                raise NotTaken(f"cannot read the authority {self._ca_file}: {error}") from error
        return self._context


class _Sending:
    """One request, in a thread of its own, whose connection can be cut off."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.error: Exception | None = None
        self._connections: list[HTTPConnection] = []
        connections = self._connections

        class Plain(HTTPHandler):
            def http_open(self, req: Request) -> Any:  # noqa: ANN401 - urllib's own
                return self.do_open(_kept(HTTPConnection, connections), req)

        class Tls(HTTPSHandler):
            def https_open(self, req: Request) -> Any:  # noqa: ANN401 - urllib's own
                return self.do_open(_kept(HTTPSConnection, connections), req, context=context)

        self._opener = build_opener(_NoRedirects(), Plain(), Tls(context=context))

    def run(self, request: Request, timeout_s: float) -> None:
        """Send it, and keep what went wrong."""
        try:
            with self._opener.open(request, timeout=timeout_s):
                return
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits
            self.error = error

    def cut_off(self) -> None:
        """End the connection, so that the thread ends too."""
        for connection in self._connections:
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)


def _kept(kind: type[HTTPConnection], connections: list[HTTPConnection]) -> Any:  # noqa: ANN401 - urllib's own
    def connect(host: str, **options: Any) -> HTTPConnection:  # noqa: ANN401 - urllib's own
        connections.append(kind(host, **options))
        return connections[-1]

    return connect


def _answer(code: int) -> str:
    if 300 <= code < 400:  # noqa: PLR2004 - redirects
        return f"answers with a redirect ({code}), which is not followed"
    return f"answers {code}"


def _hint(code: int) -> str | None:
    if 300 <= code < 400:  # noqa: PLR2004 - redirects
        return "give the address that it leads to"
    return {401: "check the secret", 403: "check the secret", 404: "check the address", 410: "remove it"}.get(code)


def _reason(error: Exception, timeout_s: float) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(cause, TimeoutError | socket.timeout):
        return f"no answer within {timeout_s:g} s"
    if isinstance(cause, socket.gaierror):
        return "the name of the host is not known"
    if isinstance(cause, ConnectionRefusedError):
        return "nothing listens there"
    return shortened(str(cause) or type(cause).__name__)


class CommandReceiver:
    """A command that is run for each notice, which it reads as JSON from standard input."""

    def __init__(self, command: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InvalidInput(f"the command of alarms cannot be read: {error}") from error
        if not self._words:
            raise InvalidInput("the command of alarms is empty")
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """The program."""
        return f"command {Path(self._words[0]).name} {sha256(' '.join(self._words).encode()).hexdigest()[:8]}"

    def send(self, notice: Notice) -> None:
        """Run the command."""
        environ = {
            **os.environ,
            "STRANDLINE_ALARM_ID": notice.id,
            "STRANDLINE_ALARM_STATE": notice.state,
            "STRANDLINE_ALARM_KIND": notice.kind,
        }
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own
                self._words,
                input=payload(notice),
                env=environ,
                timeout=self._timeout_s,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except subprocess.TimeoutExpired:
            raise NotTaken(f"{self._words[0]} did not end within {self._timeout_s:g} s") from None
        except OSError as error:
            raise NotTaken(f"{self._words[0]} cannot be started: {error.strerror}") from error
        if ended.returncode:
            said = shortened(ended.stderr.decode(errors="replace").strip()[-200:])
            raise NotTaken(f"{self._words[0]} ended with {ended.returncode}{': ' + said if said else ''}")
