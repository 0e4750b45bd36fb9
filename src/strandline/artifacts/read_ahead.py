"""Items of an iterator that are made in another thread while the ones before them are used.

Invariants: at most `depth` items wait. Errors of the maker are raised where its items are taken, in their place. When
the taker is done, or fails, the maker ends before `read_ahead` returns.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


@contextmanager
def read_ahead(items: Iterable[T], depth: int = 4) -> Iterator[Iterator[T]]:
    """Lend an iterator whose items are made by a thread of its own."""
    maker = _Maker(items, depth)
    maker.start()
    try:
        yield maker.taken()
    finally:
        maker.stop()


class _Maker(threading.Thread, Generic[T]):
    def __init__(self, items: Iterable[T], depth: int) -> None:
        super().__init__(name="strandline-read-ahead", daemon=True)
        self._items = items
        self._made: queue.Queue[T | None] = queue.Queue(depth)
        self._failure: BaseException | None = None
        self._is_given_up = False

    def run(self) -> None:
        try:
            for item in self._items:
                if self._is_given_up:
                    break
                self._made.put(item)
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            self._failure = error
        self._made.put(None)

    def taken(self) -> Iterator[T]:
        while (item := self._made.get()) is not None:
            yield item
        self.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let the thread run out: what it still waits to hand over is thrown away."""
        self._is_given_up = True
        while self.is_alive():
            try:
                self._made.get(timeout=0.05)
            except queue.Empty:
                continue
        self.join()
