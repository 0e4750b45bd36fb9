"""Changes, as server-sent events: each names the kinds of parts that have something new.

    event: changed
    data: ["findings", "runs"]

A page that shows one of them loads itself again. So an event holds nothing that a page would not show, and one that is
lost is made up for by the next.

Invariants: a slow browser delays no other: what it has missed is one event, however much that was; all streams end when
the site does.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator

HEARTBEAT_S = 15.0
RETRY_MS = 2_000


class _Listener:
    """One browser: the kinds that it has not been told of."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.kinds: set[str] = set()
        self.wake = asyncio.Event()


class LiveFeed:
    """Tells browsers of changes; `changed` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[_Listener] = set()
        self._over = False

    @property
    def listeners(self) -> int:
        """Return how many browsers listen."""
        with self._lock:
            return len(self._listeners)

    def changed(self, *kinds: str) -> None:
        """Tell all browsers that parts have changed."""
        with self._lock:
            for one in self._listeners:
                one.kinds.update(kinds)
                one.loop.call_soon_threadsafe(one.wake.set)

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            self._over = True
            for one in self._listeners:
                one.loop.call_soon_threadsafe(one.wake.set)

    async def events(self) -> AsyncIterator[str]:
        """Yield the text of a stream of events, until the site ends."""
        listener = _Listener(asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
        try:
            yield f"retry: {RETRY_MS}\nevent: hello\ndata: []\n\n"
            while not self._over:
                try:
                    await asyncio.wait_for(listener.wake.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                listener.wake.clear()
                with self._lock:
                    kinds, listener.kinds = sorted(listener.kinds), set()
                if kinds:
                    yield f"event: changed\ndata: {json.dumps(kinds)}\n\n"
        finally:
            with self._lock:
                self._listeners.discard(listener)
