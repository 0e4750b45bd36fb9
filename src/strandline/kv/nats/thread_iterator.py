"""An iterator in a thread, read by an event loop with back-pressure.

Invariants: the thread makes at most `DEPTH` items ahead of the reader. What it raises is raised by `take`, after
the items before it, unless it was stopped by then. It ends soon after `stop`, which ends what it waits for, and when
the loop is gone; `stop` returns when it has ended.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from strandline.errors import StrandlineError

DEPTH = 8
LOOKS_EVERY_S = 1.0

Item = TypeVar("Item")

IsOver = Callable[[], bool]
"""Tells whether the iterator was stopped."""

Produce = Callable[[IsOver], Iterator[Item]]
"""Makes items in the thread; it checks now and then whether it was stopped."""


class Exhausted(Exception):
    """There are no more items."""


class ThreadIterator(Generic[Item]):
    """A thread that makes items, and a loop that takes them; made in the loop.

    `hang_up` ends what the thread waits for.
    """

    def __init__(self, produce: Produce[Item], name: str, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._room = threading.Semaphore(DEPTH)
        self._stopping = threading.Event()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(produce,), name=name, daemon=True)
        self._thread.start()

    def take_if(self, wanted: Callable[[Item], bool]) -> Item | None:
        """Return the next item if it is there and wanted, else None."""
        if not self._items or not wanted(self._items[0]):
            return None
        self._room.release()
        return self._items.popleft()

    async def take(self) -> Item:
        """Wait for an item and return it; `Exhausted` at the end, or what the thread raised."""
        while not self._items:
            if self._ended.is_set():
                raise self._failure or Exhausted
            self._wake.clear()
            await self._wake.wait()
        self._room.release()
        return self._items.popleft()

    async def stop(self) -> None:
        """Let the thread end and wait for it; what it made can still be taken."""
        self._stopping.set()
        self._hang_up()
        self._room.release()
        await self._ended.wait()
        self._thread.join()

    def _run(self, produce: Produce[Item]) -> None:
        failure: BaseException | None = None
        try:
            for item in produce(self._is_over):
                while not self._room.acquire(timeout=LOOKS_EVERY_S) and not self._is_over():
                    pass
                if self._is_over():
                    break
                self._loop.call_soon_threadsafe(self._give, item)
        except StrandlineError as error:
            failure = None if self._is_over() else error  # what a wait that was ended raises is no news
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who takes
            failure = error
        finally:
            self._end(failure)

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._loop.is_closed()

    def _end(self, failure: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._finish, failure)
        except RuntimeError:
            return  # the loop is gone, and with it every taker

    def _give(self, item: Item) -> None:
        self._items.append(item)
        self._wake.set()

    def _finish(self, failure: BaseException | None) -> None:
        self._failure = failure
        self._ended.set()
        self._wake.set()
