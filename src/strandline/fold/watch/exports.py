"""Requests for an export of a fold while it is watched, between two batches.

Invariants: an export sees the store with everything received before it, and nothing of it changes meanwhile. What an
export raises goes to its caller, and does not end the watch. No caller waits for ever: when the watch ends, waiting
callers get `Closed`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from strandline.errors import Closed
from strandline.fold.cursor import FoldCursor
from strandline.fold.store import SnapshotStore

T = TypeVar("T")
Exporter = Callable[[SnapshotStore, FoldCursor], Any]
"""A function of the store and its cursor; it runs in the store's thread."""


@dataclass(slots=True)
class ExportRequest:
    """One export with a waiting caller."""

    exporter: Exporter
    reply: asyncio.Future[Any]


class Exports:
    """Requests for exports of one watched fold; hand it to `watch_applied`, and ask in the same event loop."""

    def __init__(self) -> None:
        self._waiting: deque[ExportRequest] = deque()
        self._wake: Callable[[], None] = lambda: None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Tell whether requests are rejected: the watch has ended or is about to."""
        return self._is_closed

    async def request(self, exporter: Callable[[SnapshotStore, FoldCursor], T]) -> T:
        """Store everything received so far, call `exporter` with the store, and return its result."""
        if self._is_closed:
            raise Closed("the fold's exports")
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(ExportRequest(exporter, reply))
        self._wake()
        return await reply

    def close(self) -> None:
        """Reject new and waiting requests; the watch continues."""
        self._is_closed = True
        while self._waiting:
            reply = self._waiting.popleft().reply
            if not reply.done():
                reply.set_exception(Closed("the fold's exports"))

    def attach(self, wake: Callable[[], None]) -> None:
        """Wake the watch on requests."""
        self._wake = wake

    def next(self) -> ExportRequest | None:
        """Return the next request whose caller still waits."""
        while self._waiting:
            request = self._waiting.popleft()
            if not request.reply.done():
                return request
        return None
