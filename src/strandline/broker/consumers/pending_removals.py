"""Removals from a stream that are not durable yet: a failing disk or a power cut may bring the messages back.

Invariants: a consumer's stored state does not drop a removed message before the stream's removal is durable, and never
if that failed. Messages skipped meanwhile stay pending until then.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from strandline.broker.streams import Stream, Ticket
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.storage import is_passed

PASSED_MAX = 100_000
"""If more messages than this are removed at once, later deliveries wait until the removal is durable."""


@dataclass(slots=True)
class Removal:
    """The effect on a consumer of one removal, or of several that become durable together."""

    ticket: Ticket
    announced: list[int] = field(default_factory=list)
    """Removed messages that were outstanding or given up; each gets an advisory."""
    silent: list[int] = field(default_factory=list)
    """The same, without an advisory."""
    unseen: list[Words] = field(default_factory=list)
    """Removed messages ahead of the consumer's position."""
    passed: list[int] = field(default_factory=list)
    """Those that the consumer has passed since."""
    position: int = 0
    """The first sequence after a purge, 0 without one."""
    holds: bool = False
    """Whether deliveries beyond it must wait."""
    is_awaited: bool = False


class PendingRemovals:
    """The removals of a stream that one consumer waits for; `on_wait` is called with the ticket of each."""

    def __init__(self, stream: Stream, on_wait: Callable[[Ticket], None]) -> None:
        self._stream = stream
        self._on_wait = on_wait
        self._removals: deque[Removal] = deque()

    def __len__(self) -> int:
        return len(self._removals)

    def latest(self) -> Removal:
        """Return the record for the stream's latest change."""
        ticket, removals = self._stream.last_ticket, self._removals
        if not removals or removals[-1].ticket is not ticket:
            removals.append(Removal(ticket))
        return removals[-1]

    def wait(self, removal: Removal) -> None:
        """Have the consumer called when a removal is settled."""
        if not removal.is_awaited:
            removal.is_awaited = True
            self._on_wait(removal.ticket)

    def note_unseen(self, unseen: Words, *, by_purge: bool) -> None:
        """Note removed messages ahead of the consumer's position."""
        removal = self.latest()
        removal.unseen.append(unseen)
        if by_purge or len(unseen) > PASSED_MAX:
            removal.holds = True
            self.wait(removal)

    @property
    def holds(self) -> bool:
        """Whether new deliveries wait for a removal."""
        return any(removal.holds for removal in self._removals)

    def pass_over(self, delivered: int) -> list[int]:
        """Return removed messages that a delivery has passed and that may come back."""
        passed: list[int] = []
        for removal in self._removals:
            if not removal.unseen:
                continue
            unseen = np.concatenate(removal.unseen)
            before = unseen <= np.uint64(delivered)
            if before.any():
                over = unseen[before].tolist()
                removal.passed += over
                passed += over
                removal.unseen = [] if before.all() else [unseen[~before]]
                self.wait(removal)
        return passed

    def settled(self) -> list[Removal]:
        """Take the removals that are durable now, in order."""
        removals, found = self._removals, []
        while removals and is_passed(removals[0].ticket):
            found.append(removals.popleft())
        return found

    def clear(self) -> None:
        """Forget all removals."""
        self._removals.clear()
