"""Idle connections: each is used by one thread at a time, and by the process that opened it only.

A connection is taken, used and given back, so there are as many as ever worked at once. After a fork the child leaves
the parent's connections alone, unclosed: closing one would drop the parent's locks or end its session.
"""

import os
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.errors import Closed

C = TypeVar("C")

_abandoned: list[object] = []


class Pool(Generic[C]):
    """Connections that `make` opens and `end` closes; a deque is atomic, so a fork inherits no lock."""

    def __init__(self, what: str, make: Callable[[], C], end: Callable[[C], None]) -> None:
        self._what = what
        self._make = make
        self._end = end
        self._pid = os.getpid()
        self._idle: deque[C] = deque()
        self._closed = False

    def take(self) -> tuple[C, bool]:
        """Return a connection, and whether it is a new one; `Closed` after `close`."""
        if self._closed:
            raise Closed(self._what)
        if self._pid != os.getpid():
            _abandoned.append(self._idle)
            self._idle = deque()
            self._pid = os.getpid()
        try:
            return self._idle.pop(), False
        except IndexError:
            return self._make(), True

    def give_back(self, connection: C) -> None:
        """Return a connection to the pool."""
        self._idle.append(connection)
        if self._closed:
            self._end_idle()

    def end(self, connection: C) -> None:
        """Close a broken connection."""
        self._end(connection)

    def close(self) -> None:
        """Close the idle connections now and the others when they are given back; twice is harmless."""
        self._closed = True
        if self._pid == os.getpid():
            self._end_idle()

    def _end_idle(self) -> None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._end(connection)
