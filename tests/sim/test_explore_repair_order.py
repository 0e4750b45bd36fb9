"""A repair may be cut off anywhere, and only its order makes that safe: every state is fine, and no rule is idle."""

import os
from collections.abc import Callable

import pytest

from strandline.protocol.repairs import Held, KeyRepair
from strandline.sim.explore import explore, find_stuck
from tests.models.repair_order import OrderBounds, RepairOrderModel
from tests.sim.broken_repairs import always, cursor_first, delete_nothing, no_ack_barrier, no_drain, no_flush

RELIST = OrderBounds(evicts=False, revisions=4)
RESTORE = OrderBounds(evicts=True, revisions=3)
UNNAMED = "the cursor names what is not stored"
WRONG = "the fold is wrong, and nothing is to come"
TAKEN = "a repair took a live key's value"
CORES = os.cpu_count() or 1


def never(*_: object) -> bool:
    return False


def take_all(local: Held | None, artifact: Held | None, *, identical: bool, listed: bool) -> KeyRepair:
    _ = local, identical, listed
    return KeyRepair.TAKE if artifact else KeyRepair.DELETE


def restore_whatever_the_log_reaches(artifact: int, _: int, first: int) -> bool:
    return first <= artifact + 1


def restore_whatever_is_ahead(artifact: int, local: int, _: int) -> bool:
    return artifact > local


MUTATIONS: list[tuple[str, Callable[..., object], OrderBounds, int, str]] = [
    ("repairs.next_repair_step", no_drain, RELIST, 11, WRONG),
    ("repairs.next_repair_step", no_flush, RELIST, 11, WRONG),
    ("repairs.next_repair_step", no_ack_barrier, RELIST, 10, TAKEN),
    ("repairs.next_repair_step", no_drain, RESTORE, 13, UNNAMED),
    ("repairs.next_repair_step", no_flush, RESTORE, 12, UNNAMED),
    ("repairs.next_repair_step", no_ack_barrier, RESTORE, 10, UNNAMED),
    ("repairs.next_repair_step", cursor_first, RESTORE, 6, UNNAMED),
    ("repairs.restore_key", take_all, RESTORE, 14, TAKEN),
    ("repairs.restore_key", delete_nothing, RESTORE, 11, UNNAMED),
    ("repairs.restore_allowed", always, RESTORE, 14, TAKEN),
    ("repairs.restore_allowed", restore_whatever_is_ahead, RESTORE, 15, TAKEN),
    ("repairs.listing_is_truth", always, RESTORE, 7, WRONG),
    ("windows.resume_window_ok", always, RELIST, 6, WRONG),
    ("windows.is_gapped", never, RELIST, 8, WRONG),
]


@pytest.mark.parametrize("bounds", [RELIST, RESTORE], ids=["relist", "restore"])
def test_a_repair_makes_the_fold_right_wherever_it_is_cut_off(bounds: OrderBounds) -> None:
    found = explore(RepairOrderModel(bounds))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize("bounds", [RELIST, RESTORE], ids=["relist", "restore"])
def test_from_every_state_the_fold_can_still_become_right(bounds: OrderBounds) -> None:
    model = RepairOrderModel(bounds._replace(revisions=3))
    assert find_stuck(model, model.is_done) is None


@pytest.mark.parametrize(("rule", "broken", "bounds", "steps", "problem"), MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(
    rule: str,
    broken: Callable[..., object],
    bounds: OrderBounds,
    steps: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"strandline.protocol.{rule}", broken)
    found = explore(RepairOrderModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, problem), found


def test_an_artifact_from_which_the_log_goes_on_is_always_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """So half of `restore_allowed` matters only where the log's beginning is unknown, or of another stream."""
    monkeypatch.setattr("strandline.protocol.repairs.restore_allowed", restore_whatever_the_log_reaches)
    found = explore(RepairOrderModel(RESTORE))
    assert found.complete, found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "bounds",
    [
        OrderBounds(evicts=False, revisions=6, keys=2, channel_max=2, batch_max=2, crashes=2),
        OrderBounds(evicts=False, revisions=5, keys=3, crashes=2),
        OrderBounds(evicts=True, revisions=4, keys=2, channel_max=2, batch_max=2, crashes=2),
    ],
    ids=["relist", "relist of three keys", "restore"],
)
def test_a_repair_of_a_longer_log_makes_the_fold_right_wherever_it_is_cut_off(bounds: OrderBounds) -> None:
    found = explore(RepairOrderModel(bounds), cores=CORES)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
