"""How far a fold is, put together from what it tells: for a status line, a command, a health check.

Invariants: a `FoldProgress` is a listener for the events of one fold; it may be asked from any thread. What it says of
the bucket is as old as the last look at it.
"""

import threading
from collections import deque
from dataclasses import dataclass
from time import monotonic

from strandline.events import Event
from strandline.fold.events import (
    BatchStored,
    CaughtUp,
    LagMeasured,
    RepairBegan,
    RepairEnded,
    SourceAway,
    StoreFailed,
    WatchBegan,
)

RATE_S = 5.0


@dataclass(frozen=True, slots=True)
class FoldStatus:
    """Where a fold stands; `lag` is None until the bucket was looked at.

    `watches` counts how often a watch was attached, so that all but the first are reconnects or repairs. `trouble` is
    what the fold struggles with now, None if nothing. `is_current` says that it holds what the bucket held when the
    present watch began.
    """

    revision: int
    lag: int | None
    is_current: bool
    is_repairing: bool
    updates: int
    bytes: int
    updates_per_s: float
    repairs: int
    deleted_by_repairs: int
    watches: int
    store_failures: int
    trouble: str | None


class FoldProgress:
    """Listens to a fold's events and sums them up; hand it to `Events`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._revision = self._last = 0
        self._updates = self._bytes = 0
        self._repairs = self._deleted = self._watches = self._store_failures = 0
        self._is_current = self._is_repairing = False
        self._trouble: str | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        with self._changed:
            self._take(event)
            self._changed.notify_all()

    def status(self) -> FoldStatus:
        """Return where the fold stands."""
        with self._changed:
            return FoldStatus(
                revision=self._revision,
                lag=max(0, self._last - self._revision) if self._last else None,
                is_current=self._is_current,
                is_repairing=self._is_repairing,
                updates=self._updates,
                bytes=self._bytes,
                updates_per_s=self._rate(),
                repairs=self._repairs,
                deleted_by_repairs=self._deleted,
                watches=self._watches,
                store_failures=self._store_failures,
                trouble=self._trouble,
            )

    def troubled(self, trouble: str | None) -> None:
        """Note what the fold struggles with, None if it is over."""
        with self._changed:
            self._trouble = trouble
            self._is_current = self._is_current and trouble is None
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until something happened, or the time is over."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _take(self, event: Event) -> None:
        match event:
            case WatchBegan():
                self._watches += 1
                self._is_current, self._trouble = False, None
                self._revision = event.revision
            case BatchStored():
                self._updates += event.updates
                self._bytes += event.bytes
                self._revision, self._trouble = event.revision, None
                self._recent.append((monotonic(), event.updates))
            case CaughtUp():
                self._revision, self._is_current = event.revision, True
            case LagMeasured():
                self._revision, self._last = event.stored, event.last
            case SourceAway():
                self._is_current, self._trouble = False, event.reason
            case RepairBegan():
                self._is_repairing, self._is_current = True, False
            case RepairEnded():
                self._is_repairing = False
                self._repairs += 1
                self._deleted += event.deleted
            case StoreFailed():
                self._store_failures += 1
                self._trouble = event.reason
            case _:
                pass

    def _rate(self) -> float:
        now = monotonic()
        while self._recent and now - self._recent[0][0] > RATE_S:
            self._recent.popleft()
        return sum(updates for _, updates in self._recent) / RATE_S
