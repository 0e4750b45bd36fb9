"""The end of a server, for those who would wait for it from elsewhere.

Invariants: any thread may ask and add. Whoever was added before the end is called at the end, once; whoever comes later
is refused. So nobody waits for a server that is no more.
"""

import threading
from collections.abc import Callable

from strandline.errors import Closed


class ShutdownHooks:
    """Tells of the end of a server; `end` is called on its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()
        self.is_over = False

    def check(self) -> None:
        """Raise `Closed` after the end."""
        if self.is_over:
            raise Closed("the server")

    def add(self, call: Callable[[], None]) -> None:
        """Call somebody at the end; `Closed` if that is over."""
        with self._lock:
            self.check()
            self._waiting.add(call)

    def discard(self, call: Callable[[], None]) -> bool:
        """Call somebody no more; return whether it would still have been called."""
        with self._lock:
            was_waiting = call in self._waiting
            self._waiting.discard(call)
            return was_waiting

    def end(self) -> None:
        """Call everybody; a second time does nothing."""
        with self._lock:
            self.is_over = True
            waiting, self._waiting = self._waiting, set()
        for call in waiting:
            call()
