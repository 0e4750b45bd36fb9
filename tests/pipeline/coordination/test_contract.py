"""Every store keeps the contract of coordination, and the contract catches those that do not."""

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import pytest

from strandline.pipeline.coordination import Coordinator, MemoryRecords
from strandline.pipeline.coordination.record_store import Plan, Result, Versioned
from strandline.protocol import guards, leases, runs, shards, splits
from strandline.testing import ContractBroken
from strandline.testing import coordination_leases as lease_checks
from strandline.testing import coordination_runs as run_checks
from strandline.testing import coordination_shards as shard_checks
from strandline.testing.coordination import COORDINATION_CHECKS, check_coordination
from strandline.testing.coordination_helpers import LEASE_TTL_NS, CoordinationCheck
from tests.pipeline.coordination.backends import BACKENDS, open_coordinator

Breaks = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("check", COORDINATION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_stores_keep_the_contract(backend: str, check: CoordinationCheck, request: pytest.FixtureRequest) -> None:
    with open_coordinator(backend, request) as coordinator:
        check(coordinator)


def test_all_checks_can_be_run_at_once_without_a_test_runner() -> None:
    opened: list[Coordinator] = []

    def open_one() -> Coordinator:
        opened.append(Coordinator(MemoryRecords(), lease_ttl_ns=LEASE_TTL_NS))
        return opened[-1]

    check_coordination(open_one)
    assert len(opened) == len(COORDINATION_CHECKS)


def test_every_check_that_is_written_is_listed() -> None:
    written = {
        function
        for module in (lease_checks, shard_checks, run_checks)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert written == set(COORDINATION_CHECKS)


def without(module: object, guard: str) -> Breaks:
    """Leave a guard out."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, guard, lambda *_: None)

    return breaks


def instead(module: object, name: str, wrong: object) -> Breaks:
    """Do something else."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, name, wrong)

    return breaks


class LosesUpdates(MemoryRecords):
    """Writes whatever it is given, whether or not it was decided on what is there."""

    def load_shards(self, keys: Sequence[shards.ShardKey]) -> list[Versioned[shards.ShardRecord] | None]:
        found = super().load_shards(keys)
        time.sleep(0.001)  # long enough for another thread to come between
        return found

    def _unchanged(self, plan: Plan) -> bool:
        return super()._unchanged(plan) or all(change.before is not None for change in plan.shards)


class Forgets(MemoryRecords):
    """Says that it is done, and is not."""

    def commit(self, plan: Plan) -> Result:
        return Result.DONE if plan.shards and plan.run is None and plan.unchanged_run is None else super().commit(plan)


def child_from_the_start(parent: shards.ShardRecord, shard: int, spec: shards.ShardSpec) -> shards.ShardRecord:
    return shards.ShardRecord(parent.tenant, parent.run, shard, spec, semantics=parent.semantics, parent=parent.shard)


def closed_interval(record: shards.ShardRecord, now: int) -> bool:
    return record.deadline is not None and now <= record.deadline


CAUGHT_BY: dict[str, tuple[Breaks, str]] = {
    "no tenant guard": (without(guards, "check_tenant"), ""),
    "no status guard": (without(guards, "check_not_terminal"), "terminal_clears_lease"),
    "no fence guard": (without(guards, "check_fence"), "stale_fences_are_refused_for_every_operation"),
    "no expiry guard": (without(guards, "check_not_expired"), "lease_deadline_at_exact_boundary"),
    "no owner guard": (without(guards, "check_owner"), "owner_divergence_with_matching_fence"),
    "no lease guard": (without(guards, "check_not_leased"), "exactly_one_worker_wins_a_shard"),
    "no size guard": (without(guards, "check_cursor_size"), "cursors_have_a_key_and_a_size"),
    "no regression guard": (without(guards, "check_no_regression"), "cursors_move_forward_across_leases"),
    "no bounds guard": (without(guards, "check_in_bounds"), "cursors_stay_in_their_shard"),
    "no parts guard": (without(guards, "check_parts"), "split_coverage_key_range_partition"),
    "no count guard": (without(guards, "check_children_count"), "split_coverage_key_range_partition"),
    "no cursor guard": (without(guards, "check_cursor_kept"), "cursor_monotonicity_combined_with_split_residual"),
    "no run guard": (without(runs, "check_run_not_over"), "unpark_after_run_terminal_rejected"),
    "no active guard": (without(runs, "check_run_active"), "a_run_is_created_once"),
    "no initializing guard": (
        without(runs, "check_run_initializing"),
        "register_shards_on_non_initializing_rejected",
    ),
    "no finished guard": (without(runs, "check_run_finished"), "a_run_is_done_when_no_shard_is_active"),
    "no parked guard": (without(runs, "check_parked"), "unpark_lifecycle_fence_and_cursor_preserved"),
    "no initial guard": (without(runs, "check_initial_shards"), "shards_that_cannot_be_are_refused"),
    "no replay": (instead(leases, "replay", lambda *_: None), "idempotency_before_terminal_state_rejection"),
    "no second tier": (without(splits, "find_residual"), "oplog_eviction_then_replay"),
    "a longer memory": (instead(leases, "OPS_PER_SHARD_MAX", 17), "oplog_eviction_then_replay"),
    "a shorter memory": (instead(leases, "OPS_PER_SHARD_MAX", 15), "oplog_eviction_then_replay"),
    "hash of nothing": (instead(leases, "payload_hash", lambda *_: 1), "an_operation_id_with_other_content_is_refused"),
    "expired after the deadline": (
        instead(shards.ShardRecord, "leased", closed_interval),
        "lease_deadline_at_exact_boundary",
    ),
    "children from the start": (instead(splits, "_child", child_from_the_start), "split_coverage_key_range_partition"),
    "ids without the highest bit": (instead(splits, "_DERIVED", 0), "splits_of_splits_cover_the_whole"),
}


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_broken_decision_is_caught_by_the_check_for_its_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, check = CAUGHT_BY[name]
    breaks(monkeypatch)
    caught = list(failures(MemoryRecords))
    assert check in caught if check else not caught  # the tenant is part of a record's key, and guarded by it as well


@pytest.mark.parametrize(
    ("broken", "check"),
    [(LosesUpdates, "exactly_one_worker_wins_a_shard"), (Forgets, "cursors_move_forward_across_leases")],
)
def test_a_broken_store_is_caught(broken: type[MemoryRecords], check: str) -> None:
    assert check in list(failures(broken))
    with pytest.raises(ContractBroken):
        check_coordination(lambda: nullcontext(Coordinator(broken(), lease_ttl_ns=LEASE_TTL_NS)))


def failures(store: type[MemoryRecords]) -> Iterator[str]:
    """Yield the names of the checks that fail over a store."""
    for check in COORDINATION_CHECKS:
        try:
            check(Coordinator(store(), lease_ttl_ns=LEASE_TTL_NS, pause=lambda _: None))
        except Exception:  # noqa: BLE001 - whatever it is, the check failed
            yield check.__name__
