"""What has gone from a stream, while that is not durable yet: a disk that fails, or a power cut, may bring it back.

Invariants: what a consumer keeps says of no message that it is done with because it went, before the stream's own
change is durable, and never if that failed. What is passed over meanwhile stays the consumer's until then.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from strandline.broker.streams import Stream, Ticket
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.storage import is_passed

PASSED_MAX = 100_000
"""When more messages than that go at once, what comes after them waits until they are gone for good."""


@dataclass(slots=True)
class Change:
    """What one change of the stream, or a few that become durable together, means to a consumer."""

    ticket: Ticket
    told: list[int] = field(default_factory=list)
    """What was outstanding, or given up, and went."""
    untold: list[int] = field(default_factory=list)
    """The same, of which nobody is told."""
    unseen: list[Words] = field(default_factory=list)
    """What went before the consumer came to it."""
    passed: list[int] = field(default_factory=list)
    """What it has passed over since."""
    position: int = 0
    """Where the stream begins after a purge; 0 if there was none."""
    holds: bool = False
    """Whether nothing beyond it is delivered yet."""
    is_awaited: bool = False


class Leaving:
    """The changes of a stream that one consumer waits for; `on_wait` is called with the ticket of each."""

    def __init__(self, stream: Stream, on_wait: Callable[[Ticket], None]) -> None:
        self._stream = stream
        self._on_wait = on_wait
        self._changes: deque[Change] = deque()

    def __len__(self) -> int:
        return len(self._changes)

    def latest(self) -> Change:
        """Return the change that the stream made last."""
        ticket, changes = self._stream.last_ticket, self._changes
        if not changes or changes[-1].ticket is not ticket:
            changes.append(Change(ticket))
        return changes[-1]

    def wait(self, change: Change) -> None:
        """Have the consumer go on when a change is settled."""
        if not change.is_awaited:
            change.is_awaited = True
            self._on_wait(change.ticket)

    def saw_go(self, unseen: Words, *, by_purge: bool) -> None:
        """Note messages that went before the consumer came to them."""
        change = self.latest()
        change.unseen.append(unseen)
        if by_purge or len(unseen) > PASSED_MAX:
            change.holds = True
            self.wait(change)

    @property
    def holds(self) -> bool:
        """Whether nothing new is delivered until something is settled."""
        return any(change.holds for change in self._changes)

    def pass_over(self, delivered: int) -> list[int]:
        """Return what was passed over by a delivery, and may come back."""
        passed: list[int] = []
        for change in self._changes:
            if not change.unseen:
                continue
            unseen = np.concatenate(change.unseen)
            before = unseen <= np.uint64(delivered)
            if before.any():
                over = unseen[before].tolist()
                change.passed += over
                passed += over
                change.unseen = [] if before.all() else [unseen[~before]]
                self.wait(change)
        return passed

    def settled(self) -> list[Change]:
        """Return the changes that are durable now, in order, and wait for them no more."""
        changes, found = self._changes, []
        while changes and is_passed(changes[0].ticket):
            found.append(changes.popleft())
        return found

    def clear(self) -> None:
        """Wait for nothing."""
        self._changes.clear()
