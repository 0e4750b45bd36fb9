"""The body of a request that may have to be sent more than once.

Invariants: a chunk is read from the client once, and never lost when a sender is cancelled; what is kept for a second
sending stays within a limit for the request and one for all requests; a body is replayable only while every byte that
was read is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

Source = Callable[[], Awaitable[bytes]]
"""Returns the next chunk of a body, and nothing at its end."""


class ReplayBudget:
    """How many bytes of bodies all requests together keep."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._bytes_max = bytes_max

    @property
    def used(self) -> int:
        """Return how many bytes are kept."""
        return self._bytes_max - self._free

    def take(self, size: int) -> bool:
        """Take a part of the budget, if there is so much."""
        if size > self._free:
            return False
        self._free -= size
        return True

    def give_back(self, size: int) -> None:
        """Return a part of the budget."""
        self._free += size


class RequestBody:
    """A body that is read as it is sent; `size` is None where only its end tells."""

    def __init__(self, source: Source, size: int | None, budget: ReplayBudget, bytes_max: int) -> None:
        self.size = size
        self.received = 0
        self._source = source
        self._budget = budget
        self._bytes_max = bytes_max
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._ended = size == 0
        self._pending: asyncio.Future[bytes] | None = None

    @property
    def is_replayable(self) -> bool:
        """Return whether the body can be sent from its beginning."""
        return self._kept is not None

    @property
    def is_small(self) -> bool:
        """Return whether the body will be replayable, however far it is sent; it is if the budget allows."""
        return self.size is not None and self.size <= self._bytes_max

    async def chunks(self) -> AsyncIterator[bytes]:
        """Return the body from its beginning."""
        assert self._kept is not None or not self.received  # noqa: S101 - the caller looked
        for chunk in tuple(self._kept or ()):
            yield chunk
        while not self._ended:
            chunk = await self._next()
            if chunk:
                yield chunk

    def drop_kept(self) -> None:
        """Keep nothing from here on: the body is not sent again."""
        self._kept = None
        self._budget.give_back(self._kept_bytes)
        self._kept_bytes = 0

    async def close(self) -> None:
        """Stop reading."""
        self.drop_kept()
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)

    async def _next(self) -> bytes:
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._source())
        chunk = await asyncio.shield(self._pending)  # a sender that is cancelled leaves it for the next one
        self._pending = None
        self._ended = not chunk
        self.received += len(chunk)
        self._keep(chunk)
        return chunk

    def _keep(self, chunk: bytes) -> None:
        if self._kept is None:
            return
        if self._kept_bytes + len(chunk) > self._bytes_max or not self._budget.take(len(chunk)):
            self.drop_kept()
            return
        self._kept.append(chunk)
        self._kept_bytes += len(chunk)
