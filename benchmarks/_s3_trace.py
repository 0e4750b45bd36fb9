"""The requests to an object store, seen from its side: a forwarder between clients and server notes each of them.

Invariants: bytes pass unchanged both ways. A request is noted when the first byte of its answer has come back, with
that time; one that was never answered is not noted.
"""

import re
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1\.1\r\n")
_CHUNK = 1 << 18


class Request(NamedTuple):
    """One request, and when its answer came."""

    answered_s: float
    method: str
    path: str

    @property
    def is_transaction(self) -> bool:
        """Return whether it has put a file of level 0."""
        return self.method == "PUT" and "/0000/" in self.path


class S3Trace:
    """The requests that passed, oldest first."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._requests: list[Request] = []
        self._changed = threading.Condition()

    @property
    def endpoint(self) -> str:
        """Where clients connect instead of the server."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def clear(self) -> None:
        """Forget all requests."""
        with self._changed:
            self._requests.clear()

    def counts(self) -> Counter[str]:
        """Return how many requests of each method have passed."""
        with self._changed:
            return Counter(request.method for request in self._requests)

    def transactions(self) -> list[Request]:
        """Return the files of level 0 that were put."""
        with self._changed:
            return [request for request in self._requests if request.is_transaction]

    def wait_for_transaction(self, known: int, patience_s: float = 120.0) -> Request:
        """Return the first transaction behind so many."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._put()) > known, patience_s):
                raise AssertionError("no transaction came")
            return self._put()[known]

    def wait_until_quiet(self, since_s: float = 0.0, quiet_s: float = 3.0) -> float:
        """Wait for a transaction after `since_s`, then until none comes for a while; return when the last did."""
        while True:
            last_s = max((request.answered_s for request in self.transactions()), default=0.0)
            if last_s < since_s:
                self.wait_for_transaction(len(self.transactions()))
                continue
            rest_s = last_s + quiet_s - time.monotonic()
            if rest_s <= 0:
                return last_s
            time.sleep(rest_s)

    def _put(self) -> list[Request]:
        return [request for request in self._requests if request.is_transaction]

    def forward(self) -> None:
        """Accept clients until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no more clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, client: socket.socket) -> None:
        asked: tuple[str, str] | None = None
        with client, socket.create_connection(self._server) as server, selectors.DefaultSelector() as both:
            both.register(client, selectors.EVENT_READ, server)
            both.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in both.select():
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    try:
                        data = source.recv(_CHUNK)
                        key.data.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    if source is server and asked is not None:
                        self._note(*asked)
                        asked = None
                    found = _REQUEST.match(data) if source is client else None
                    if found is not None:
                        asked = found[1].decode(), found[2].decode()

    def _note(self, method: str, path: str) -> None:
        with self._changed:
            self._requests.append(Request(time.monotonic(), method, path))
            self._changed.notify_all()


@contextmanager
def traced(endpoint: str) -> Iterator[S3Trace]:
    """Forward to a server for the time of a block."""
    trace = S3Trace(endpoint)
    threading.Thread(target=trace.forward, daemon=True).start()
    try:
        yield trace
    finally:
        trace.close()
