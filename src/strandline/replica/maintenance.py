"""Maintenance: compaction, snapshots and retention of a replica, each in its time, beside the replicator.

Invariants: every step is safe to repeat and to cut off; an error of the store is kept for `error` and the step comes
again in its time.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.errors import StrandlineError
from strandline.objects import ObjectStore
from strandline.replica.compaction import compact_level, take_snapshot
from strandline.replica.layout import Layout
from strandline.replica.retention import DEFAULT_POLICY, RetentionPolicy, plan_retention, prune

RETENTION_EVERY_S = 300.0


@dataclass(frozen=True)
class MaintenancePolicy:
    """When files are merged and removed. The intervals of levels are litestream's."""

    level_every_s: tuple[float, ...] = (30.0, 300.0, 3600.0)
    snapshot_every_s: float = 86_400.0
    retention: RetentionPolicy = DEFAULT_POLICY


class Maintenance:
    """A thread that maintains one replica, from `start` to `close`."""

    def __init__(self, store: ObjectStore, policy: MaintenancePolicy = MaintenancePolicy()) -> None:  # noqa: B008
        self._store = store
        self._layout = Layout(store)
        self.policy = policy
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: StrandlineError | None = None
        self.done: Counter[str] = Counter()
        """What was done: files made by `level 1` and so on, `snapshots`, files `pruned`, and `errors`."""

    def start(self) -> None:
        """Begin; the first step of each kind comes after its interval."""
        self._thread = threading.Thread(target=self._run, name="strandline-replica-maintenance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the step that is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def compact(self, level: int) -> int:
        """Merge the files of the level below; return how many files were made."""
        files = [file for one in (level - 1, level) for file in self._layout.files(one)]
        made = len(compact_level(self._store, self._layout, files, level))
        self.done[f"level {level}"] += made
        return made

    def snapshot(self) -> bool:
        """Write a snapshot; return False where the last transaction has one."""
        is_made = take_snapshot(self._store, self._layout, self._layout.all_files()) is not None
        self.done["snapshots"] += is_made
        return is_made

    def prune(self) -> int:
        """Remove what the policy does not keep; return how many files went."""
        plan = plan_retention(self._layout.all_files(), datetime.now(UTC), self.policy.retention)
        gone = prune(self._store, plan)
        self.done["pruned"] += gone
        return gone

    def _run(self) -> None:
        steps: list[tuple[float, Callable[[], object]]] = [
            *((every_s, self._level(level)) for level, every_s in enumerate(self.policy.level_every_s, 1)),
            (self.policy.snapshot_every_s, self.snapshot),
            (min(RETENTION_EVERY_S, self.policy.snapshot_every_s), self.prune),
        ]
        due_s = [time.monotonic() + every_s for every_s, _ in steps]
        while not self._stop.wait(max(0.0, min(due_s) - time.monotonic())):
            for number, (every_s, step) in enumerate(steps):
                if due_s[number] <= time.monotonic() and not self._stop.is_set():
                    due_s[number] = time.monotonic() + every_s
                    self._try(step)

    def _level(self, level: int) -> Callable[[], object]:
        return lambda: self.compact(level)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except StrandlineError as error:
            self.error = error
            self.done["errors"] += 1
        else:
            self.error = None
