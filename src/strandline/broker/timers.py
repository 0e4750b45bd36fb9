"""Timers of streams, consumers and connections: one heap, in nanoseconds of wall time.

Invariants: an owner has at most one timer, the one that was set last. Its callback is called once when it is due, and
the timer is then gone. A callback that fails does not keep others from theirs. The heap is at most a few times as large
as the number of owners, however often they set their timers.
"""

import heapq
import logging
from collections.abc import Callable, Hashable
from itertools import count

logger = logging.getLogger("strandline.broker")
STALE_MIN = 1_000
"""So many entries that no longer count are not worth a look."""


class Timers:
    """Times by owner."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        """Times and numbers, not owners, so that a stale entry keeps no owner in memory."""
        self._owners: dict[int, Hashable] = {}
        self._due: dict[Hashable, tuple[int, int, Callable[[int], None]]] = {}
        self._numbers = count()

    def set(self, owner: Hashable, due_ns: int | None, call: Callable[[int], None]) -> None:
        """Set the timer of an owner, in place of its earlier one; None clears it."""
        known = self._due.get(owner)
        if due_ns is None:
            if known is not None:
                del self._due[owner], self._owners[known[1]]
            return
        if known is not None and known[0] == due_ns:
            return
        if known is not None:
            del self._owners[known[1]]
        number = next(self._numbers)
        self._due[owner] = (due_ns, number, call)
        self._owners[number] = owner
        heapq.heappush(self._heap, (due_ns, number))
        if len(self._heap) > STALE_MIN + 4 * len(self._due):
            self._heap = [(due_ns, number) for due_ns, number, _ in self._due.values()]
            heapq.heapify(self._heap)

    @property
    def next_ns(self) -> int | None:
        """The earliest time, None if there is none."""
        heap, owners = self._heap, self._owners
        while heap:
            due_ns, number = heap[0]
            if number in owners:
                return due_ns
            heapq.heappop(heap)
        return None

    def run(self, now_ns: int) -> None:
        """Call the callbacks that are due, once; timers that they set wait for the next run."""
        ready = []
        while (due_ns := self.next_ns) is not None and due_ns <= now_ns:
            owner = self._owners.pop(heapq.heappop(self._heap)[1])
            ready.append(self._due.pop(owner)[2])
        for call in ready:
            try:
                call(now_ns)
            except Exception:
                logger.exception("timer callback failed")
