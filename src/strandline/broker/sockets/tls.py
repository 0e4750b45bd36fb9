"""TLS as a function of bytes: ciphertext of the socket to plaintext and back.

Invariants: no plaintext is sent once the handshake has begun; a failed handshake or record is final.
"""

import ssl
from contextlib import suppress
from typing import Any, cast

from strandline.broker.settings import TlsSettings
from strandline.errors import InvalidInput

READ_BYTES = 256 << 10
HANDSHAKE = 0x16
"""The first byte of every TLS connection; no plain NATS client begins with it."""
_VERSIONS = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}


class TlsFailed(Exception):
    """A handshake or a record is invalid."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the SSL context for some settings; `InvalidInput` if their files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.minimum_version = _VERSIONS[settings.min_version]
        context.load_cert_chain(settings.cert_file, settings.key_file)
        if settings.ca_file is not None:
            context.load_verify_locations(settings.ca_file)
    except (OSError, KeyError) as error:
        raise InvalidInput(
            f"TLS cannot be set up with {settings.cert_file} and {settings.key_file}: {error}",
            hint="check that both files are PEM, readable, and belong together",
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
        """Whether the client has closed its direction."""

    def receive(self, data: bytes) -> bytes:
        """Return the decrypted bytes; `output` may have something to send afterwards."""
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
        """Return the encrypted form of some bytes."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self._outgoing.read()

    def output(self) -> bytes:
        """Return the pending handshake and control records."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the close notification."""
        with suppress(ssl.SSLError):  # the client need not answer
            self._tls.unwrap()
        return self._outgoing.read()

    @property
    def subject(self) -> str:
        """The subject of the client's certificate as `CN=…,O=…`; empty without one."""
        certificate = self._tls.getpeercert() if self.is_ready else None
        names = cast("Any", certificate.get("subject", ())) if certificate else ()
        return ",".join(f"{_SHORT.get(key, key)}={value}" for part in names for key, value in part)

    def describe(self) -> tuple[str, str]:
        """Return TLS version and cipher as monitoring shows them."""
        cipher = self._tls.cipher()
        return (self._tls.version() or "").removeprefix("TLSv"), cipher[0] if cipher else ""


_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}
