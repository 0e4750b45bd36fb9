"""A process that works on a run, and says on its standard output what it was told.

    python -m tests.pipeline.child <address> <worker> <items> <seed> <patience>

It says `ready` before it begins and `writing` before it commits a page, and each time waits for a byte on its standard
input; one that has ended allows everything. It says one line for each answer after it came: `claimed`, `found`, `done`,
`checkpointed`, `renewed`, `completed`, `parked`, `split`. Behind each stand shard, fence, the time before it was asked
for (of `claimed`: after), and the items it is about. So whoever kills the process knows what must be there. A worker
that lost its shard says `lost` and claims another. A typed error ends the process with status 3; one with patience asks
again, so many times.

Time stands still, except that it flies to the end of the first lease while nothing else can be claimed, and sometimes
for no reason: so the shards of a killed worker are claimed by the next at once, and those of a living one are taken
from it, which makes it a zombie.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import TypeVar

import apsw

from strandline.clock import ManualClock
from strandline.errors import Conflict, StrandlineError, Unavailable, UnknownOutcome
from strandline.pipeline.commit import commit_page
from strandline.pipeline.coordination import NoneAvailable, Throttled
from strandline.pipeline.coordination.coordinator import LEASE_TTL_NS
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.held_shard import HeldShard, claim
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import LedgerRecord
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary
from strandline.pipeline.stores import Stores, open_stores
from strandline.protocol.errors import LeaseLost, RunExists, RunNotFound, RunNotInitializing, RunTerminal, ShardTerminal
from strandline.protocol.operations import op_id
from strandline.protocol.runs import RunStatus
from strandline.protocol.shards import OpKind, ParkReason, ShardSpec, ShardStatus, within
from strandline.protocol.splits import ResidualPlan
from tests.pipeline.rows import POLICY
from tests.pipeline.scanned import RUN, key, page, shards

T = TypeVar("T")
Say = Callable[..., None]
TYPED = 3
_NAP_S = 0.02


def say(*words: object) -> None:
    """Write a line with one system call, so that it is whole or not there."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def say_and_ask(*words: object) -> None:
    """Say something; before a page, wait for a byte of standard input. One that has ended allows everything."""
    say(*words)
    if words[0] in ("ready", "writing"):
        os.read(0, 1)


@contextmanager
def told(say: Say, what: str, held: HeldShard, *words: object) -> Iterator[None]:
    """Say what was done with a shard, and since when it was being done, if it was."""
    before = time.monotonic_ns()
    yield
    say(what, held.lease.shard, held.lease.fence, before, *words)


class Telling:
    """The three stages of a page's commit, each of which says when it is durable."""

    def __init__(self, say: Say, stores: Stores, held: HeldShard, numbers: Sequence[int]) -> None:
        self._say = say
        self._stores = stores
        self._held = held
        self._numbers = numbers

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        with told(self._say, "found", self._held, *self._numbers):
            return self._stores.findings.upsert_batch(batch)

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        with told(self._say, "done", self._held, *self._numbers):
            return self._stores.ledger.batch_upsert(records, after=after)

    def checkpoint(self, boundary: Boundary, *, after: LedgerReceipt) -> CheckpointReceipt:
        with told(self._say, "checkpointed", self._held, self._numbers[-1]):
            return self._held.checkpoint(boundary, after=after)

    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        return self._stores.ledger.batch_get(tenant, policy, ovids)

    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        return self._stores.ledger.list_done_hashes(tenant, policy)


