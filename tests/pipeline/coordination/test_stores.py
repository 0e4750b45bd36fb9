"""Every store writes a plan whole or not at all, and only on the records that it was decided on."""

from collections.abc import Iterator

import pytest

from strandline.pipeline.coordination import RecordStore
from strandline.pipeline.coordination.record_store import Plan, Result, RunChange, ShardChange, Versioned
from strandline.protocol import leases, runs
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import CursorSemantics, RunKey, ShardKey, ShardRecord, ShardSpec
from strandline.testing.coordination_helpers import LEASE_TTL_NS, NOW, OTHER, RUN, TENANT
from tests.pipeline.coordination.backends import BACKENDS

FIRST, SECOND = (ShardRecord(TENANT, RUN.run, number, ShardSpec()) for number in (1, 2))


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    with BACKENDS[request.param](request) as opened:
        yield opened


@pytest.fixture
def run(store: RecordStore) -> Versioned[RunRecord]:
    """Return a run that is in the store with one shard."""
    record = runs.create_run(None, NOW, RUN, CursorSemantics.COMPLETED, 1).record
    shards, made = (ShardChange(None, FIRST),), RunChange(None, record)
    plans = [Plan(NOW, shards, made)] if store.registers_in_one_commit else [Plan(NOW, shards), Plan(NOW, run=made)]
    assert [store.commit(plan) for plan in plans] == [Result.DONE] * len(plans)
    return load_run(store)


def load_run(store: RecordStore, key: RunKey = RUN) -> Versioned[RunRecord]:
    found = store.load_run(key)
    assert found is not None
    return found


def load_shard(store: RecordStore, key: ShardKey = FIRST.key) -> Versioned[ShardRecord]:
    (found,) = store.load_shards([key])
    assert found is not None
    return found


def cancelled(run: Versioned[RunRecord], op_id: int = 5) -> RunChange:
    return RunChange(run, runs.cancel_run(run.record, NOW, op_id).record)


def taken(shard: Versioned[ShardRecord], worker: int = 1) -> ShardChange:
    return ShardChange(shard, leases.acquire(shard.record, NOW, shard.record.tenant, worker, LEASE_TTL_NS))


@pytest.mark.usefixtures("run")
def test_a_shard_that_changed_meanwhile_is_not_overwritten(store: RecordStore) -> None:
    before = load_shard(store)
    assert store.commit(Plan(NOW, (taken(before),))) is Result.DONE
    assert store.commit(Plan(NOW, (taken(before, worker=2),))) is Result.CHANGED
    assert load_shard(store).record.owner == 1
    assert load_shard(store).version != before.version


def test_a_run_that_changed_meanwhile_is_not_overwritten(store: RecordStore, run: Versioned[RunRecord]) -> None:
    assert store.commit(Plan(NOW, run=cancelled(run))) is Result.DONE
    again = RunChange(run, runs.fail_run(run.record, NOW, 6).record)
    assert store.commit(Plan(NOW, run=again)) is Result.CHANGED
    assert load_run(store).record == cancelled(run).after


def test_a_run_that_was_only_read_must_be_unchanged_too(store: RecordStore, run: Versioned[RunRecord]) -> None:
    shard = load_shard(store)
    assert store.commit(Plan(NOW, run=cancelled(run))) is Result.DONE
    assert store.commit(Plan(NOW, (taken(shard),), unchanged_run=run)) is Result.CHANGED
    left = load_shard(store)
    assert left.record._replace(fence=shard.record.fence) == shard.record, "a fence may be used up, and nothing else"
    current = load_run(store)
    assert store.commit(Plan(NOW, (taken(left),), unchanged_run=current)) is Result.DONE
    assert load_run(store) == current


def test_what_must_not_exist_is_not_overwritten(store: RecordStore, run: Versioned[RunRecord]) -> None:
    assert store.commit(Plan(NOW, (ShardChange(None, FIRST),))) is Result.CHANGED
    assert store.commit(Plan(NOW, run=RunChange(None, run.record))) is Result.CHANGED
    assert load_run(store) == run


def test_what_must_exist_and_does_not_is_not_made(store: RecordStore, run: Versioned[RunRecord]) -> None:
    assert store.commit(Plan(NOW, (ShardChange(Versioned(SECOND, 1), SECOND),))) is Result.CHANGED
    other = Versioned(run.record._replace(run=9), run.version)
    assert store.commit(Plan(NOW, run=RunChange(other, other.record))) is Result.CHANGED
    assert store.commit(Plan(NOW, (ShardChange(None, SECOND),), unchanged_run=other)) is Result.CHANGED
    assert store.load_run(other.record.key) is None
    assert store.load_shards([SECOND.key]) == [None]


@pytest.mark.parametrize("wrong", ["a shard", "the run"])
def test_a_plan_of_which_one_part_is_stale_is_not_written_at_all(
    store: RecordStore, run: Versioned[RunRecord], wrong: str
) -> None:
    shard = load_shard(store)
    stale_run = Versioned(run.record, run.version + 1_000_000) if wrong == "the run" else run
    stale_shard = Versioned(shard.record, shard.version + 1_000_000) if wrong == "a shard" else shard
    added = [ShardChange(None, SECOND)] if store.registers_in_one_commit else []
    changes = (*added, taken(stale_shard))
    for ordered in (changes, changes[::-1]):
        assert store.commit(Plan(NOW, ordered, cancelled(stale_run))) is Result.CHANGED
    found = (load_run(store).record, load_shard(store), store.load_shards([SECOND.key]))
    assert found == (run.record, shard, [None])
    assert store.progress(RUN) == Progress(active=1)
    assert store.claimable(RUN, NOW, 9).shards == (FIRST.key,)


@pytest.mark.usefixtures("run")
def test_shards_are_loaded_in_the_order_asked_for(store: RecordStore) -> None:
    store.commit(Plan(NOW, (ShardChange(None, SECOND),)))
    missing = ShardKey(*RUN, 3)
    found = store.load_shards([SECOND.key, missing, FIRST.key, SECOND.key])
    assert [stored.record if stored else None for stored in found] == [SECOND, None, FIRST, SECOND]
    assert store.load_shards([]) == []


@pytest.mark.usefixtures("run")
def test_records_are_found_under_their_tenant_only(store: RecordStore) -> None:
    other = RunKey(OTHER, RUN.run)
    assert store.load_run(other) is None
    assert store.load_shards([FIRST.key._replace(tenant=OTHER)]) == [None]
    assert store.claimable(other, NOW, 9) == ((), None)
    assert store.progress(other) == Progress()
    assert store.list_shards(other, None, 9) == []
    assert store.list_runs(OTHER, None, 9) == []


@pytest.mark.usefixtures("run")
def test_no_more_shards_are_claimable_than_asked_for(store: RecordStore) -> None:
    store.commit(Plan(NOW, (ShardChange(None, SECOND),)))
    assert len(store.claimable(RUN, NOW, 1).shards) == 1
    found = store.claimable(RUN, NOW, 2).shards  # which ones is the store's choice
    assert found
    assert set(found) <= {FIRST.key, SECOND.key}
    store.commit(Plan(NOW, (taken(load_shard(store)),)))
    assert store.claimable(RUN, NOW, 1).shards == (SECOND.key,)
    store.commit(Plan(NOW, (taken(load_shard(store, SECOND.key)),)))
    assert store.claimable(RUN, NOW, 1) == ((), NOW + LEASE_TTL_NS)
    assert len(store.claimable(RUN, NOW + LEASE_TTL_NS, 1).shards) == 1


def test_a_store_can_be_closed_twice(store: RecordStore) -> None:
    store.close()
    store.close()
