"""What the system gives a server: ports to listen on, and handles for its connections and files."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from strandline.errors import Unavailable

BACKLOG = 4_096
"""How many connections the kernel lets wait, if the machine's own limit (`somaxconn`) is not lower."""
HANDLES_MAX = 1 << 30
REFUSED_MAX = 64
MONITORS_MAX = 256
FILES_MIN = 8
_LISTEN_HINTS = {
    errno.EADDRINUSE: "another server is there; port -1 takes a free one",
    errno.EACCES: "ports below 1024 are for root",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    socket.EAI_NONAME: "this machine has no such address",
}


class Shares(NamedTuple):
    """How many connections and files of each kind the process's handles are enough for."""

    clients: int
    refused: int
    """Clients beyond those who may stay: they are told so, which some have to shake hands for."""
    monitors: int
    files: int
    """Those of streams and consumers that may be open at once; the rest is for what is open for a moment."""


def shares_of_handles() -> Shares:
    """Share out three quarters of the handles; files have the rest, as a stream needs them to go on."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    handles = soft if soft != resource.RLIM_INFINITY else HANDLES_MAX
    few = max(1, handles // 16)
    refused, monitors = min(REFUSED_MAX, few), min(MONITORS_MAX, few)
    files = max(FILES_MIN, handles // 4 - few)
    return Shares(max(1, handles - handles // 4 - refused - monitors), refused, monitors, files)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at an address, an empty one for all of the machine; `Unavailable` if there are none.

    All have the same port, a free one if that is asked for.
    """
    loop = asyncio.get_running_loop()
    with _listen_errors(host, port):
        found = await loop.getaddrinfo(host or None, max(port, 0), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bind([(family, address) for family, _, _, _, address in found])


def _bind(places: list[tuple[socket.AddressFamily, Any]]) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, (host, port, *more) in dict.fromkeys(places):
            own_port = bound[0].getsockname()[1] if bound else port
            try:
                bound.append(socket.create_server((host, own_port, *more), family=family, backlog=BACKLOG))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:  # a machine may do without IPv6
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


@contextmanager
def _listen_errors(host: str, port: int) -> Iterator[None]:
    """Raise `Unavailable` where a port cannot be had, with what to do."""
    try:
        yield
    except OSError as error:
        place = f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - only shown
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        text = f'Error listening on port: {place}, "listen tcp {place}: bind: {reason.lower()}"'  # as tools match it
        raise Unavailable(text, hint=_LISTEN_HINTS.get(error.errno or 0)) from error
