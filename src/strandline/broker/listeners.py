"""Functions that are called, on the loop's thread, when something happens to a stream.

Invariants: the listeners of a stream are called in the order in which they were added. A listener that fails is logged;
the other listeners are called, and the stream goes on.
"""

import logging
from collections.abc import Callable
from typing import Generic, ParamSpec

from strandline.broker.routes import Cancel

logger = logging.getLogger("strandline.broker")
P = ParamSpec("P")


class Listeners(Generic[P]):
    """Listeners by stream, and what they are called with."""

    def __init__(self) -> None:
        self._by_stream: dict[str, tuple[Callable[P, object], ...]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_stream.values()))

    def add(self, stream: str, listener: Callable[P, object]) -> Cancel:
        """Call a listener from now on; return the function that ends that."""
        self._by_stream[stream] = (*self._by_stream.get(stream, ()), listener)

        def cancel() -> None:
            remaining = tuple(each for each in self._by_stream.pop(stream, ()) if each is not listener)
            if remaining:
                self._by_stream[stream] = remaining

        return cancel

    def tell(self, stream: str, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the listeners of a stream."""
        for listener in self._by_stream.get(stream, ()):
            try:
                listener(*args, **kwargs)
            except Exception:
                logger.exception("a listener of stream %s failed", stream)
