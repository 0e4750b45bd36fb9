"""The listener of metrics and health: `/metrics`, `/healthz` and `/readyz` on a port of their own.

Invariants: a client that sends or reads nothing is cut off after seconds, and holds up no other; other paths and
methods are refused. The listener ends with its block.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from strandline.errors import Unavailable
from strandline.metrics.expositions import exposition, registry_of
from strandline.metrics.health import Health
from strandline.metrics.metric import HOST, MetricSource, check_metric

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CLIENT_TIMEOUT_S = 10.0
_TEXT = "text/plain; charset=utf-8"
_PATHS = "/metrics\n/healthz\n/readyz\n"


class MetricsPage(NamedTuple):
    """A page that is served."""

    address: str

    @property
    def health_address(self) -> str:
        """Where health is told."""
        return self.address.removesuffix("/metrics") + "/healthz"

    @property
    def ready_address(self) -> str:
        """Where readiness is told."""
        return self.address.removesuffix("/metrics") + "/readyz"


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    registry: "CollectorRegistry"
    health: Health

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without a question to the name server for the host's full name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = CLIENT_TIMEOUT_S
    server: _Listener
    server_version = "strandline"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                page = exposition(self.server.registry, self.headers.get("Accept") or "")
                self._send(200, page.content_type, page.body)
            case "/healthz":
                report = self.server.health.liveness()
                self._send(report.status, "application/json", report.body())
            case "/readyz":
                report = self.server.health.readiness()
                self._send(report.status, "application/json", report.body())
            case "/":
                self._send(200, _TEXT, _PATHS.encode())
            case _:
                self._send(404, _TEXT, f"there are:\n{_PATHS}".encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log no requests."""


@contextmanager
def serve_metrics(
    port: int | None, *sources: MetricSource, host: str = HOST, health: Health | None = None
) -> Iterator[MetricsPage | None]:
    """Serve metrics and health for the block; port 0 is any free one, and None serves nothing."""
    if port is None:
        yield None
        return
    registry = registry_of(sources)
    for source in sources:
        for metric in source():
            check_metric(metric)
    try:
        listener = _Listener(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "give --metrics-port another one, or 0 for any that is free"
        raise Unavailable(f"metrics cannot be served at {host}:{port}: {reason}", hint=hint) from error
    listener.registry, listener.health = registry, health or Health()
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), name="strandline-metrics", daemon=True)
    thread.start()
    try:
        yield MetricsPage(f"http://{f'[{host}]' if ':' in host else host}:{listener.server_port}/metrics")
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
