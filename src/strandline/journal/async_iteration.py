"""Iteration for asyncio: each iterator runs in a thread of its own, so that the event loop waits for no disk.

Invariants: batches come in the order of the iterator, one at a time; an abandoned iteration keeps its thread no
longer than `WAIT_S`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from strandline.journal.batch import Batch

WAIT_S = 0.1
"""The longest a thread waits before it checks whether its iteration was abandoned."""


async def in_a_thread(batches: Iterator[Batch]) -> AsyncIterator[Batch]:
    """Yield what an iterator yields."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "strandline-read")
    try:
        while (batch := await loop.run_in_executor(thread, next, batches, None)) is not None:
            yield batch
    finally:
        thread.shutdown(wait=False)


async def follow_in_a_thread(
    offset: int,
    wait: Callable[[int, float], bool],
    scan: Callable[[int], Iterator[Batch]],
    timeout_s: float | None,
    has_ended: Callable[[], bool],
) -> AsyncIterator[Batch]:
    """Yield batches from `offset` on; end when none came for `timeout_s` seconds, or when `has_ended`."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "strandline-follow")
    try:
        while True:
            until = None if timeout_s is None else time.monotonic() + timeout_s
            while True:
                left_s = WAIT_S if until is None else min(WAIT_S, max(0.0, until - time.monotonic()))
                if await loop.run_in_executor(thread, wait, offset, left_s):
                    break
                if has_ended() or (until is not None and time.monotonic() >= until):
                    return
            batches = scan(offset)
            while (batch := await loop.run_in_executor(thread, next, batches, None)) is not None:
                yield batch
                offset = batch.next_offset
    finally:
        thread.shutdown(wait=False)
