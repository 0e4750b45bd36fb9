"""What restores do beside the server's own thread: putting streams in their place, and removing what is not wanted.

Invariants: each has a thread of its own, because closing and opening streams waits for the executor. None of them is
left after `close`, so nothing changes below a folder that another server may have taken since; and nobody is told then.
"""

import threading
from collections.abc import Callable

Done = Callable[[Exception | None], None]


class Beside:
    """Does things on other threads, or at once if it `is_alone`, and tells on the server's own what became of them."""

    def __init__(self, post: Callable[[Callable[[], None]], object], is_alone: Callable[[], bool]) -> None:
        self._post = post
        self._is_alone = is_alone
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def do(self, name: str, work: Callable[[], None], done: Done) -> None:
        """Do something, and call somebody with what went wrong, if anything did."""
        if self._is_alone():
            done(_failure(work))
            return

        def go() -> None:
            failure = _failure(work)
            self._post(lambda: None if self._is_closed else done(failure))

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=go, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Return when everything is over."""
        self._is_closed = True
        for thread in self._threads:
            thread.join()


def _failure(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whoever asked for it is told
        return error
    return None
