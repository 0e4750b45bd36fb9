"""Requests over a nats-py client, each answered, refused, or lost within its time limit, and told apart honestly.

Invariants: a request that was not handed to the client raises `ConnectionDropped`, and nothing was done. One that was,
and has no answer when the connection or the time is gone, is `Unanswered`: what that means is the caller's to say. A
connection that must be encrypted sends nothing in plain text, not even after a reconnect. The protocol's `-ERR` has no
codes, its words are the code: here alone a text decides, and only the words that the protocol defines.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from strandline.errors import RecordTooLarge, StrandlineError
from strandline.nats.errors import AccessRefused, ConnectionDropped, LoginRefused, TlsRefused, Unreachable
from strandline.nats.requests import NoListener, Unanswered
from strandline.nats.settings import NatsSettings

TICK_S = 0.05
ANSWERS_WITHIN_S = 5.0
CLOSES_WITHIN_S = 5.0
RECONNECT_EVERY_S = 0.25
_LOGIN = re.compile(
    r"'?(authorization violation|authentication (timeout|expired)|user authentication \w+)", re.IGNORECASE
)
_PUBLISH = re.compile(r'permissions violation for publish to "([^"]*)"', re.IGNORECASE)
_SUBSCRIBE = re.compile(r'permissions violation for subscription to "([^"]*)"', re.IGNORECASE)


class Refusals:
    """What the server said in `-ERR`, and when."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.is_dialing = False
        self._subjects: dict[str, float] = {}
        self._is_deaf = False

    async def hear(self, error: Exception) -> None:
        """Hear of an error; nats-py calls this back."""
        self.errors = [*self.errors[-8:], error]
        words = str(error)
        if self.is_dialing and (isinstance(error, ssl.SSLError | _Plain) or _LOGIN.search(words)):
            raise _Decided  # nats-py would try again, and hang where TLS has failed
        if refused := _PUBLISH.search(words):
            self._subjects[refused[1].lower()] = time.monotonic()
        elif _SUBSCRIBE.search(words):
            self._is_deaf = True

    async def forget(self) -> None:
        """Begin anew, with another connection; nats-py calls this back."""
        self._is_deaf = False

    def check(self, subject: str, since: float) -> None:
        """Raise `AccessRefused` if a subject was refused since a moment, or if answers are not heard."""
        if self._subjects.get(subject.lower(), -1.0) >= since:
            raise AccessRefused(f"the credentials do not allow to send to {subject}")
        if self._is_deaf:
            raise AccessRefused("the credentials do not allow to hear answers", hint="allow to subscribe to _INBOX.>")


class Link:
    """A connected client with a time limit on everything; `owned` is whether it is closed with the link."""

    def __init__(self, client: Client, settings: NatsSettings, refusals: Refusals, *, owned: bool) -> None:
        self.client = client
        self._settings = settings
        self._refusals = refusals
        self._owned = owned

    @property
    def settings(self) -> NatsSettings:
        """Return how it is connected."""
        return self._settings

    @property
    def is_over(self) -> bool:
        """Tell whether its client was closed, and will not come back by itself."""
        return self.client.is_closed

    @property
    def is_connected(self) -> bool:
        """Tell whether the client is connected now, and encrypted if it must be."""
        return self.client.is_connected and not (self.settings.wants_tls and is_plain(self.client))

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        limit_s: float | None = None,
    ) -> bytes:
        """Send and return the answer's payload; `ConnectionDropped`, `NoListener`, `Unanswered`, or a refusal."""
        size = len(payload) + _header_bytes(headers)
        if size > self.client.max_payload:
            raise RecordTooLarge(size, self.client.max_payload, "message")
        return await self._exchange(subject, payload, headers, limit_s or self.settings.timeout_s)

    async def _exchange(self, subject: str, payload: bytes, headers: Mapping[str, str] | None, limit_s: float) -> bytes:
        if not self.is_connected:
            raise ConnectionDropped
        since = time.monotonic()
        reconnects = self.client.stats["reconnects"]
        given = dict(headers) if headers else None
        task = asyncio.ensure_future(self.client.request(subject, payload, timeout=limit_s + 1, headers=given))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=min(TICK_S, max(0.0, since + limit_s - time.monotonic())))
                if not task.done():
                    self._check(subject, since, reconnects, limit_s)
            return bytes(_result(task).data)
        finally:
            task.cancel()

    def _check(self, subject: str, since: float, reconnects: int, limit_s: float) -> None:
        """Raise what makes waiting on useless."""
        self._refusals.check(subject, since)
        if not self.client.is_connected or self.client.stats["reconnects"] != reconnects:
            raise Unanswered(None)
        if time.monotonic() >= since + limit_s:
            raise Unanswered(limit_s)

    async def answers(self) -> bool:
        """Tell whether the server answers now, be it that nobody is there or that it is not allowed; never raises."""
        # A ping of nats-py that is given up breaks its reader when the answer comes after all.
        limit_s = min(self.settings.timeout_s, ANSWERS_WITHIN_S)
        try:
            await self._exchange(f"{self.settings.api_prefix}.INFO", b"", None, limit_s)
        except (NoListener, AccessRefused):
            return True
        except (Unanswered, StrandlineError):
            return False
        return True

    async def close(self) -> None:
        """Close the client if it is ours."""
        if self._owned:
            with suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(CLOSES_WITHIN_S):
                    await self.client.close()


