"""Pages and tables of a lake as an explicit state machine, request by request.

Programs are production's: workers that commit a page through the stores of a lake and their shard, compactions with no
grace period, and readers. What must hold, in every state and step:

- a row of the ledger has its findings, and the cursor is behind no item without its row;
- what a worker was told is durable is durable, and a page begun under an old fence is not taken;
- a reader that begins now sees every row that was written, and one that began earlier sees what was there then;
- a table has no row twice.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from strandline.clock import ManualClock
from strandline.objects import ObjectStore
from strandline.pipeline.coordination.codec import parse_shard
from strandline.pipeline.coordination.object_records import format_shard_key, parse_envelope
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.identity import OvidHash, TenantId
from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.lake.columns import LEDGER, parse_parquet
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.layout import PageName, parse_page
from strandline.pipeline.lake.retention import Retention
from strandline.pipeline.lake.stores import LakeStores, open_lake
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.scope import FenceOf, WriteContext, unknown_fence
from strandline.protocol.shards import Cursor, Lease, ShardRecord
from strandline.testing.coordination_helpers import EXPIRED, NOW, take
from strandline.testing.persistence_helpers import POLICY, TENANT, WRITER, after, done, found, ovid, scope_of
from tests.models.object_coordination import SHARD, coordinator_over, one_shard
from tests.models.object_programs import Contents, Fact, ObjectModel, ObjectState, Program, body_of

_ERRORS = {
    "AlreadyLeased",
    "CompactionContended",
    "Conflict",
    "LeaseExpired",
    "ObjectGone",
    "StaleFence",
    "WriteUnknown",
    "_Gone",
}
"""What a program may be told instead of an answer. Without a grace period, objects may go while they are read."""


def lake_over(store: ObjectStore, fence_of: FenceOf = unknown_fence) -> LakeStores:
    """Return the stores of a process of its own."""
    return open_lake(LakeDatabase("memory://", store=store, clock=ManualClock()), fence_of)


def committer(name: str, now: int, held: Lease | None = None) -> Program:
    """Return a worker that claims the shard by its own clock unless it has it, and commits a page."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        it = coordinator_over(store)
        lease = held or it.acquire_and_restore(now, SHARD, 1).lease
        yield "claim", lease.fence
        lake = lake_over(store, ObjectRecords(store).fence_of)
        writer = WriteContext(TenantId(SHARD.tenant), POLICY, SHARD.run, SHARD.shard, lease.fence)
        scope, secret = scope_of(writer, [ovid("a")], end=b"c"), found("a", writer=writer)
        yield "begins", "findings"
        receipt = lake.findings.upsert_batch(
            FindingsBatch(scope, [secret.finding], [secret.occurrence], [secret.observation])
        )
        yield "told", "findings", lease.fence
        yield "begins", "ledger"
        lake.ledger.batch_upsert([done("a", DoneStatus.SCANNED_WITH_FINDINGS, writer)], after=receipt)
        yield "told", "ledger", lease.fence
        it.checkpoint(now, lease, Cursor(b"c"), 10 + lease.fence)
        yield "told", "cursor", lease.fence

    return Program(name, run)


def page_writer(name: str, *items: str) -> Program:
    """Return a worker without a shard that writes rows of items as one page."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        write_rows(store, items, fence=9)
        yield "wrote", frozenset(map(ovid, items))

    return Program(name, run)


def compactor(name: str, *, deletes: bool = True) -> Program:
    """Return a compaction, which deletes what it replaced at once, or dies before."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        compaction = Compaction(LakeDatabase("memory://", store=store, clock=ManualClock()), grace_s=0)
        with nullcontext() if deletes else patch.object(Retention, "run", lambda _: 0):
            yield "compacted", compaction.run().pages

    return Program(name, run)


def claimer(name: str) -> Program:
    """Return a worker that takes the shard over."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        yield "claim", coordinator_over(store).acquire_and_restore(EXPIRED, SHARD, 1).lease.fence

    return Program(name, run)


def reader(name: str, times: int = 1) -> Program:
    """Return a process that asks so many times which items are done."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        lake = lake_over(store)
        for number in range(times):
            yield "asks", number
            yield "read", frozenset(lake.ledger.list_done_hashes(TENANT, POLICY))

    return Program(name, run)


def write_rows(store: ObjectStore, items: tuple[str, ...], fence: int) -> None:
    """Write rows of items as a page."""
    rows = [done(item, writer=WRITER._replace(fence=fence)) for item in items]
    lake_over(store).ledger.batch_upsert(rows, after=after(rows))


def two_pages(store: ObjectStore) -> None:
    """Begin with two pages that have a row in common."""
    write_rows(store, ("a", "b"), fence=1)
    write_rows(store, ("b",), fence=2)


def one_page(store: ObjectStore) -> None:
    """Begin with one page."""
    write_rows(store, ("a", "b"), fence=1)


def leased_shard(store: ObjectStore) -> None:
    """Begin with a shard that a worker has."""
    one_shard(store)
    take(coordinator_over(store), SHARD)