class Worker:
    """Claims shards, commits their pages, and now and then renews, splits or parks one."""

    def __init__(
        self, stores: Stores, clock: ManualClock, number: int, items: int, seed: int, say: Say, patience: int = 0
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._number = number
        self._items = items
        self._random = Random(seed)
        self._say = say
        self._patience = patience

    def work(self) -> None:
        """Work until nothing is left, then end the run."""
        coordinator = self._stores.coordinator
        self._patiently(self._begin)
        while self._patiently(lambda: coordinator.get_run(RUN)).status == RunStatus.ACTIVE:
            held = self._patiently(self._claim)
            if held is not None:
                try:
                    self._scan(held)
                except (LeaseLost, ShardTerminal) as lost:
                    self._say("lost", held.lease.shard, held.lease.fence, type(lost).__name__)
        self._say("over")

    def _begin(self) -> None:
        coordinator, now = self._stores.coordinator, self._clock.now_ns()
        try:
            run = coordinator.get_run(RUN)
        except RunNotFound:
            with suppress(RunExists):
                coordinator.create_run(now, RUN, 1)
            run = coordinator.get_run(RUN)
        if run.status == RunStatus.INITIALIZING:
            with suppress(RunNotInitializing):
                coordinator.register_shards(now, RUN, shards(self._items), 2)

    def _claim(self) -> HeldShard | None:
        if self._random.random() < 0.5:
            self._fly(LEASE_TTL_NS)
        try:
            answer = claim(self._stores.coordinator, RUN, self._number, self._clock)
        except RunTerminal:
            return None
        match answer:
            case HeldShard():
                lease = answer.lease
                self._say("claimed", lease.shard, lease.fence, time.monotonic_ns())
                return answer
            case Throttled():
                self._fly(answer.retry_after_ns)
            case NoneAvailable(None):
                self._end_or_unpark()
            case NoneAvailable(deadline):
                time.sleep(self._random.random() * _NAP_S)
                self._fly((deadline or 0) - self._clock.now_ns())
        return None

    def _end_or_unpark(self) -> None:
        coordinator, now = self._stores.coordinator, self._clock.now_ns()
        parked = [shard for shard in coordinator.list_shards(RUN) if shard.status == ShardStatus.PARKED]
        with suppress(Conflict):
            for shard in parked:
                coordinator.unpark_shard(now, shard.key, op_id(RUN.run, shard.shard, shard.fence, OpKind.UNPARK))
            if not parked:
                coordinator.complete_run(now, RUN, 3)

    def _scan(self, held: HeldShard) -> None:
        while numbers := self._left(held):
            self._patiently(lambda numbers=numbers: self._interlude(held, numbers))  # type: ignore[misc]
            numbers = self._left(held)[: self._random.randint(1, 6)]
            if not held.is_held:
                return
            commit = Telling(self._say, self._stores, held, numbers)
            self._say("writing", held.lease.shard, held.lease.fence, time.monotonic_ns(), *numbers)
            content = page(numbers, held.context(POLICY))
            self._patiently(lambda: commit_page(content, commit, commit, commit))  # noqa: B023 - called at once
        with told(self._say, "completed", held):
            self._patiently(held.complete)

    def _interlude(self, held: HeldShard, numbers: list[int]) -> None:
        """Do something else than scan, now and then."""
        spec = held.spec
        cut = key(numbers[len(numbers) // 2])
        low, high = ShardSpec(spec.start, cut), ShardSpec(cut, spec.end)
        chance = self._random.random()
        if chance < 0.1:
            with told(self._say, "renewed", held):
                held.renew()
        elif chance < 0.15:
            with told(self._say, "parked", held):
                held.park(ParkReason.OTHER)
        elif chance < 0.2:
            self._tidy()
        elif len(numbers) < 4:
            return
        elif chance < 0.25:
            with told(self._say, "split", held):
                held.split_residual(ResidualPlan(low, high))
        elif chance < 0.3:
            with told(self._say, "split", held):
                held.split_replace([low, high])

    def _tidy(self) -> None:
        """Write the log of SQLite back into its file."""
        if self._stores.database.dialect == "sqlite":
            connection = apsw.Connection(self._stores.database.describe())
            with suppress(apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.FullError):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close(force=True)

    def _left(self, held: HeldShard) -> list[int]:
        after = held.cursor.key
        return [number for number in range(self._items) if within(held.spec, key(number)) and key(number) > after]

    def _fly(self, nanoseconds: int) -> None:
        self._clock.advance(max(nanoseconds, 0) / 1e9)

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._patience, self._say)


def patiently(ask: Callable[[], T], patience: int, say: Say) -> T:
    """Ask again after an error that may pass, as often as patience lasts."""
    while True:
        try:
            return ask()
        except (Unavailable, UnknownOutcome) as error:
            if patience <= 0:
                raise
            patience -= 1
            say("again", type(error).__name__)
            time.sleep(_NAP_S)


def main(address: str, number: int, items: int, seed: int, patience: int) -> int:
    """Work until the run is over, or something fails; return the exit status."""
    say_and_ask("ready")
    clock = ManualClock()
    try:
        with patiently(lambda: open_stores(address, migrate=True, clock=clock), patience, say) as stores:
            Worker(stores, clock, number, items, seed, say_and_ask, patience).work()
    except StrandlineError as error:
        say("failed", type(error).__name__, error)
        return TYPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:6])))
