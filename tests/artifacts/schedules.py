"""Seeded schedules of a fleet over the code of production: requests fail, come late, and others act between any two.

Invariants: everything follows from the seed. Each operation of a process goes through its own view of the store, in
which it may crash before any request, and others may act first: publish, remove, write, or move clocks. After every
operation the pointer has not moved back and names what is there; what a newcomer makes of it is the truth of its
cursor. At the end, without faults, the fleet publishes, and a newcomer has the whole truth.

A schedule has one thread (`in_one_thread`): what production gives to threads is done where it is given, in order. Its
files are not synced, for no power is lost here; tests of kills have real threads, loops and syncs.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, Self, TypeVar

import pytest

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
    importer,
    run_export_round,
    take_snapshot,
    transfers,
)
from strandline.artifacts.layout import Pointer, format_file_key
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
P = ParamSpec("P")
T = TypeVar("T")


class Crashed(BaseException):
    """The process of a view is gone; no handler of errors may go on."""


class _NoThreads:
    """An executor that does at once what it is given; as in a pool, an error waits for who asks for the result."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - a pool keeps a crash too
            done.set_exception(error)
        return done


async def _at_once(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return work(*args, **kwargs)


@contextmanager
def _not_ahead(items: Iterable[T]) -> Iterator[Iterator[T]]:
    yield iter(items)


def in_one_thread(patch: pytest.MonkeyPatch) -> None:
    """Have no threads and no syncs, so that a seed is a schedule, and a quick one."""
    patch.setattr(transfers, "ThreadPoolExecutor", _NoThreads)
    patch.setattr(importer, "read_ahead", _not_ahead)
    patch.setattr(asyncio, "to_thread", _at_once)
    patch.setattr(os, "fsync", lambda _: None)
    patch.setattr(os, "fdatasync", lambda _: None)


def _ran(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of what waits for nothing; it needs no loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("something waited in a schedule without threads")


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
        self._checked: tuple[Pointer, Manifest] | None = None
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
        _ran(run_export_round(lease, export_to, artifacts, folder))

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
        if self._checked is None or self._checked[0] != pointer:
            self._checked = pointer, artifacts.newest()
        assert self._memory.head(pointer.manifest_key) is not None
        for file in self._checked[1].files:
            assert self._memory.head(format_file_key(file)) is not None


def run_schedule(seed: int, folder: Path) -> None:
    """Run one schedule; a failure tells what happened, and how it is run again."""
    schedule = Schedule(seed, folder)
    try:
        schedule.run()
        remove_tree(folder)
    except BaseException as error:
        again = f"run again: STRANDLINE_SCHEDULE={seed} pytest tests/artifacts/test_schedules.py -k stays_right"
        error.add_note("\n".join([*schedule.done, again]))
        raise