class PagesModel(ObjectModel):
    """Workers that commit the same page."""

    def broken(self, state: ObjectState) -> str | None:
        """Return which promise a state breaks, or None."""
        told = [fact for known in self.facts(state) for fact in known]
        if wrong := next((fact for fact in told if fact[0] == "error" and fact[1] not in _ERRORS), None):
            return f"a program was told {wrong[1]}"
        pages = [name for key, _ in state.contents if (name := parse_page(key)) is not None]
        there = {(name.table, name.fence) for name in pages}
        for _, what, fence in (fact for fact in told if fact[0] == "told"):
            if what != "cursor" and (what, fence) not in there:
                return f"a worker was told of {what} that are not there"
            if ("late", what, fence) in state.notes:
                return f"{what} begun under an old fence were taken"
        return self._broken_order(pages, self._shard(state.contents))

    def broken_step(self, before: ObjectState, after: ObjectState, index: int | None) -> str | None:  # noqa: ARG002
        """Return which promise a step breaks, or None."""
        return None

    def notes(self, before: ObjectState, after: ObjectState, index: int | None) -> frozenset[Fact]:
        """Remember what was begun under an old fence."""
        if index is None:
            return after.notes
        fence = next((fact[1] for fact in self.facts(before)[index] if fact[0] == "claim"), 0)
        shard = self._shard(before.contents)
        begun = [fact[1] for fact in self.told_last(before.programs[index]) if fact[0] == "begins"]
        return after.notes | {("late", what, fence) for what in begun if shard is not None and shard.fence > fence}

    def _broken_order(self, pages: list[PageName], shard: ShardRecord | None) -> str | None:
        tables = {name.table for name in pages}
        if "ledger" in tables and "findings" not in tables:
            return "a row of the ledger is there without its findings"
        if shard is not None and shard.cursor.key and "ledger" not in tables:
            return "the cursor is behind an item without its row"
        return None

    def _shard(self, contents: Contents) -> ShardRecord | None:
        number = body_of(contents, format_shard_key(SHARD))
        return None if number is None else parse_shard(parse_envelope(self.bodies[number], "a shard").record)


class CompactionModel(ObjectModel):
    """Compactions, and readers and writers beside them."""

    def __init__(self, programs: list[Program], begin: Callable[[Any], None], faults: int) -> None:
        super().__init__(programs, begin, faults)
        self._seen: dict[Contents, frozenset[OvidHash] | str] = {}
        self._first = frozenset(map(ovid, "ab"))

    def broken(self, state: ObjectState) -> str | None:
        """Return which promise a state breaks, or None."""
        told = [fact for known in self.facts(state) for fact in known]
        if wrong := next((fact for fact in told if fact[0] == "error" and fact[1] not in _ERRORS), None):
            return f"a program was told {wrong[1]}"
        written = self._first.union(*(fact[1] for fact in told if fact[0] == "wrote"))
        seen = self._read(state.contents)
        if isinstance(seen, str):
            return seen
        if not written <= seen:
            return "a row was lost"
        return None

    def broken_step(self, before: ObjectState, after: ObjectState, index: int | None) -> str | None:
        """Return which promise a step breaks, or None: a reader has what was there when it asked."""
        if index is None:
            return None
        facts = self.facts(after)[index]
        asked = [fact for fact in facts if fact[0] == "asks"]
        for fact in facts[len(self.facts(before)[index]) :]:
            if fact[0] == "read" and any(
                row not in fact[1] for kind, who, number, row in after.notes if (who, number) == (index, asked[-1][1])
            ):
                return "a reader missed a row that was there when it asked"
        return None

    def notes(self, before: ObjectState, after: ObjectState, index: int | None) -> frozenset[Fact]:
        """Remember which rows were there when a reader began to ask."""
        if index is None:
            return after.notes
        seen = self._read(before.contents)
        if isinstance(seen, str):
            return after.notes
        began = [fact[1] for fact in self.told_last(before.programs[index]) if fact[0] == "asks"]
        return after.notes | {("there", index, number, row) for number in began for row in seen}

    def _read(self, contents: Contents) -> frozenset[OvidHash] | str:
        """Return the rows that a process sees that begins now, or the problem."""
        key = tuple(one for one in contents if one[0] != "compaction/clock")
        if key not in self._seen:
            self._seen[key] = self._read_now(key)
        return self._seen[key]

    def _read_now(self, contents: Contents) -> frozenset[OvidHash] | str:
        store = self.stored(contents)
        lake = lake_over(store)
        in_tables: list[Any] = []
        for name in lake.cache.data_files("ledger"):
            found_file = store.get(name)
            if found_file is None:
                return "a file of a table is gone"
            in_tables += parse_parquet(found_file.body, LEDGER, name)["ovid"].to_pylist()
        if len(set(in_tables)) < len(in_tables):
            return "a table has a row twice"
        return frozenset(lake.ledger.list_done_hashes(TENANT, POLICY))


def overtaken(faults: int = 1) -> PagesModel:
    """A worker that commits a page, and one that takes its shard over meanwhile."""
    held = Lease(*SHARD, worker=1, fence=1, deadline=EXPIRED)
    return PagesModel([committer("first", NOW, held), claimer("second")], leased_shard, faults)


def compactor_and_reader(faults: int = 1, reads: int = 1) -> CompactionModel:
    """A compaction, and a reader beside it."""
    return CompactionModel([reader("reader", reads), compactor("compactor")], two_pages, faults)


def folds_and_writer(faults: int = 0) -> CompactionModel:
    """Two compactions that die before they delete anything, and a page that is written meanwhile."""
    both = compactor("first", deletes=False), compactor("second", deletes=False)
    return CompactionModel([page_writer("writer", "c"), *both], one_page, faults)
