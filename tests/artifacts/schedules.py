"""Seeded schedules of a fleet over the code of production: requests fail, come late, and others act between any two.

Invariants: everything follows from the seed. Each operation of a process goes through its own view of the store, in
which it may crash before any request, and others may act first: publish, remove, write, or move clocks. After every
operation the pointer has not moved back and names what is there; what a newcomer makes of it is the truth of its
cursor. At the end, without faults, the fleet publishes, and a newcomer has the whole truth.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

from strandline.artifacts import (
    ExportLease,
    Manifest,
    ObjectCell,
    Outcome,
    PointerContended,
    Previous,
    PublishedArtifacts,
    bootstrap_fold,
    export_logical,
    run_export_round,
    take_snapshot,
)
from strandline.artifacts.layout import format_file_key
from strandline.artifacts.staging import remove_tree
from strandline.clock import ManualClock
from strandline.fold import MemoryStore, open_fold, parse_fold_cursor
from strandline.objects import GuardedObjects, MemoryObjects, StoreUnavailable, WriteUnknown
from strandline.sim import SimObjects
from strandline.testing.snapshot_stores import everything
from tests.artifacts.fleet import apply

TTL_S = 100.0
EXPECTED = (StoreUnavailable, WriteUnknown, PointerContended, FileNotFoundError)
"""What a process may be told; each is tried again by a later operation."""
OPERATIONS = 14
NESTED_MAX = 2


class Crashed(BaseException):
    """The process of a view is gone; no handler of errors may go on."""


class Schedule:
    """One schedule: a bucket's writes, three processes with folds, and what they publish."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = Random(seed)
        self._folder = folder
        self._clock = ManualClock()
        self._clocks = [ManualClock() for _ in range(3)]
        self._memory = MemoryObjects(f"schedule-{seed}", clock=self._clock)
        self._sim = SimObjects(seed, fault_rate=self._random.choice([0.0, 0.02, 0.1]), store=self._memory)
        self._writes: list[tuple[bytes, bytes | None]] = []
        self._folds = [(MemoryStore(), [0]) for _ in range(3)]
        self._held: list[Path] = []
        self._paths = 0
        self._depth = 0
        self._rank = -1
        self.done: list[str] = []

    def run(self) -> None:
        """Do some operations, then end without faults."""
        self._write()
        for _ in range(OPERATIONS):
            self._operate()
        self._sim._fault_rate = 0.0  # noqa: SLF001 - the end is calm
        while self._sim._late:  # noqa: SLF001 - what is under way comes first
            self._sim._arrive()  # noqa: SLF001
        self._depth = NESTED_MAX + 1
        self._check()
        self._write()
        self._catch_up(0, len(self._writes))
        assert self._artifacts().publish(self._export(0, None)).outcome is Outcome.PUBLISHED
        self._check()
        self._bootstrap(PublishedArtifacts(self._memory))
        assert self._rank == len(self._writes)

    # Operations

    def _operate(self) -> None:
        which = self._random.choice([self._write, self._round, self._round, self._hold, self._late, self._prune])
        if self._random.random() < 0.2:
            which = self._newcomer
        self._depth += 1
        self.done.append(f"{'  ' * self._depth}{which.__name__}")
        try:
            which()
        except EXPECTED as error:
            self.done.append(f"{'  ' * self._depth}{which.__name__}: {type(error).__name__}")
        except Crashed:
            self.done.append(f"{'  ' * self._depth}{which.__name__}: crashed")
        finally:
            self._depth -= 1
        self._check()

    def _artifacts(self) -> PublishedArtifacts:
        """Return what a process publishes with; it dies for good when it crashes."""
        is_dead, crash_rate = False, self._random.choice([0.0, 0.0, 0.05])

        def before() -> None:
            nonlocal is_dead
            if is_dead or (self._depth <= NESTED_MAX and self._random.random() < crash_rate):
                is_dead = True
                raise Crashed
            if self._depth < NESTED_MAX and self._random.random() < 0.08:
                self._operate()

        return PublishedArtifacts(GuardedObjects(self._sim, before, before))

    def _write(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            value = None if self._random.random() < 0.2 else self._random.randbytes(12)
            self._writes.append((b"key %d" % self._random.randrange(6), value))
        for clock in (self._clock, self._random.choice(self._clocks)):
            clock.advance(self._random.choice([0.0, 1.0, TTL_S, 20 * TTL_S]))

    def _catch_up(self, index: int, revision: int) -> None:
        store, at = self._folds[index]
        if revision > at[0]:
            at[0] = apply(store, at[0], self._writes[at[0] : revision])

    def _export(self, index: int, previous: Previous | None) -> Path:
        self._paths += 1
        path = self._folder / f"export-{self._paths}"
        with closing(take_snapshot(self._folds[index][0])) as snapshot:
            export_logical(snapshot, path, previous=previous)
        return path

    def _chosen(self) -> int:
        """Return a process, after it took some of what was written."""
        index = self._random.randrange(3)
        at = self._folds[index][1][0]
        self._catch_up(index, self._random.randint(max(1, at), len(self._writes)))
        return index

    def _round(self) -> None:
        index, artifacts = self._chosen(), self._artifacts()

        async def export_to(path: Path, previous: Previous | None) -> Manifest:
            with closing(take_snapshot(self._folds[index][0])) as snapshot:
                return export_logical(snapshot, path, previous=previous)

        lease = ExportLease(ObjectCell(artifacts.objects), f"node-{index}", ttl_s=TTL_S, clock=self._clocks[index])
        self._paths += 1
        folder = self._folder / f"round-{self._paths}"
        with ThreadPoolExecutor(1) as thread:  # a round may be between two requests of another
            thread.submit(lambda: asyncio.run(run_export_round(lease, export_to, artifacts, folder))).result()

    def _hold(self) -> None:
        """Export now, for a publication that comes much later."""
        index, artifacts = self._chosen(), self._artifacts()
        self._held.append(self._export(index, artifacts.previous() if self._random.random() < 0.7 else None))

    def _late(self) -> None:
        if self._held:
            self._artifacts().publish(self._held.pop(self._random.randrange(len(self._held))))

    def _prune(self) -> None:
        self._clock.advance(self._random.choice([0.0, 5 * TTL_S]))
        self._memory.put("files/of-now", b"shows the time")
        self._artifacts().prune(self._random.choice([0.0, 4 * TTL_S]))

    def _newcomer(self) -> None:
        self._bootstrap(self._artifacts())

    # What must hold

    def _bootstrap(self, artifacts: PublishedArtifacts) -> None:
        self._paths += 1
        path = self._folder / f"newcomer-{self._paths}"
        if bootstrap_fold(artifacts, path) is None:
            return
        with closing(open_fold(path)) as fold:
            revision = parse_fold_cursor(fold.cursor()).revision
            truth: dict[bytes, bytes] = {}
            for key, value in self._writes[:revision]:
                truth.pop(key, None)
                if value is not None:
                    truth[key] = value
            found = {entry.key: entry.value for entry in everything(fold)[1]}
        assert found == truth
        remove_tree(path)

    def _check(self) -> None:
        artifacts = PublishedArtifacts(self._memory)
        pointer = artifacts.pointer()
        if pointer is None:
            assert self._rank == -1
            return
        assert pointer.rank >= self._rank
        self._rank = pointer.rank
        for file in artifacts.newest().files:
            assert self._memory.head(format_file_key(file)) is not None


def run_schedule(seed: int, folder: Path) -> None:
    """Run one schedule; a failure tells what happened, and how it is run again."""
    schedule = Schedule(seed, folder)
    try:
        schedule.run()
    except BaseException as error:
        again = f"run again: STRANDLINE_SCHEDULE={seed} pytest tests/artifacts/test_schedules.py -k stays_right"
        error.add_note("\n".join([*schedule.done, again]))
        raise
