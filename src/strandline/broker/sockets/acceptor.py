"""Listening sockets that accept no more connections than a limit allows.

Invariants: a connection counts from the moment it is accepted until its socket is closed. While the limit is reached,
or the process is out of file descriptors, nothing is accepted: new connections wait in the kernel's backlog. Each such
reason is logged when it occurs, and not again while it lasts.
"""

import asyncio
import contextlib
import contextvars
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from strandline.errors import Unavailable

logger = logging.getLogger("strandline.broker")
BACKLOG = 4_096
"""Length of the kernel's queue, unless the machine's `somaxconn` is lower."""
ACCEPTS_MAX = 8
"""How many connections are accepted before the open ones are served."""
RETRY_S = 1.0
"""Pause after running out of file descriptors: nothing signals when another owner frees one."""
QUIET_S = 60.0
"""How long a reason must be absent before it is logged again."""
_LISTEN_HINTS = {
    errno.EADDRINUSE: "another server uses this port; port -1 picks a free one",
    errno.EACCES: "ports below 1024 need root",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    socket.EAI_NONAME: "this machine has no such address",
}
Make = Callable[[Any], asyncio.BaseProtocol]
"""Makes the protocol of a connection from its peer address."""


class ConnectionAcceptor:
    """Some listening sockets and their connections; `connections_max` returns the limit."""

    def __init__(self, connections_max: Callable[[], int]) -> None:
        self._connections_max = connections_max
        self._loop: asyncio.AbstractEventLoop
        self._context: contextvars.Context
        self._sockets: dict[socket.socket, Make] = {}
        self._connections: set[asyncio.BaseProtocol] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._is_open = True
        self._retry: asyncio.TimerHandle | None = None
        self._paused_s: dict[str, float] = {}

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def listen(self, host: str, port: int, make: Make) -> int:
        """Accept connections at an address, and return the port; `Unavailable` if it cannot be bound."""
        self._loop, self._context = asyncio.get_running_loop(), contextvars.copy_context()
        sockets = await listening_sockets(host, port)
        for each in sockets:
            self._sockets[each] = make
            if self._is_open:
                self._loop.add_reader(each, self._accept, each)
        return int(sockets[0].getsockname()[1])

    def release(self, protocol: asyncio.BaseProtocol) -> None:
        """Stop counting a connection; idempotent."""
        self._connections.discard(protocol)
        self.resume()

    def resume(self) -> None:
        """Accept again if the limit allows it."""
        if not self._is_open and self._retry is None and self.count < self._connections_max():
            self._is_open = True
            for each in self._sockets:
                self._context.run(self._loop.add_reader, each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            if self.count >= self._connections_max():
                self._pause(f"the limit of {self._connections_max()} connections is reached")
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error.strerror or str(error))
                self._retry = self._loop.call_later(RETRY_S, self._end_pause)
                return
            accepted.settimeout(0)
            protocol = self._sockets[listening](address)
            self._connections.add(protocol)
            task = self._loop.create_task(self._connect(accepted, protocol))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        with contextlib.suppress(OSError):  # the peer is gone already
            try:
                await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            except BaseException:
                accepted.close()
                self.release(protocol)
                raise

    def _pause(self, reason: str) -> None:
        self._is_open = False
        for each in self._sockets:
            self._loop.remove_reader(each)
        now_s = self._loop.time()
        if now_s - self._paused_s.get(reason, -QUIET_S) >= QUIET_S:
            logger.error("No connections are accepted for now: %s", reason)
        self._paused_s[reason] = now_s

    def _end_pause(self) -> None:
        self._retry = None
        self.resume()

    def stop(self) -> None:
        """Close the listening sockets; open connections stay."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()

    async def close(self) -> None:
        """Close the listening sockets, and return when every accepted connection has its protocol."""
        self.stop()
        if self._connecting:
            await asyncio.wait(self._connecting)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at an address (empty: all of the machine); `Unavailable` if none can be bound.

    All have the same port; 0 or -1 picks a free one.
    """
    loop = asyncio.get_running_loop()
    with _listen_errors(host, port):
        found = await loop.getaddrinfo(host or None, max(port, 0), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bind([(family, address) for family, _, _, _, address in found])


def _bind(addresses: list[tuple[socket.AddressFamily, Any]]) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, (host, port, *more) in dict.fromkeys(addresses):
            own_port = bound[0].getsockname()[1] if bound else port
            try:
                bound.append(socket.create_server((host, own_port, *more), family=family, backlog=BACKLOG))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:  # a machine may lack IPv6
                    raise
    except BaseException:
        for each in bound:
            each.close()
        raise
    if not bound:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for each in bound:
        each.settimeout(0)
    return bound


@contextlib.contextmanager
def _listen_errors(host: str, port: int) -> Iterator[None]:
    """Raise `Unavailable`, with a hint, where a port cannot be bound."""
    try:
        yield
    except OSError as error:
        address = f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - only shown
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        # nats-server's text, which tools match.
        text = f'Error listening on port: {address}, "listen tcp {address}: bind: {reason.lower()}"'
        raise Unavailable(text, hint=_LISTEN_HINTS.get(error.errno or 0)) from error
