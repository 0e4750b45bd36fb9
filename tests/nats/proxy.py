"""A TCP proxy between a reader and its server that cuts, stalls and drops connections, also in the middle of frames."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE_S


class Proxy:
    """Forwards connections; `cut_after` decides for each new one after how many bytes from the server it is cut."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut_after: Callable[[], int | None] = lambda: None
        self.connections = 0
        self.refuses = False
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def cut_all(self) -> None:
        """Cut every connection now."""
        for found in list(self._open):
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Forward nothing for a while; connections stay open."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    def stop(self) -> None:
        """End it."""
        self._is_stopped = True
        self._flows.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._is_stopped:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                self.connections += 1
                try:
                    server = socket.create_connection(self._target, PATIENCE_S)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)  # a server that says nothing for a while is not cut off
                self._open |= {client, server}
                for source, sink, limit in ((client, server, None), (server, client, self.cut_after())):
                    threading.Thread(target=self._pump, args=(source, sink, limit), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        left = limit
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                self._flows.wait()
                if left is not None:
                    piece = piece[:left]
                    left -= len(piece)
                sink.sendall(piece)
                if left == 0:
                    break
        for found in (source, sink):
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            source.close()
        self._open.discard(source)


def random_cuts(seed: int, most: int) -> Callable[[], int | None]:
    """Return a decision that cuts connections after a random number of bytes."""
    chance = random.Random(seed)
    return lambda: chance.randint(200, most)


@contextmanager
def running_proxy(port: int) -> Iterator[Proxy]:
    """Start a proxy in front of a port, and stop it afterwards."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.stop()
