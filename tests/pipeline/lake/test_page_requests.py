"""What the pages of a lake cost to ask about: requests for each page, counted at the store."""

from functools import partial

import pytest

from strandline.clock import ManualClock
from strandline.objects import MemoryObjects, RequestCounts
from strandline.objects.counted import CountedObjects
from strandline.pipeline.identity import OvidHash
from strandline.pipeline.lake import LakeDatabase, page_cache
from strandline.pipeline.lake.stores import LakeStores, open_lake
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.scope import WriteContext
from strandline.scan.plan.ledger_facts import ledger_rows
from strandline.testing.persistence_helpers import POLICY, TENANT, WRITER, after, done

OTHER_RUN = WRITER._replace(run_id=WRITER.run_id + 1)


def written(lake: LakeStores, name: str, writer: WriteContext = WRITER) -> OvidHash:
    """Write a page of one row, and return its key."""
    rows: list[LedgerRecord] = [done(name, DoneStatus.SCANNED_CLEAN, writer)]
    lake.ledger.batch_upsert(rows, after=after(rows))
    return rows[0].ovid


def lake_over(store: MemoryObjects, counts: RequestCounts | None = None) -> LakeStores:
    counted = CountedObjects(store, counts or RequestCounts())
    return open_lake(LakeDatabase("memory://", store=counted, clock=ManualClock()))


def reads(counts: RequestCounts) -> float:
    """Return the number of requests that read."""
    return sum(one.value for one in counts.metrics()[0].samples if one.labels["operation"] in {"get", "list", "head"})


@pytest.mark.parametrize("shards", [4, 400])
def test_a_page_of_a_worker_costs_the_same_however_many_pages_its_run_has(shards: int) -> None:
    store, counts = MemoryObjects(), RequestCounts()
    others = lake_over(store)
    for number in range(shards):
        written(others, f"item {number}", WRITER._replace(shard_id=100 + number))
    worker = lake_over(store, counts)
    ask = partial(ledger_rows, worker.ledger, TENANT, POLICY, advisory_run=WRITER.run_id)
    for number in range(20):  # as a worker does: asks about a page, and writes it
        assert ask([done(f"own {number}", DoneStatus.SCANNED_CLEAN, WRITER).ovid]) == [None]
        written(worker, f"own {number}")
    assert reads(counts) <= 10, "all pages were listed or read for each page"


def test_what_other_runs_did_is_known_after_a_while_and_exact_answers_have_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1]
    monkeypatch.setattr(page_cache, "monotonic_ns", lambda: now[0])
    store = MemoryObjects()
    others, worker = lake_over(store), lake_over(store)
    ask = partial(ledger_rows, worker.ledger, TENANT, POLICY, advisory_run=WRITER.run_id)
    before = written(others, "before", OTHER_RUN)
    assert ask([before]) != [None]
    later, same_run = written(others, "later", OTHER_RUN), written(others, "same run")
    assert ask([later]) == [None]
    now[0] += 31_000_000_000
    assert ask([later]) != [None]
    assert ask([same_run]) == [None], "pages of the worker's own run were read"
    assert None not in ledger_rows(worker.ledger, TENANT, POLICY, [before, later, same_run])
