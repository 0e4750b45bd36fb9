"""Committing pages: in order, whatever is interrupted between two steps, and again without a trace."""

from itertools import product
from typing import NoReturn

import pytest

from strandline.clock import ManualClock
from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.pipeline.commit import Page, commit_page, write_findings
from strandline.pipeline.coordination import Coordinator, MemoryRecords
from strandline.pipeline.errors import ReceiptMismatch, ShardReleased
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.held_shard import HeldShard, claim
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.memory import Hooks, MemoryFindings, MemoryLedger, MemoryTables
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.protocol.errors import LeaseExpired, LeaseLost, StaleFence
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import ParkReason, RunKey, ShardKey, ShardSpec, ShardStatus
from strandline.protocol.splits import ResidualPlan
from tests.pipeline.rows import CONTEXT, POLICY, TENANT, changed, digest, found, ovid, page_of, scope_of

RUN = RunKey(TENANT, 7)
SHARD = ShardKey(TENANT, 7, 1)
TTL_NS = 60 * 10**9


class Crash(Exception):
    """The worker ends here."""


class Pipeline:
    """A coordinator and stores in memory, with a worker that can be made to end at each step."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.coordinator = Coordinator(MemoryRecords(), lease_ttl_ns=TTL_NS)
        self.coordinator.create_run(0, RUN, 1)
        self.coordinator.register_shards(0, RUN, [InitialShard(1, ShardSpec(b"a", b"z"))], 2)
        self.crash_at: tuple[str, str] | None = None
        self.steps: list[str] = []
        hooks = Hooks(lambda stage: self._step("before", stage), lambda stage: self._step("after", stage))
        self.tables = MemoryTables(self.clock, self._fence_of, hooks)
        self.sink, self.ledger = MemoryFindings(self.tables), MemoryLedger(self.tables)

    def _fence_of(self, tenant: bytes, run: int, shard: int) -> int:
        return self.coordinator.get_shard(ShardKey(tenant, run, shard)).fence

    def _step(self, when: str, stage: str) -> None:
        if when == "after":
            self.steps.append(stage)
        if self.crash_at == (when, stage):
            raise Crash

    def refuse_questions(self) -> None:
        """Fail the test when anything more is asked of the coordinator by a worker."""

        def asked(*_: object) -> NoReturn:
            raise AssertionError("the coordinator was asked")

        for name in ("renew", "checkpoint", "complete", "park_shard", "split_replace", "split_residual"):
            setattr(self.coordinator, name, asked)

    def claim(self, worker: int = 1) -> HeldShard:
        held = claim(self.coordinator, RUN, worker, self.clock, self.clock.now_ns)
        assert isinstance(held, HeldShard)
        return held

    def check(self) -> None:
        """No row says "scanned" without its findings; the cursor is at no page whose rows are absent."""
        observed = {row.ovid for row in self.tables.observations.values()}
        for row in self.tables.ledger.values():
            assert row.status != DoneStatus.SCANNED_WITH_FINDINGS or row.ovid in observed
        cursor = self.coordinator.get_shard(SHARD).cursor.key
        for page in PAGES:
            if cursor >= page.key:
                assert all(ovid(number) in self.done() for number in page.numbers)

    def done(self) -> set[bytes]:
        return {row.ovid for row in self.tables.ledger.values()}


class Numbers:
    """A page by its numbers."""

    def __init__(self, key: bytes, numbers: list[int], with_findings: list[int]) -> None:
        self.key, self.numbers, self.with_findings = key, numbers, with_findings

    def page(self, held: HeldShard) -> Page:
        return page_of(self.numbers, self.with_findings, held.context(POLICY), self.key)


PAGES = [Numbers(b"c", [1, 2], [2]), Numbers(b"f", [3], [3]), Numbers(b"k", [4, 5, 6], [])]


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def work(pipeline: Pipeline, held: HeldShard) -> None:
    """Commit what is left of the shard, and complete it."""
    for numbers in PAGES:
        if numbers.key > held.cursor.key:
            commit_page(numbers.page(held), pipeline.sink, pipeline.ledger, held)
    held.complete()


def everything(pipeline: Pipeline) -> tuple[object, ...]:
    """Return what is stored, but for who wrote it and when."""
    tables = pipeline.tables
    ledger = {key: (row.status, row.findings_count) for key, row in tables.ledger.items()}
    return ledger, set(tables.findings), set(tables.occurrences), set(tables.observations)


def test_findings_come_before_the_ledger_and_both_before_the_cursor(pipeline: Pipeline) -> None:
    held = pipeline.claim()
    receipt = commit_page(PAGES[0].page(held), pipeline.sink, pipeline.ledger, held)
    assert pipeline.steps == ["findings", "ledger"]
    assert (receipt.items.record_count, receipt.items.findings_count) == (2, 1)
    assert receipt.items.findings.observation_count == 1
    assert pipeline.coordinator.get_shard(SHARD).cursor.key == b"c"


@pytest.mark.parametrize(
    ("when", "stage", "page"), list(product(("before", "after"), ("findings", "ledger"), range(3)))
)
def test_a_worker_that_ends_between_two_steps_loses_and_doubles_nothing(when: str, stage: str, page: int) -> None:
    calm, pipeline = Pipeline(), Pipeline()
    work(calm, calm.claim())
    held = pipeline.claim()
    for numbers in PAGES[:page]:
        commit_page(numbers.page(held), pipeline.sink, pipeline.ledger, held)
    pipeline.crash_at = (when, stage)
    with pytest.raises(Crash):
        commit_page(PAGES[page].page(held), pipeline.sink, pipeline.ledger, held)
    pipeline.check()
    pipeline.crash_at = None
    pipeline.clock.advance(61)
    work(pipeline, pipeline.claim(worker=2))
    pipeline.check()
    assert everything(pipeline) == everything(calm)
    assert pipeline.coordinator.get_shard(SHARD).status == ShardStatus.DONE


def test_a_page_that_is_committed_again_changes_nothing(pipeline: Pipeline) -> None:
    held = pipeline.claim()
    page = PAGES[0].page(held)
    commit_page(page, pipeline.sink, pipeline.ledger, held)
    before = everything(pipeline)
    commit_page(page, pipeline.sink, pipeline.ledger, held)
    assert everything(pipeline) == before


def test_a_zombie_is_refused_by_the_stores_that_know_the_fence(pipeline: Pipeline) -> None:
    zombie = pipeline.claim()
    page = PAGES[0].page(zombie)
    pipeline.clock.advance(61)
    pipeline.claim(worker=2)
    with pytest.raises(StaleFence):
        commit_page(page, pipeline.sink, pipeline.ledger, zombie)
    assert not pipeline.tables.findings
    receipt = FindingsReceipt(page.scope)
    with pytest.raises(StaleFence):
        pipeline.ledger.batch_upsert(page.items, after=receipt)
    assert not pipeline.tables.ledger


def test_rows_of_another_page_are_refused_by_the_ledger(pipeline: Pipeline) -> None:
    held = pipeline.claim()
    one, other = PAGES[0].page(held), PAGES[1].page(held)
    findings = pipeline.sink.upsert_batch(one.findings)
    for items in (other.items, one.items[:1], [*one.items, *other.items], []):
        with pytest.raises(ReceiptMismatch, match="another page"):
            pipeline.ledger.batch_upsert(items, after=findings)
    for fields in ({"fence": 9}, {"run_id": 9}, {"shard_id": 9}, {"policy": digest(9)}, {"tenant": digest(9)}):
        with pytest.raises(ReceiptMismatch, match="of a row"):
            pipeline.ledger.batch_upsert([changed(row, **fields) for row in one.items], after=findings)
    assert not pipeline.tables.ledger


def test_a_page_that_the_ledger_would_refuse_writes_nothing(pipeline: Pipeline) -> None:
    held = pipeline.claim()
    page = PAGES[0].page(held)
    wrong = Page(page.findings, [changed(row, error_code="X") for row in page.items])
    with pytest.raises(InvalidInput, match="no error code"):
        commit_page(wrong, pipeline.sink, pipeline.ledger, held)
    assert not pipeline.tables.findings


def test_more_findings_than_a_batch_takes_are_written_in_several_parents_first(pipeline: Pipeline) -> None:
    numbers = range(10_001)
    findings, occurrences, observations = zip(*map(found, numbers), strict=True)
    batch = FindingsBatch(scope_of([ovid(number) for number in numbers]), findings, occurrences, observations)
    pipeline.coordinator = Coordinator(MemoryRecords())
    pipeline.tables.fence_of = lambda *_: None
    receipt = write_findings(batch, pipeline.sink)
    assert (receipt.finding_count, receipt.occurrence_count, receipt.observation_count) == (10_001,) * 3
    assert len(pipeline.tables.observations) == 10_001


class TestAHeldShard:
    """A shard in a worker's hands."""

    def test_stops_at_its_deadline_without_asking(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        receipt = committed(pipeline, held)
        pipeline.clock.advance(60)
        assert not held.is_held
        pipeline.refuse_questions()
        for step in (
            held.renew,
            held.complete,
            lambda: held.park(ParkReason.OTHER),
            lambda: held.split_replace([]),
            lambda: held.checkpoint(receipt.scope.boundary, after=receipt),
        ):
            with pytest.raises(LeaseExpired):
                step()

    def test_does_not_live_longer_when_the_wall_clock_is_set_back(self, pipeline: Pipeline) -> None:
        watch = ManualClock()
        held = claim(pipeline.coordinator, RUN, 1, pipeline.clock, watch.now_ns)
        assert isinstance(held, HeldShard)
        pipeline.clock.advance(-3600)
        watch.advance(60)
        with pytest.raises(LeaseExpired):
            held.renew()

    def test_is_not_held_longer_for_a_pause_between_its_clocks(self, pipeline: Pipeline) -> None:
        class Pausing:
            def now_ns(self) -> int:
                pipeline.clock.advance(100)
                return pipeline.clock.now_ns() - 100 * 10**9

        held = claim(pipeline.coordinator, RUN, 1, Pausing(), pipeline.clock.now_ns)
        assert isinstance(held, HeldShard)
        assert not held.is_held

    def test_is_extended_by_renewing(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        pipeline.clock.advance(59)
        held.renew()
        pipeline.clock.advance(59)
        assert held.is_held
        committed(pipeline, held)

    def test_stays_lost_once_it_was_lost(self, pipeline: Pipeline) -> None:
        slow = ManualClock()
        held = claim(pipeline.coordinator, RUN, 1, pipeline.clock, slow.now_ns)
        assert isinstance(held, HeldShard)
        receipt = committed(pipeline, held)
        pipeline.clock.advance(61)
        pipeline.claim(worker=2)
        with pytest.raises(StaleFence):
            held.checkpoint(receipt.scope.boundary, after=receipt)
        pipeline.refuse_questions()
        assert not held.is_held
        for step in (held.renew, held.complete):
            with pytest.raises(LeaseLost):
                step()

    def test_refuses_receipts_of_other_shards_and_places(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        mine = committed(pipeline, held)
        for context in (
            CONTEXT._replace(tenant=digest(9)),  # type: ignore[arg-type]
            mine.scope.context._replace(run_id=9),
            mine.scope.context._replace(shard_id=9),
            mine.scope.context._replace(fence=9),
        ):
            other = LedgerReceipt(FindingsReceipt(scope_of([ovid(1)], context, b"c")), 1, 1, 0)
            with pytest.raises(ReceiptMismatch, match="receipt"):
                held.checkpoint(other.scope.boundary, after=other)
        with pytest.raises(ReceiptMismatch, match="boundary"):
            held.checkpoint(scope_of([ovid(1)], key=b"y").boundary, after=mine)
        assert pipeline.coordinator.get_shard(SHARD).cursor.key == b"c"

    def test_is_not_held_after_it_was_given_up(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        held.complete()
        assert not held.is_held
        with pytest.raises(ShardReleased, match="completed"):
            held.renew()
        assert pipeline.coordinator.get_shard(SHARD).cursor.key == b"a"

    def test_can_be_parked(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        held.park(ParkReason.POISONED)
        assert pipeline.coordinator.get_shard(SHARD).status == ShardStatus.PARKED
        with pytest.raises(ShardReleased, match="parked"):
            held.complete()

    def test_can_give_its_rest_away_and_go_on(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        (rest,) = held.split_residual(ResidualPlan(ShardSpec(b"a", b"m"), ShardSpec(b"m", b"z")))
        assert held.spec == ShardSpec(b"a", b"m")
        assert pipeline.coordinator.get_shard(ShardKey(TENANT, 7, rest)).spec == ShardSpec(b"m", b"z")
        work(pipeline, held)

    def test_can_be_replaced_by_its_parts(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        parts = held.split_replace([ShardSpec(b"a", b"m"), ShardSpec(b"m", b"z")])
        assert len(parts) == 2
        with pytest.raises(ShardReleased, match="split"):
            held.renew()

    def test_repeats_a_step_whose_answer_was_lost_under_the_same_id(self, pipeline: Pipeline) -> None:
        held = pipeline.claim()
        receipt = written(pipeline, held)
        real = pipeline.coordinator.checkpoint
        outcomes: list[object] = []

        def lossy(*arguments: object) -> object:
            outcomes.append(real(*arguments))  # type: ignore[arg-type]
            if len(outcomes) == 1:
                raise Unavailable("the answer was lost")
            return outcomes[-1]

        pipeline.coordinator.checkpoint = lossy  # type: ignore[method-assign,assignment]
        with pytest.raises(StrandlineError):
            held.checkpoint(receipt.scope.boundary, after=receipt)
        held.checkpoint(receipt.scope.boundary, after=receipt)
        assert outcomes[0] == outcomes[1]
        assert len(pipeline.coordinator.get_shard(SHARD).ops) == 1


def written(pipeline: Pipeline, held: HeldShard) -> LedgerReceipt:
    """Write the first page up to its checkpoint."""
    page = PAGES[0].page(held)
    return pipeline.ledger.batch_upsert(page.items, after=pipeline.sink.upsert_batch(page.findings))


def committed(pipeline: Pipeline, held: HeldShard) -> LedgerReceipt:
    """Commit the first page, and return the receipt that moved the cursor."""
    receipt = written(pipeline, held)
    held.checkpoint(receipt.scope.boundary, after=receipt)
    return receipt
