"""A receiver of webhooks on this machine, which fails, hangs, repeats and redirects as it is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from strandline.alarms import verify
from strandline.alarms.signing import SIGNATURE
from tests.waiting import eventually

SECRET = "a secret of tests"  # noqa: S105 - of tests


class WebhookServer:
    """What arrived, and how it answers."""

    def __init__(self) -> None:
        self.notices: list[dict[str, Any]] = []
        self.signatures: list[bool] = []
        self.bodies: list[bytes] = []
        self.statuses: list[int] = []
        """Answers to come, before 200."""
        self.hangs = threading.Event()
        self.hangs.set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/T0KEN"

    def states(self, kind: str) -> list[str]:
        """Return the states of notices of a kind, each id once, as receivers deduplicate."""
        found = {notice["id"]: notice["state"] for notice in self.notices if notice["kind"] == kind}
        return list(found.values())

    def wait_raised(self, kind: str) -> None:
        """Wait until a kind is raised, once."""
        eventually(lambda: self.states(kind), f"{kind} is raised")
        assert self.states(kind) == ["raised"]

    def wait_mended(self, kind: str) -> None:
        """Wait until a kind that was raised once is resolved, once; `test_every_kind…` reads the kinds out of calls."""
        eventually(lambda: self.states(kind)[1:], f"{kind} is resolved")
        assert self.states(kind) == ["raised", "resolved"]


@contextmanager
def receiving() -> Iterator[WebhookServer]:
    """Run a receiver for the block."""
    state = WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            stamp = int(self.headers[SIGNATURE].partition("t=")[2].partition(",")[0])
            state.signatures.append(verify(SECRET, self.headers[SIGNATURE], body, stamp))
            state.bodies.append(body)
            state.hangs.wait()
            status = state.statuses.pop(0) if state.statuses else 200
            if status == 200:
                state.notices.append(json.loads(body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", state.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join()