def _result(task: "asyncio.Future[Msg]") -> Msg:
    try:
        return task.result()
    except nats.errors.NoRespondersError:
        raise NoListener from None
    except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionClosedError) as unsent:
        raise ConnectionDropped from unsent
    except nats.errors.ConnectionDrainingError as unsent:
        raise ConnectionDropped from unsent
    except (nats.errors.Error, OSError, TimeoutError) as lost:
        raise Unanswered(None) from lost


def _header_bytes(headers: Mapping[str, str] | None) -> int:
    return len("NATS/1.0\r\n\r\n") + sum(len(k) + len(v) + 4 for k, v in headers.items()) if headers else 0


def is_plain(client: Client) -> bool:
    """Tell whether what the client sends can be read on the way: it encrypts only if the server asks for it."""
    told: dict[str, Any] = client._server_info  # noqa: SLF001 - nats-py tells nobody else
    return not told.get("tls_required", False) and not client.options.get("tls_handshake_first", False)


async def dial(settings: NatsSettings) -> Link:
    """Connect a client of our own; `LoginRefused`, `TlsRefused` or `Unreachable` within the time limit."""
    client, refusals = Client(), Refusals()
    link = Link(client, settings, refusals, owned=True)
    options = _options(client, settings)
    refusals.is_dialing = True
    try:
        async with asyncio.timeout(settings.timeout_s):
            await client.connect(error_cb=refusals.hear, disconnected_cb=refusals.forget, **options)
    except (nats.errors.Error, OSError, TimeoutError, _Decided) as failed:
        _drop(client)
        raise _reason(settings, [*refusals.errors, failed]) from failed
    except BaseException:
        _drop(client)
        raise
    refusals.is_dialing = False
    if not link.is_connected or not await link.answers():
        await link.close()
        last = _Plain() if settings.wants_tls and is_plain(client) else client.last_error or TimeoutError()
        raise _reason(settings, [*refusals.errors, last])
    client.options |= {"max_reconnect_attempts": -1, "reconnect_time_wait": RECONNECT_EVERY_S}
    return link


def _drop(client: Client) -> None:
    """Close the socket of a client that is not connected yet; closing the client would wait for what never comes."""
    if client._transport is not None:  # noqa: SLF001 - nats-py has no other way
        client._transport.close()  # type: ignore[no-untyped-call]  # noqa: SLF001 - the same


class _Decided(Exception):
    """Trying again would come to the same."""


class _Plain(nats.errors.Error):
    """The server does not encrypt, though it must."""


def _options(client: Client, settings: NatsSettings) -> dict[str, Any]:
    login = settings.login()

    def guarded(secret: str) -> Any:  # noqa: ANN401 - a callback, of str or bytes as nats-py wants it
        def give() -> str:
            if settings.wants_tls and is_plain(client):
                raise _Plain
            return secret

        return give

    options: dict[str, Any] = {
        "servers": list(settings.urls),
        "name": settings.name,
        "connect_timeout": settings.timeout_s,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "pending_size": 0,
        "tls": settings.ssl_context(),
        "tls_hostname": settings.tls_server_name or None,
        "tls_handshake_first": settings.tls_first,
        "skip_subject_validation": True,
    }
    if login.jwt:
        options["user_jwt_cb"] = lambda: guarded(login.jwt)().encode()
        options["signature_cb"] = lambda nonce: login.signature(nonce).encode()
    elif login.seed:
        options["nkeys_seed_str"] = login.seed
    elif login.token:
        options["token"] = guarded(login.token)
    elif login.user or login.password:
        options |= {"user": guarded(login.user), "password": guarded(login.password)}
    return options


def _reason(settings: NatsSettings, errors: Sequence[Exception]) -> StrandlineError:
    """Return why no server was connected to: the most telling of what happened."""
    if any(_LOGIN.search(str(error)) for error in errors if isinstance(error, nats.errors.Error)):
        return LoginRefused(settings.addresses)
    if any(isinstance(error, nats.errors.AuthorizationError) for error in errors):
        return LoginRefused(settings.addresses)
    if any(isinstance(error, _Plain) for error in errors):
        return TlsRefused(settings.addresses, "the server does not encrypt")
    for error in errors:
        if isinstance(error, ssl.SSLError):
            return TlsRefused(settings.addresses, getattr(error, "verify_message", "") or error.reason or "refused")
    if settings.wants_tls and any(isinstance(error, ConnectionResetError) for error in errors):
        return TlsRefused(settings.addresses, "the server hung up; it may want a certificate")
    silent = any(isinstance(error, TimeoutError) for error in errors)
    return Unreachable(settings.addresses, "it is silent" if silent else "nobody listens")
