"""Who hears of streams on the server's own thread: watches of buckets in this process.

Invariants: a listener that fails disturbs neither the others nor the stream.
"""

import logging
from collections.abc import Callable

from strandline.broker.routes import Cancel

logger = logging.getLogger("strandline.broker")


class Listeners:
    """Calls them, by stream."""

    def __init__(self) -> None:
        self._by_stream: dict[str, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_stream.values()))

    def add(self, name: str, heard: Callable[[], None]) -> Cancel:
        """Call somebody when something new in a stream is durable, when it is opened anew, and when it goes."""
        self._by_stream.setdefault(name, []).append(heard)

        def cancel() -> None:
            listeners = self._by_stream.get(name, [])
            if heard in listeners:
                listeners.remove(heard)
            if not listeners:
                self._by_stream.pop(name, None)

        return cancel

    def tell(self, name: str) -> None:
        """Call those of a stream."""
        for heard in tuple(self._by_stream.get(name, ())):
            try:
                heard()
            except Exception:
                logger.exception("somebody who listens to stream %s failed", name)
