"""An append log on a simulated disk, and what may be found there after whatever happens to it."""

import errno
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from strandline.errors import CommitFailed, Damaged, Poisoned, StorageRefused
from strandline.fold import AppendLogStore, FoldEntry, repair_append_log
from strandline.journal import SYNCED, Durability
from strandline.kv import NO_CURSOR, WatchCursor, format_revision
from strandline.sim import SimDisk
from strandline.sim.disk import Fault
from strandline.testing.snapshot_stores import changes
from tests import tally

PLACE = Path("/folds/fold.log")
CHANGES = frozenset({"create", "pwritev", "sync", "truncate", "rename", "remove", "sync_folder"})
Rows = list[tuple[bytes, bytes | None]]


@dataclass
class Step:
    """One batch: the state after it, and after each of its records in the order in which they are written."""

    cursor: WatchCursor
    state: dict[bytes, FoldEntry]
    parts: list[dict[bytes, FoldEntry]] = field(default_factory=list)


class StoreModel:
    """A store, its disk, and every state that it went through."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.store: AppendLogStore | None = None
        self.steps = [Step(NO_CURSOR, {})]
        self.acknowledged = 0
        """The last step that `apply` returned from."""
        self.certain = 0
        """The last step that a power cut must leave."""
        self.revision = 0
        self.sync = SYNCED

    def open(self, sync: Durability, compact_bytes: int) -> bool:
        """Open it, with a repair if it asks for one; False if the disk refuses."""
        self.sync = sync
        try:
            try:
                self.store = AppendLogStore.open(PLACE, sync=sync, compact_bytes=compact_bytes, disk=self.disk)
            except Damaged:
                assert repair_append_log(PLACE, disk=self.disk) is not None
                self.store = AppendLogStore.open(PLACE, sync=sync, compact_bytes=compact_bytes, disk=self.disk)
        except StorageRefused:
            self.store = None
            return False
        return True

    def look(self, least: int) -> None:
        """Find the step that the store stands at, which must be one from `least` on; all before it is forgotten."""
        assert self.store is not None
        cursor, state = self.store.cursor(), {found.key: found for found in self.store.range()}
        for at in range(len(self.steps) - 1, least - 1, -1):
            after = self.steps[at + 1].parts if at + 1 < len(self.steps) else []
            if cursor == self.steps[at].cursor and state in (self.steps[at].state, *after):
                break
        else:
            raise AssertionError(f"nothing from step {least} on is like cursor {cursor!r} with {state}")
        del self.steps[at + 1 :]
        self.steps.append(Step(cursor, state))
        self.acknowledged = len(self.steps) - 1
        if self.sync is SYNCED:
            self.certain = self.acknowledged

    def apply(self, rows: Rows, *, with_cursor: bool) -> None:
        """Apply a batch, which may fail."""
        assert self.store is not None
        batch, cursor = changes(self.revision + 1, *rows)
        cursor = cursor if with_cursor else NO_CURSOR
        step = self._step(rows, cursor)
        try:
            self.store.apply(batch, cursor)
        except CommitFailed:
            self.steps.append(step)
            with pytest.raises(Poisoned):
                self.store.apply(batch, cursor)
            return
        except Poisoned:
            return
        self.steps.append(step)
        self.acknowledged = len(self.steps) - 1
        if self.sync is SYNCED:
            self.certain = self.acknowledged

    def _step(self, rows: Rows, cursor: WatchCursor) -> Step:
        before = self.steps[self.acknowledged]
        state, parts = dict(before.state), []
        last = {key: (at, value) for at, (key, value) in enumerate(rows, self.revision + 1)}
        self.revision += len(rows)
        for key, (at, value) in sorted(last.items(), key=lambda row: (row[1][1] is None, row[1][0])):
            if value is None:
                state.pop(key, None)
            else:
                state[key] = FoldEntry(key, value, format_revision(at))
            parts.append(dict(state))
        return Step(cursor or before.cursor, state, parts)

    def settle(self) -> None:
        """Compact, which may fail; afterwards everything is certain."""
        assert self.store is not None
        try:
            self.store.settle()
        except Poisoned:
            return
        self.certain = self.acknowledged

    def close(self) -> None:
        """Close it properly, which may fail."""
        assert self.store is not None
        with suppress(StorageRefused):
            self.store.close()
        self.store = None

    def kill(self) -> None:
        """End the process: what was written is seen."""
        self.disk.kill()
        self.store = None

    def crash(self, random: Random) -> None:
        """Cut the power: what was synced is seen."""
        tally.count(tally.POWER_LOSSES)
        self.disk.crash(random)
        self.store = None
        self.acknowledged = self.certain

    def fail(self, countdown: int, operations: frozenset[str] = CHANGES) -> None:
        """Let an operation fail."""
        self.disk.fault = Fault(operations, countdown, errno.EIO)
