"""Events and their listeners: frozen dataclasses and hooks, no metrics backend.

An observer cannot fail the observed: what a listener raises is logged with its traceback and goes no further. Listeners
run in the thread where the event happened, so they should be quick.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; components derive their own."""


Listener = Callable[[Event], None]


class Events:
    """Hands each event to every listener, in the order they subscribed."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners: tuple[Listener, ...] = listeners

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; call what is returned to remove it."""
        self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell every listener."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed on %r", event)
