"""A page's commit may be cut off anywhere: no state breaks a promise, each can still end well, and no guard is idle."""

import os
from collections.abc import Callable, Sequence

import pytest

from strandline.pipeline import ledger
from strandline.pipeline.errors import ReceiptMismatch
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.ledger import LedgerRecord
from strandline.pipeline.memory import MemoryFindings, MemoryLedger
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import CommitScope
from strandline.protocol.errors import OpIdConflict
from strandline.protocol.shards import OpEntry
from strandline.sim.explore import explore, find_stuck
from tests.models import PageBounds, PageCommitModel

SMALL = PageBounds(fence_max=2)
UNFENCED = SMALL._replace(fenced=False)
CORES = os.cpu_count() or 1


def allow(*_: object, **__: object) -> None:
    """Refuse nothing, and remember nothing."""


def check_done_ledger_without_counting(scope: CommitScope, receipt: LedgerReceipt) -> None:
    if receipt.scope != scope:
        raise ReceiptMismatch("ledger", "receipt's scope")


def merge_so_that_the_last_wins(_: LedgerRecord, other: LedgerRecord) -> LedgerRecord:
    return other


def answer_before_findings_are_written(_: MemoryFindings, batch: FindingsBatch) -> FindingsReceipt:
    return FindingsReceipt(batch.scope)


def answer_before_rows_are_written(
    _: MemoryLedger, records: Sequence[LedgerRecord], *, after: FindingsReceipt
) -> LedgerReceipt:
    return ledger.receipt(ledger.fold(records), after)


def refuse_repeats(ops: tuple[OpEntry, ...], op_id: int, _: int) -> None:
    if any(entry.op_id == op_id for entry in ops):
        raise OpIdConflict(op_id)


MUTATIONS: list[tuple[str, Callable[..., object], PageBounds, int, str]] = [
    ("pipeline.commit.check_findings", allow, SMALL, 7, "a worker believes in findings that are not there"),
    ("pipeline.commit.check_done_ledger", allow, SMALL, 4, "a worker believes in rows that are not there"),
    (
        "pipeline.commit.check_done_ledger",
        check_done_ledger_without_counting,
        SMALL,
        4,
        "a worker believes in rows that are not there",
    ),
    ("pipeline.commit.check_checkpoint", allow, SMALL, 9, "a worker believes in a cursor that is not there"),
    ("pipeline.memory.check_items", allow, SMALL, 7, "a row says scanned, and its findings are absent"),
    ("pipeline.held_shard.HeldShard._check_receipt", allow, SMALL, 7, "the cursor passed an item without a row"),
    ("pipeline.memory.MemoryTables.check_fence", allow, SMALL, 6, "a store took a write under an old fence"),
    ("pipeline.ledger.merge", merge_so_that_the_last_wins, UNFENCED, 9, "a row of the ledger fell back"),
    (
        "pipeline.memory.MemoryFindings.upsert_batch",
        answer_before_findings_are_written,
        SMALL,
        4,
        "a worker believes in findings that are not there",
    ),
    (
        "pipeline.memory.MemoryLedger.batch_upsert",
        answer_before_rows_are_written,
        SMALL,
        4,
        "a worker believes in rows that are not there",
    ),
    ("protocol.leases.replay", allow, SMALL, 6, "it remembers an operation twice"),
]


@pytest.mark.parametrize("bounds", [SMALL, UNFENCED], ids=["stores know the fence", "stores know no fence"])
def test_wherever_it_is_cut_off_every_promise_holds(bounds: PageBounds) -> None:
    found = explore(PageCommitModel(bounds))
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize("bounds", [SMALL, UNFENCED], ids=["stores know the fence", "stores know no fence"])
def test_from_every_state_the_shard_can_still_be_done(bounds: PageBounds) -> None:
    model = PageCommitModel(bounds)
    assert find_stuck(model, model.is_done) is None


@pytest.mark.parametrize(("guard", "broken", "bounds", "steps", "problem"), MUTATIONS)
def test_without_a_guard_there_is_a_counterexample(
    guard: str,
    broken: Callable[..., object],
    bounds: PageBounds,
    steps: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"strandline.{guard}", broken)
    found = explore(PageCommitModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, problem in found.problem) == (steps, True), found


def test_a_repeat_that_is_refused_leaves_a_worker_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocol.leases.replay", refuse_repeats)
    model = PageCommitModel(SMALL)
    found = find_stuck(model, model.is_done)
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert any("the answer is lost" in action for action, _ in found.trace), found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fenced", [True, False], ids=["stores know the fence", "stores know no fence"])
def test_wherever_it_is_cut_off_three_times_every_promise_holds(fenced: bool) -> None:
    found = explore(PageCommitModel(PageBounds(fenced=fenced)), cores=CORES)
    assert found.complete, found
    assert found.states > 50_000
