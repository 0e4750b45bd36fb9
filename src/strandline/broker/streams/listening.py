"""Who is told what a stream lets go of.

Invariants: everybody is told, in order, whatever becomes of others; what goes wrong with one of them is not the
stream's failure.
"""

import logging
from collections.abc import Callable

from strandline.broker.streams.state import Removed

Listener = Callable[[Removed], None]
logger = logging.getLogger("strandline.broker")


class Listeners:
    """Those who listen to one stream."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell somebody from now on; return what ends that."""
        self._all = [*self._all, listener]

        def cancel() -> None:
            self._all = [each for each in self._all if each is not listener]

        return cancel

    def tell(self, removed: Removed) -> None:
        """Tell everybody of messages that went."""
        for listener in self._all:
            try:
                listener(removed)
            except Exception:
                logger.exception("who listens to a stream failed when messages went")
