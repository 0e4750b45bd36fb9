"""Addresses of providers: their public ones, and those given instead for servers of one's own and for tests.

    github=https://github.example.com/api/v3        gitlab=https://gitlab.example.com

Invariants: an address is https, unless it is of this machine; it has no login, query or fragment. Addresses are given
on the command line or by a variable, never by a file that stands in what is scanned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from strandline.errors import InvalidInput
from strandline.verify.http_client import is_here
from strandline.verify.providers import PROVIDERS, Provider

_HINT = "write NAME=https://host, such as gitlab=https://gitlab.example.com"


@dataclass(frozen=True)
class Addresses:
    """Addresses by the name of their provider; a provider that is not named has its public one."""

    given: Mapping[str, str] = field(default_factory=dict)

    def base(self, provider: Provider) -> str:
        """Return the address of a provider, without a slash at its end."""
        return self.given.get(provider.name, provider.base)

    def host(self, provider: Provider) -> str:
        """Return the host of a provider, with its port if it has one."""
        return urlsplit(self.base(provider)).netloc


def parse_addresses(texts: Iterable[str]) -> Addresses:
    """Return addresses from texts of the form `NAME=ADDRESS`."""
    return Addresses(dict(_parsed(text) for text in texts))


def _parsed(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not equals:
        raise InvalidInput("--verify-host: there is no = in it", hint=_HINT)
    known = {provider.name for provider in PROVIDERS}
    if name not in known:
        raise InvalidInput(f"--verify-host: there is no provider {name!r}", hint=f"known: {', '.join(sorted(known))}")
    try:
        parts = urlsplit(address)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise InvalidInput(f"--verify-host: the address of {name} cannot be read", hint=_HINT) from None
    is_plain = address.isascii() and address.isprintable() and " " not in address and has_port
    if parts.username or parts.password or parts.query or parts.fragment or not parts.hostname or not is_plain:
        problem = f"--verify-host: the address of {name} has a login, a query or no host"
        raise InvalidInput(problem, hint=_HINT)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here(parts)):
        problem = f"--verify-host: the address of {name} is not https"
        raise InvalidInput(problem, hint="secrets are sent over TLS; only a server on this machine may do without")
    return name, address.rstrip("/")
