"""A token that ends all waits of one reader, on any of its connections.

Invariants: it may be called from any thread, and does not wait. What connects afterwards is ended at once.
"""

import contextlib
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Closes(Protocol):
    """A connection, say."""

    def close(self) -> None:
        """End it."""


class CancelToken:
    """Ends connections that are there, that are being made, and that would be."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._connecting: set[socket.socket] = set()
        self._connected: weakref.WeakSet[Closes] = weakref.WeakSet()

    def is_set(self) -> bool:
        """Tell whether it was called."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is called; return whether it was, within a time."""
        return self._event.wait(timeout_s)

    def set(self) -> None:
        """End everything."""
        self._event.set()
        with self._lock:
            connecting, connected = list(self._connecting), list(self._connected)
            for raw in connecting:
                _shut(raw)
        for connection in connected:
            connection.close()

    @contextmanager
    def over(self, raw: socket.socket) -> Iterator[None]:
        """Shut a socket down too, until it is a connection; a copy of it, since TLS makes another socket."""
        with raw.dup() as same:
            with self._lock:
                self._connecting.add(same)
            if self.is_set():
                _shut(same)
            try:
                yield
            finally:
                with self._lock:
                    self._connecting.discard(same)

    def add(self, connection: Closes) -> None:
        """Close a connection too, for as long as it is in use."""
        with self._lock:
            self._connected.add(connection)
        if self.is_set():
            connection.close()


def _shut(raw: socket.socket) -> None:
    with contextlib.suppress(OSError):
        raw.shutdown(socket.SHUT_RDWR)
