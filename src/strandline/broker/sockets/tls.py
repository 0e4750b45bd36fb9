"""TLS as a function of bytes: what comes from the socket in, what the client says out, and the other way round.

Invariants: nothing is said in the clear once the handshake has begun; a failed handshake or record is final.
"""

import ssl
from contextlib import suppress
from typing import Any, cast

from strandline.broker.settings import TlsSettings
from strandline.errors import InvalidInput

READ_BYTES = 256 << 10
HANDSHAKE = 0x16
"""The first byte of every TLS connection; no NATS client in the clear begins with it."""
_VERSIONS = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}


class TlsFailed(Exception):
    """The handshake, or a record, is not what it has to be."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context that some settings describe; `InvalidInput` if their files are of no use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.minimum_version = _VERSIONS[settings.min_version]
        context.load_cert_chain(settings.cert_file, settings.key_file)
        if settings.ca_file is not None:
            context.load_verify_locations(settings.ca_file)
    except (OSError, KeyError) as error:
        raise InvalidInput(
            f"TLS cannot be set up with {settings.cert_file} and {settings.key_file}: {error}",
            hint="check that the files are PEM, belong together and can be read",
        ) from error
    if settings.verify:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsLayer:
    """The server's end of one TLS connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_ready = False
        """Whether the handshake is over."""
        self.has_ended = False
        """Whether the client said that nothing more comes."""

    def receive(self, data: bytes) -> bytes:
        """Return what the client says; there may be something to be sent afterwards."""
        self._incoming.write(data)
        try:
            if not self.is_ready:
                self._tls.do_handshake()
                self.is_ready = True
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise TlsFailed(str(error)) from error

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        return b"".join(parts)

    def send(self, data: bytes) -> bytes:
        """Return what is to be sent to say something to the client."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self._outgoing.read()

    def output(self) -> bytes:
        """Return what is to be sent for the connection's own sake."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return what is to be sent to end the connection."""
        with suppress(ssl.SSLError):  # the client has not said so too; it need not
            self._tls.unwrap()
        return self._outgoing.read()

    @property
    def subject(self) -> str:
        """Who the client is by its certificate, as `CN=…,O=…`; empty without one."""
        certificate = self._tls.getpeercert() if self.is_ready else None
        names = cast("Any", certificate.get("subject", ())) if certificate else ()
        return ",".join(f"{_SHORT.get(key, key)}={value}" for part in names for key, value in part)

    def describe(self) -> tuple[str, str]:
        """Return version and cipher, as monitoring shows them."""
        cipher = self._tls.cipher()
        return (self._tls.version() or "").removeprefix("TLSv"), cipher[0] if cipher else ""


_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}
