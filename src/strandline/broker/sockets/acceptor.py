"""An entrance: listening sockets that take in no more connections than there are places for.

Invariants: a connection has a place from the moment it is accepted until its socket is closed, whatever it says or does
not say. While no place is free, and while the process has no handle left, nothing is accepted and nothing is tried:
whoever comes waits in the kernel's queue. Each reason for that is logged when it comes up, and not again while it
lasts.
"""

import asyncio
import contextlib
import contextvars
import logging
import socket
from collections.abc import Callable
from typing import Any

from strandline.broker.sockets.descriptors import listening_sockets

logger = logging.getLogger("strandline.broker")
ACCEPTS_MAX = 8
"""How many are accepted before those who are there have their turn."""
RETRY_S = 1.0
"""How long to wait when the process has no handle left: nobody says when one that is not ours is free again."""
QUIET_S = 60.0
"""For how long a reason must not have come up to be logged again."""
Make = Callable[[Any], asyncio.BaseProtocol]
"""Makes what serves a connection, by the address that it comes from."""


class Entrance:
    """Some listening sockets, and the connections that came in through them; `places` is how many there may be."""

    def __init__(self, places: Callable[[], int]) -> None:
        self._places = places
        self._loop: asyncio.AbstractEventLoop
        self._context: contextvars.Context
        self._sockets: dict[socket.socket, Make] = {}
        self._inside: set[asyncio.BaseProtocol] = set()
        self._coming: set[asyncio.Task[None]] = set()
        self._is_open = True
        self._retry: asyncio.TimerHandle | None = None
        self._paused_s: dict[str, float] = {}

    @property
    def count(self) -> int:
        """How many have a place."""
        return len(self._inside)

    async def listen(self, host: str, port: int, make: Make) -> int:
        """Accept connections at an address, and return the port; `Unavailable` if that cannot be."""
        self._loop, self._context = asyncio.get_running_loop(), contextvars.copy_context()
        sockets = await listening_sockets(host, port)
        for each in sockets:
            self._sockets[each] = make
            if self._is_open:
                self._loop.add_reader(each, self._accept, each)
        return int(sockets[0].getsockname()[1])

    def leave(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the place of a connection to whoever comes next; harmless if it has none."""
        self._inside.discard(protocol)
        self.go_on()

    def go_on(self) -> None:
        """Accept again, if there is a place now."""
        if not self._is_open and self._retry is None and self.count < self._places():
            self._is_open = True
            for each in self._sockets:
                self._context.run(self._loop.add_reader, each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            if self.count >= self._places():
                self._pause(f"there are {self.count}, and there may be no more")
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error.strerror or str(error))
                self._retry = self._loop.call_later(RETRY_S, self._try_again)
                return
            accepted.settimeout(0)
            protocol = self._sockets[listening](address)
            self._inside.add(protocol)
            task = self._loop.create_task(self._take_in(accepted, protocol))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _take_in(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            try:
                await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            except BaseException:
                accepted.close()
                self.leave(protocol)
                raise

    def _pause(self, reason: str) -> None:
        self._is_open = False
        for each in self._sockets:
            self._loop.remove_reader(each)
        now_s = self._loop.time()
        if now_s - self._paused_s.get(reason, -QUIET_S) >= QUIET_S:
            logger.error("No connections are accepted for now: %s", reason)
        self._paused_s[reason] = now_s

    def _try_again(self) -> None:
        self._retry = None
        self.go_on()

    def stop(self) -> None:
        """Listen no more; those who are inside stay."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()

    async def close(self) -> None:
        """Listen no more, and return when everybody who was accepted can be told."""
        self.stop()
        if self._coming:
            await asyncio.wait(self._coming)
