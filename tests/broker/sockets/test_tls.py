"""TLS as a function of bytes."""

import ssl
from pathlib import Path

import pytest

from strandline.broker.settings import TlsSettings
from strandline.broker.sockets.tls import TlsFailed, TlsLayer, server_context
from strandline.errors import InvalidInput
from tests.identities_nats import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class _Client:
    """The client's end, as bytes."""

    def __init__(self, certificates: Certificates, *, own: bool = False) -> None:
        context = ssl.create_default_context(cafile=str(certificates.ca))
        if own:
            context.load_cert_chain(certificates.client_cert, certificates.client_key)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self.is_ready = False

    def step(self, data: bytes) -> bytes:
        self._in.write(data)
        if not self.is_ready:
            try:
                self.tls.do_handshake()
                self.is_ready = True
            except ssl.SSLWantReadError:
                pass
        return self._out.read()

    def say(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._out.read()

    def hear(self, data: bytes) -> bytes:
        self._in.write(data)
        heard = b""
        try:
            while part := self.tls.read(1 << 20):
                heard += part
        except ssl.SSLWantReadError:
            pass
        return heard


def _settings(certificates: Certificates, *, verify: bool = False) -> TlsSettings:
    return TlsSettings(cert_file=certificates.cert, key_file=certificates.key, ca_file=certificates.ca, verify=verify)


def _connected(certificates: Certificates, *, verify: bool = False, own: bool = False) -> tuple[TlsLayer, _Client]:
    layer, client = TlsLayer(server_context(_settings(certificates, verify=verify))), _Client(certificates, own=own)
    data = client.step(b"")
    while data:
        layer.receive(data)
        data = client.step(layer.output())
    return layer, client


def test_both_sides_hear_what_the_other_says(certificates: Certificates) -> None:
    layer, client = _connected(certificates)
    assert layer.is_ready
    large = bytes(range(256)) * 4_000
    assert layer.receive(client.say(large)) == large
    assert client.hear(layer.send(large)) == large
    assert layer.describe()[0] == "1.3"
    assert layer.subject == ""


def test_records_may_come_in_pieces(certificates: Certificates) -> None:
    layer, client = _connected(certificates)
    data = client.say(b"PING\r\n" * 100)
    assert b"".join(layer.receive(data[at : at + 7]) for at in range(0, len(data), 7)) == b"PING\r\n" * 100


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(certificates: Certificates) -> None:
    with pytest.raises(TlsFailed, match="certificate"):
        _connected(certificates, verify=True)
    layer, _ = _connected(certificates, verify=True, own=True)
    assert layer.is_ready
    assert layer.subject.startswith("CN=")


def test_what_is_no_handshake_fails(certificates: Certificates) -> None:
    layer = TlsLayer(server_context(_settings(certificates)))
    with pytest.raises(TlsFailed):
        layer.receive(b'CONNECT {"verbose":false}\r\n')


def test_the_end_of_what_a_client_says_is_noticed(certificates: Certificates) -> None:
    layer, client = _connected(certificates)
    last = client.say(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    assert layer.receive(last + client.step(b"")) == b"last"
    assert layer.has_ended


def test_files_that_are_of_no_use_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="TLS cannot be set up"):
        server_context(TlsSettings(cert_file=tmp_path / "none", key_file=certificates.key))
    with pytest.raises(InvalidInput, match="TLS cannot be set up"):
        server_context(TlsSettings(cert_file=certificates.cert, key_file=certificates.client_key))
