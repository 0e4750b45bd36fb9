"""The memory twin's watch: a queue that the log fills, and that catches up from the log after a break.

Invariants: what was handed out is never handed out again, and nothing is skipped: a watch that was cut off goes on
after its last revision if the log still reaches back there, and fails with `CursorExpired` if not.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np

from strandline.errors import Closed, StrandlineError
from strandline.kv.entries import UpdateBatch, UpdateKind
from strandline.kv.errors import BucketNotFound, BucketPurged, BucketReplaced, CursorExpired
from strandline.kv.memory_log import MemoryLog, Record
from strandline.kv.watch_forms import IterableWatch
from strandline.nats.read_plan import Overrun
from strandline.protocol.windows import resume_window_ok

UPDATES_MAX = 4096


def to_batch(records: list[Record]) -> UpdateBatch:
    """Return records as columns."""
    return UpdateBatch.from_columns(
        [record.key for record in records],
        np.array([record.kind for record in records], np.uint8),
        np.array([record.revision for record in records], np.uint64),
        [record.value for record in records],
        np.array([_expiry(record) for record in records], np.uint64),
    )


def _expiry(record: Record) -> int:
    if record.kind is UpdateKind.PUT:
        return record.expires_ns
    return record.created_ns if record.is_marker else 0


class MemoryWatch(IterableWatch):
    """A watch over some keys of a `MemoryLog`; `position` is the last revision it knows of.

    With `Overrun.SENTINEL` it knows of every update as it is written; with `PROBE`, when it waits for more; with
    `UNWATCHED`, only of its own. What it does not know of counts as missed if it is removed while it is cut off.
    """

    def __init__(
        self,
        log: MemoryLog,
        wanted: Callable[[str], bool],
        position: int | None,
        overrun: Overrun = Overrun.SENTINEL,
    ) -> None:
        self._overrun = overrun
        self._handed_out = 0
        self._log = log
        self._wanted = wanted
        self._queue: deque[Record] = deque()
        self._wake = asyncio.Event()
        self._failure: StrandlineError | None = None
        self._is_cut = False
        self.position = 0 if position is None else position
        if position is None:
            self._queue.extend(record for record in log.latest() if wanted(record.key))
            self.position = log.last_revision
        else:
            self._catch_up()
            if self._failure is not None:
                raise self._failure
        self._start_revision = log.last_revision
        self._was_filled = log.is_filled
        log.listeners.append(self)

    @property
    def is_current(self) -> bool:
        """Tell whether everything that was there when the watch began was handed out."""
        return not self._queue or self._queue[0].revision > self._start_revision

    @property
    def frontier(self) -> int:
        """Return the revision up to which everything that it watches was handed out."""
        told = self._queue[0].revision - 1 if self._queue else self.position
        self._handed_out = max(self._handed_out, told if self.is_current else 0)
        return self._handed_out

    async def batch(self, updates_max: int = UPDATES_MAX) -> UpdateBatch:
        """Wait for updates and return those that are there, at least one; `Closed` after `stop`."""
        while not self._queue:
            if self._failure is not None:
                raise self._failure
            if self._overrun is Overrun.PROBE and not self._is_cut:
                self.position = self._log.last_revision
            self._wake.clear()
            await self._wake.wait()
        taken = [self._queue.popleft() for _ in range(min(updates_max, len(self._queue)))]
        return to_batch(taken)

    async def stop(self) -> None:
        """End the watch; a second time does nothing."""
        self._queue.clear()
        self.fail(Closed("the watch"))

    def cut(self) -> None:
        """Stop hearing of updates, as when the connection is lost."""
        self._is_cut = True

    @property
    def name(self) -> str:
        """Return the name of the bucket that it watches."""
        return self._log.name

    def mend(self, log: MemoryLog | None) -> None:
        """Hear of updates again, those in between first; the watch fails if the log has lost some, or is another."""
        self._is_cut = False
        if log is None:
            self.fail(BucketNotFound(self.name))
        elif log is not self._log:
            self.fail(BucketReplaced(self.name, self.position, log.first_revision, log.last_revision))
        elif log.is_purged and self._was_filled:
            self.fail(BucketPurged(self.name, self.position, log.first_revision, log.last_revision))
        elif self._failure is None:
            self._catch_up()
        self._wake.set()

    def lose(self, failure: StrandlineError) -> None:
        """Hear that the bucket is gone or was emptied, unless cut off."""
        if not self._is_cut:
            self.fail(failure)

    def fail(self, failure: StrandlineError) -> None:
        """End the watch with an error, told after what is queued."""
        self._failure = self._failure or failure
        if self in self._log.listeners:
            self._log.listeners.remove(self)
        self._wake.set()

    def _catch_up(self) -> None:
        first, last = self._log.first_revision, self._log.last_revision
        if not resume_window_ok(self.position, first) or self.position > last:
            self.fail(CursorExpired(self._log.name, self.position, first, last))
            return
        self._queue.extend(record for record in self._log.after(self.position) if self._wanted(record.key))
        self.position = last

    def tell(self, record: Record) -> None:
        """Hear of an update, unless cut off."""
        if self._is_cut:
            return
        self._was_filled = True
        is_wanted = self._wanted(record.key)
        if is_wanted or self._overrun is Overrun.SENTINEL:
            self.position = record.revision
        if is_wanted:
            self._queue.append(record)
            self._wake.set()
