"""Ports for servers of tests: free, and still free when the server binds them.

Invariants: no port is one that the kernel gives to outgoing connections. Workers of a run take them from ranges of
their own, and a process does not give one twice before its range is through, so that a server which starts slowly, or
is down for a while, finds its port free.
"""

import os
import random
import socket
from collections.abc import Iterator, Mapping
from itertools import cycle

_FIRST, _LAST = 11_000, 32_000


class Given:
    """The ports of this process, one after another, from a random one on; a fork begins anew."""

    def __init__(self) -> None:
        self._pid = 0
        self._ports: Iterator[int] = iter(())

    def __next__(self) -> int:
        if self._pid != os.getpid():
            mine = range_of(os.environ)
            at = random.SystemRandom().randrange(len(mine))  # hypothesis seeds the common one, in every worker alike
            self._ports = cycle((*mine[at:], *mine[:at]))
            self._pid = os.getpid()
        return next(self._ports)


_given = Given()


def range_of(environ: Mapping[str, str]) -> range:
    """Return the ports of the worker that has this environment."""
    worker, count = environ.get("PYTEST_XDIST_WORKER", "gw0"), int(environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    size = (_LAST - _FIRST) // count
    first = _FIRST + size * (int(worker.removeprefix("gw")) % count)  # a worker that replaces one has a later number
    return range(first, first + size)


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and stay so until a server of this process takes them."""
    found: list[int] = []
    while len(found) < count:
        port = next(_given)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
