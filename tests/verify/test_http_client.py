"""One request: bounded as a whole, not redirected, over verified TLS, through proxies."""

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from strandline.verify.http_client import BODY_BYTES_MAX, HttpClient, NotAnswered, Request
from tests.identities_nats import make_certificates
from tests.verify.provider_server import ProviderServer, provider_server
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def server() -> Iterator[ProviderServer]:
    with provider_server() as running:
        yield running


def ask(server: ProviderServer, mode: str, timeout_s: float = PATIENCE_S) -> int:
    server.modes["github"] = [mode]
    url = f"{server.addresses.given['github']}/user?token=hidden"
    return HttpClient(timeout_s).send(Request("GET", url, {"Authorization": "hidden"})).status


@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_a_request_is_bounded_as_a_whole(server: ProviderServer, mode: str) -> None:
    with pytest.raises(NotAnswered, match=r"no answer within 0\.3 s"):
        ask(server, mode, timeout_s=0.3)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_nothing_is_sent_after_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = f"https://localhost:{listening.getsockname()[1]}/hidden"
        with pytest.raises(NotAnswered, match=r"no answer within 0\.1 s"):
            HttpClient(0.1, socket_s=PATIENCE_S).send(Request("GET", here, {}))
        # Only now does the host say anything; the connection waits for TLS until then.
        connection, _ = listening.accept()
        connection.settimeout(PATIENCE_S)
        received = b""
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:  # it may be gone already
            received = tls.recv(1_000)
        assert received == b""


def test_a_redirect_is_an_answer(server: ProviderServer) -> None:
    before = len(server.asked)
    assert ask(server, "redirect") == 302
    assert server.names()[before:] == ["github"]


def test_errors_read_well_and_hold_nothing_of_the_request(server: ProviderServer) -> None:
    with pytest.raises(NotAnswered) as caught:
        ask(server, "garbage")
    assert str(caught.value) == "its answer is not HTTP"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(NotAnswered) as caught:
        HttpClient().send(Request("GET", f"http://127.0.0.1:{port}/hidden", {}))
    assert str(caught.value) == "nothing listens there"
    with pytest.raises(NotAnswered) as caught:
        HttpClient().send(Request("GET", f"http://127.0.0.1:{server.port}/hid den\n", {"a": "hidden\n"}))
    assert "hid" not in str(caught.value)
    assert caught.value.__cause__ is None, "the text of the cause holds the address"


@contextmanager
def tls_server(folder: Path, body: bytes = b"{}") -> Iterator[tuple[int, Path]]:
    """Run a server with a certificate for localhost; yield its port and its authority."""
    files = make_certificates(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base calls it
            """Log nothing."""

        def handle(self) -> None:
            with suppress(OSError):  # a client that does not trust it
                super().handle()

    class Server(HTTPServer):
        def get_request(self) -> tuple[socket.socket, object]:
            sock, address = super().get_request()
            try:
                return context.wrap_socket(sock, server_side=True), address
            except OSError:
                sock.close()
                raise

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with Server(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield http.server_address[1], files.ca
        finally:
            http.shutdown()
            thread.join()


@contextmanager
def proxy(target: int) -> Iterator[tuple[int, list[bytes]]]:
    """Run a proxy that takes one CONNECT and leads it to a port; yield its port and the heads that it got."""
    heads: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        heads.append(head)
        upstream = socket.create_connection(("127.0.0.1", target))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = threading.Thread(target=_copy, args=(upstream, client))
        back.start()
        _copy(client, upstream)
        back.join()
        client.close()
        upstream.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1], heads
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _copy(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65_536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_tls_is_verified_and_proxies_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    request = Request("GET", "", {"Authorization": "hidden"})
    with tls_server(tmp_path, b"x" * 2 * BODY_BYTES_MAX) as (port, authority):
        here = Request("GET", f"https://localhost:{port}/", request.headers)
        with pytest.raises(NotAnswered, match="its certificate is not trusted"):
            HttpClient(PATIENCE_S).send(here)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert len(HttpClient(PATIENCE_S).send(here).body) == BODY_BYTES_MAX
        with proxy(port) as (proxy_port, heads):
            monkeypatch.setenv("HTTPS_PROXY", f"http://ada:pass@127.0.0.1:{proxy_port}")
            monkeypatch.setenv("NO_PROXY", "other.test")
            # The certificate is not for this name: TLS is with the provider, and the proxy is only on the way.
            with pytest.raises(NotAnswered, match="its certificate is not trusted"):
                HttpClient(PATIENCE_S).send(Request("GET", "https://provider.test/", request.headers))
        (head,) = heads
        assert head.startswith(b"CONNECT provider.test:443 HTTP/1.")
        assert b"Proxy-Authorization: Basic YWRhOnBhc3M=" in head
        assert b"hidden" not in head
        with proxy(port) as (proxy_port, heads):
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy_port}")
            monkeypatch.setenv("NO_PROXY", "provider.invalid")
            with pytest.raises(NotAnswered):  # no such name exists, whatever this machine's resolver says of it
                HttpClient(2.0).send(Request("GET", "https://provider.invalid/", request.headers))
        assert heads == []


def test_a_proxy_that_cannot_be_used_is_named_without_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://ada:hidden@localhost:1")
    with pytest.raises(NotAnswered, match="the proxy of HTTPS_PROXY cannot be used") as caught:
        HttpClient().send(Request("GET", "https://provider.test/", {}))
    assert "hidden" not in str(caught.value)
