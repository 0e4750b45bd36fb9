"""The settings of a nats-py client that a caller owns: where it is connected, and as whom.

Invariants: they are read from the client each time, for it may have moved to another server. They do not pickle, as
clients do not.
"""

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import ParseResult

from strandline.errors import InvalidInput
from strandline.nats.logins import Login
from strandline.nats.settings import NatsSettings

if TYPE_CHECKING:
    from nats.aio.client import Client


@dataclass(frozen=True, slots=True)
class NatsPySettings(NatsSettings):
    """How to make another connection like a client's."""

    client: "Client | None" = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the servers that the client knows, first the one it is connected to, without user info."""
        client = self._client()
        known = [client.connected_url, *client.servers]
        return tuple(dict.fromkeys(_plain(uri) for uri in known if uri is not None))

    @property
    def addresses(self) -> str:
        """Return the servers as a message shows them."""
        return ", ".join(url.partition("://")[2] for url in self.urls)

    @property
    def inbox_prefix(self) -> str:
        """Return what the client's subjects of answers begin with: its credentials may allow no others."""
        return self._client()._inbox_prefix.decode()  # noqa: SLF001 - nats-py has no public name for it

    @property
    def wants_tls(self) -> bool:
        """Tell whether a server without TLS is refused: where the client was told how to speak it."""
        return "tls" in self._client().options or any(url.startswith("tls://") for url in self.urls)

    def login(self) -> Login:
        """Return who the client is."""
        client = self._client()
        options: dict[str, Any] = client.options
        jwt, sign = client._user_jwt_cb, client._signature_cb  # noqa: SLF001 - nats-py has no public name for it
        if sign is not None:
            token = bytes(jwt()).decode() if jwt is not None else ""
            nkey = client._public_nkey or ""  # noqa: SLF001 - the same
            return Login(jwt=token, nkey=nkey, signer=lambda nonce: bytes(sign(nonce)))
        user, password, token = (_called(options.get(name)) for name in ("user", "password", "token"))
        if user or password or token:
            return Login(user=user, password=password, token=token)
        uri = client.connected_url
        if uri is None or not uri.username:
            return Login()
        return Login(user=uri.username, password=uri.password) if uri.password else Login(token=uri.username)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return how the client speaks TLS, None if it was not told."""
        context: ssl.SSLContext | None = self._client().options.get("tls")
        return context if context is not None or not self.wants_tls else ssl.create_default_context()

    def _client(self) -> "Client":
        if self.client is None:
            raise InvalidInput("there is no client to take settings from")
        return self.client


def _called(value: Any) -> str:  # noqa: ANN401 - what nats-py takes: a text, a function, nothing
    return str(value() if callable(value) else value or "")


def _plain(uri: ParseResult) -> str:
    if uri.scheme in ("ws", "wss"):
        hint = "give NatsSettings with the nats:// or tls:// address of the server"
        raise InvalidInput("a client over WebSocket has no address for other connections", hint=hint)
    host = f"[{uri.hostname}]" if ":" in (uri.hostname or "") else uri.hostname
    return f"{'tls' if uri.scheme == 'tls' else 'nats'}://{host}:{uri.port or 4222}"
