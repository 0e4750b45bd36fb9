"""What is done for streams beside the server's own thread, because it takes long or waits for a disk that may hang.

Invariants: one errand at a time is under way for a stream. What was called off before it began never begins, and nobody
is told of it. After `close` nothing goes on, so nothing changes below a folder that another server may have taken.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor

from strandline.broker.jetstream.settling import Post
from strandline.broker.streams import Stream

Outcome = Stream | Exception | None


def _forget(outcome: Outcome) -> None:
    del outcome


class Errands:
    """Runs them on the executor, or at once where there is none, and tells on the server's thread what came of them."""

    def __init__(self, post: Post, executor: Executor | None) -> None:
        self._post = post
        self._executor = executor
        self._under_way: dict[str, _Errand] = {}
        self._is_closed = False

    def run(
        self,
        name: str,
        work: Callable[[], Stream | None],
        then: Callable[[Outcome], None],
        drop: Callable[[Outcome], None] = _forget,
    ) -> None:
        """Do something for a stream, then go on with what came of it; `drop` has that if it was called off."""
        if self._is_closed:
            return
        errand = self._under_way[name] = _Errand(work, drop)

        def tell() -> None:
            if self._under_way.get(name) is errand:
                del self._under_way[name]
                then(errand.outcome)

        def run() -> None:
            if errand.run():
                self._post(tell)

        if self._executor is None:
            run()
        else:
            self._executor.submit(run)

    def call_off(self, name: str, patience_s: float | None = None) -> bool:
        """End what is under way for a stream, if that takes no longer than one has patience for; return whether."""
        errand = self._under_way.get(name)
        if errand is not None:
            if not errand.call_off(patience_s):
                return False
            del self._under_way[name]
        return True

    def close(self) -> None:
        """Return when everything is over."""
        self._is_closed = True
        for name in list(self._under_way):
            self.call_off(name)


class _Errand:
    """One of them: it begins once, or never."""

    def __init__(self, work: Callable[[], Stream | None], drop: Callable[[Outcome], None]) -> None:
        self._work = work
        self._drop = drop
        self._turn = threading.Lock()
        self._over = threading.Event()
        self.outcome: Outcome = None

    def run(self) -> bool:
        """Do it, if it was not called off; return whether."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self.outcome = self._work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self.outcome = error
        finally:
            self._over.set()
        return True

    def call_off(self, patience_s: float | None) -> bool:
        """Make sure that it does not begin, or wait until it is over; return whether it is."""
        if not self._turn.acquire(blocking=False):
            if not self._over.wait(patience_s):
                return False
            self._drop(self.outcome)
        return True
