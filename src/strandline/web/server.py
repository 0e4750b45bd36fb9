"""The server: uvicorn over a socket that was bound first, so that the address that is printed is the one that answers.

Invariants: nothing listens at an address of other machines without TLS, unless that was asked for by name; headers of
proxies are not interpreted here (`Access` does); the server ends with its block.
"""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import InvalidInput, Unavailable
from strandline.extras import needs
from strandline.web.access import Access, PublicAddress, is_loopback, parse_public_address
from strandline.web.site import make_app, polling
from strandline.web.site_state import Site

with needs("web"):
    import uvicorn

HOST = "127.0.0.1"
GRACE_S = 1
BACKLOG = 128


@dataclass(frozen=True)
class Listening:
    """Where and how a site listens."""

    host: str = HOST
    port: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None
    allow_plain: bool = False

    @property
    def is_tls(self) -> bool:
        """Return whether it speaks TLS itself."""
        return self.tls_cert is not None

    def check(self) -> PublicAddress | None:
        """Refuse what would show the pages to others by accident; return the public address, if there is one."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("TLS needs both --tls-cert and --tls-key")
        for file in (self.tls_cert, self.tls_key):
            if file is not None and not file.is_file():
                raise InvalidInput(f"{file}: there is no such file", hint="give files in PEM format")
        if not is_loopback(self.host) and not self.is_tls and not self.allow_plain:
            raise InvalidInput(
                f"--host {self.host} would send the token, and all findings, over the network unencrypted",
                hint="give --tls-cert and --tls-key, reach 127.0.0.1 through ssh -L, or accept it with --plain-http",
            )
        if self.host in ("0.0.0.0", "::", "") and self.public_url is None:  # noqa: S104 - refused
            raise InvalidInput(
                f"--host {self.host!r} has no name that browsers would ask for",
                hint="give the address that they use, or --public-url",
            )
        return None if self.public_url is None else parse_public_address(self.public_url)


def bind(listening: Listening) -> socket.socket:
    """Return a socket that is bound."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((listening.host, listening.port))
    except OSError as error:
        found.close()
        reason = error.strerror or str(error)
        raise Unavailable(
            f"cannot listen at {listening.host}:{listening.port}: {reason}",
            hint="give another --port, or 0 for any",
        ) from error
    found.listen(BACKLOG)
    return found


def access_of(listening: Listening, port: int, *, allow_changes: bool) -> Access:
    """Return who may see a site that listens so."""
    public = listening.check()
    return Access(listening.host, port, is_tls=listening.is_tls, allow_changes=allow_changes, public=public)


@contextmanager
def serving(site: Site, listening: Listening, bound: socket.socket) -> Iterator[None]:
    """Serve a site for the block, in a thread."""
    config = uvicorn.Config(
        make_app(site),
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http="h11",
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=listening.tls_cert,
        ssl_keyfile=listening.tls_key,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="web-server", daemon=True)
    with polling(site):
        thread.start()
        try:
            yield
        finally:
            site.live.close()
            server.should_exit = True
            thread.join()
            bound.close()
