"""Bodies that may be sent again: nothing is lost, and what is kept is bounded."""

import asyncio
from collections.abc import Awaitable, Callable

from strandline.replica.routing.body import ReplayBudget, RequestBody


def reading(*chunks: bytes) -> Callable[[], Awaitable[bytes]]:
    """Return a source of chunks."""
    left = list(chunks)

    async def read() -> bytes:
        return left.pop(0) if left else b""

    return read


async def read_all(body: RequestBody) -> bytes:
    """Return a body from its beginning."""
    return b"".join([chunk async for chunk in body.chunks()])


def test_a_body_within_the_limit_is_sent_again() -> None:
    async def main() -> None:
        budget = ReplayBudget(100)
        body = RequestBody(reading(b"ab", b"cd"), 4, budget, 10)
        assert await read_all(body) == b"abcd"
        assert await read_all(body) == b"abcd"
        assert (body.is_replayable, budget.used) == (True, 4)
        await body.close()
        assert budget.used == 0

    asyncio.run(main())


def test_a_body_beyond_a_limit_is_sent_once_and_keeps_nothing() -> None:
    async def main(budget: ReplayBudget, bytes_max: int) -> None:
        body = RequestBody(reading(b"ab", b"cd", b"ef"), None, budget, bytes_max)
        assert await read_all(body) == b"abcdef"
        assert (body.is_replayable, budget.used) == (False, 0)

    asyncio.run(main(ReplayBudget(100), 3))
    asyncio.run(main(ReplayBudget(3), 100))


def test_a_sender_that_is_cancelled_loses_no_chunk() -> None:
    async def main() -> None:
        arrived: asyncio.Queue[bytes] = asyncio.Queue()
        body = RequestBody(arrived.get, 4, ReplayBudget(100), 10)
        sender = asyncio.create_task(read_all(body))
        await arrived.put(b"ab")
        while body.received < 2:  # noqa: ASYNC110 - the body sends no event
            await asyncio.sleep(0)
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        for chunk in (b"cd", b""):
            await arrived.put(chunk)
        assert await read_all(body) == b"abcd"

    asyncio.run(main())
