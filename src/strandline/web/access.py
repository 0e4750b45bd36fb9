"""Who may ask, and from where: the token, the cookie, and the names that this site answers to.

Invariants: pure decisions, without I/O; secrets are compared in constant time; a name that is not listed is refused,
whatever address it resolves to (DNS rebinding); headers of a proxy are read only where a public address was given, and
must agree with it.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

from strandline.errors import InvalidInput

TOKEN_BYTES = 24
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class PublicAddress:
    """The address of the site as browsers see it, behind a proxy."""

    scheme: str
    host: str
    prefix: str = ""

    @property
    def origin(self) -> str:
        """Return the origin that browsers send."""
        return f"{self.scheme}://{self.host}"


def parse_public_address(text: str) -> PublicAddress:
    """Return a public address from `https://host[:port][/prefix]`."""
    parts = urlsplit(text)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(f"--public-url {text}: not an address", hint="give https://host or https://host/prefix")
    host = parts.hostname if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f"{parts.hostname}:{parts.port}"
    return PublicAddress(parts.scheme, host, parts.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Return whether a host to listen at is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """The rules of a site that listens at a host and a port."""

    host: str
    port: int
    is_tls: bool = False
    allow_changes: bool = False
    public: PublicAddress | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)

    @property
    def scheme(self) -> str:
        """Return the scheme of the address that this process listens at."""
        return "https" if self.is_tls else "http"

    @property
    def prefix(self) -> str:
        """Return the path that public addresses begin with."""
        return "" if self.public is None else self.public.prefix

    @property
    def is_secure(self) -> bool:
        """Return whether browsers reach the site by TLS, so that its cookie may be kept to that."""
        return self.is_tls if self.public is None else self.public.scheme == "https"

    @property
    def local_address(self) -> str:
        """Return the address that this process listens at."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def address(self) -> str:
        """Return the address for people, without the token."""
        return self.local_address if self.public is None else self.public.origin + self.public.prefix

    @property
    def entry(self) -> str:
        """Return the address for people, with the token."""
        return f"{self.address}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """Return the name of the cookie: browsers share cookies among the ports of a host."""
        return f"strandline-{self.port}"

    @cached_property
    def cookie(self) -> str:
        """Return the value of the cookie: it follows from the token, and does not give it away."""
        return self._derived("cookie")

    @cached_property
    def csrf(self) -> str:
        """Return the value that every change must bring along: only a page of this site knows it."""
        return self._derived("csrf")

    @cached_property
    def hosts(self) -> frozenset[str]:
        """Return the names that requests may be for, as `Host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        names = {"127.0.0.1", "localhost", "[::1]"} if is_loopback(self.host) else {host.lower()}
        local = {f"{name}:{self.port}" for name in names}
        if self.port == DEFAULT_PORTS[self.scheme]:
            local |= names
        return frozenset(local | ({self.public.host} if self.public else set()))

    @cached_property
    def origins(self) -> frozenset[str]:
        """Return the origins that changes may come from."""
        local = self.hosts - ({self.public.host} if self.public else set())
        return frozenset(
            {f"{self.scheme}://{host}" for host in local} | ({self.public.origin} if self.public else set())
        )

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token."""
        return same(given, self.token)

    def is_cookie(self, given: str) -> bool:
        """Return whether a text is the cookie's value."""
        return same(given, self.cookie)

    def is_csrf(self, given: str) -> bool:
        """Return whether a text proves that a change comes from a page of this site."""
        return same(given, self.csrf)

    def is_for_us(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request names this site; `headers` has lower-case names."""
        if headers.get("host", "").lower() not in self.hosts:
            return False
        forwarded = {name: headers[name] for name in ("x-forwarded-host", "x-forwarded-proto") if name in headers}
        if self.public is None or not forwarded:
            return True
        return forwarded == {
            name: value
            for name, value in (("x-forwarded-host", self.public.host), ("x-forwarded-proto", self.public.scheme))
            if name in forwarded
        }

    def is_from_us(self, headers: Mapping[str, str]) -> bool:
        """Return whether a change was begun by a page of this site, as far as the browser says."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        return (origin is None or origin.lower() in self.origins) and site in (None, "same-origin", "none")

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), f"strandline/web/{purpose}".encode(), hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), wanted.encode())
