"""Callbacks for the shutdown of a server, for callers in other threads that wait for an answer of it.

Invariants: any thread may add a callback. A callback that was added before the shutdown is called once, at the
shutdown; adding one later raises. So no caller waits for a server that has ended.
"""

import threading
from collections.abc import Callable

from strandline.errors import Closed


class ShutdownHooks:
    """Calls the callbacks; `end` is called on the server's own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()
        self.is_over = False

    def check(self) -> None:
        """Raise `Closed` after the end."""
        if self.is_over:
            raise Closed("the server")

    def add(self, call: Callable[[], None]) -> None:
        """Call a function at the shutdown; `Closed` if that is over."""
        with self._lock:
            self.check()
            self._waiting.add(call)

    def discard(self, call: Callable[[], None]) -> bool:
        """Remove a function; return whether it was still waiting for its call."""
        with self._lock:
            was_waiting = call in self._waiting
            self._waiting.discard(call)
            return was_waiting

    def end(self) -> None:
        """Call all functions; a second call does nothing."""
        with self._lock:
            self.is_over = True
            waiting, self._waiting = self._waiting, set()
        for call in waiting:
            call()
