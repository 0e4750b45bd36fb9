"""Whatever a bucket evicts, a fold is repaired from what is true or not at all: and no rule of that is idle."""

import os
from collections.abc import Callable

import pytest

from strandline.protocol.repairs import RepairMode, RepairPlan, plan_repair
from strandline.sim.explore import explore, find_stuck
from tests.models.repair_planning import PlanBounds, RepairPlanModel, Retention

CORES = os.cpu_count() or 1
KEEPS = PlanBounds((Retention.KEEPS,))
AGES = PlanBounds((Retention.AGES,), mute=True)
EXPIRES = PlanBounds((Retention.EXPIRES,), mute=True)
OVERFLOWS = PlanBounds((Retention.OVERFLOWS,), mute=True)
EDITED = PlanBounds((Retention.AGES, Retention.KEEPS), edits=2)
LISTS = PlanBounds((Retention.KEEPS,), RepairMode.RELIST)
LISTS_EDITED = PlanBounds((Retention.AGES, Retention.KEEPS), RepairMode.RELIST, fresh=False, mute=True)
RESTORES = PlanBounds((Retention.AGES, Retention.KEEPS, Retention.EXPIRES), RepairMode.RESTORE, mute=True)
SOUND = {
    "keeps": KEEPS,
    "ages": AGES,
    "expires": EXPIRES,
    "overflows": OVERFLOWS,
    "edited": EDITED,
    "relist": LISTS,
    "relist, edited": LISTS_EDITED,
    "restore": RESTORES,
}
GONE = "a live key is gone"
THERE = "a deleted key is there"


def always(*_: object, **__: object) -> bool:
    return True


def never(*_: object, **__: object) -> bool:
    return False


def unknown(**_: object) -> None:
    """Return that nobody knows."""


def truth_without_memory(first: int, *, evicts: bool, seen: bool) -> bool:
    _ = seen
    return not evicts or first <= 1


def truth_wherever_it_begins(first: int, *, evicts: bool, seen: bool) -> bool:
    _ = first, evicts
    return not seen


def floor_without_order(first: int, removed: int, *, in_order: bool) -> int:
    _ = removed, in_order
    return first


def remember_nothing(*, seen: bool, evicts: bool) -> bool:
    _ = evicts
    return seen


def plan_that_never_refuses(mode: RepairMode, truth: bool | None) -> RepairPlan:
    found = plan_repair(mode, truth)
    return RepairPlan.RELIST if found == RepairPlan.REFUSE_RELIST else found


def plan_that_lists_if_nobody_knows(mode: RepairMode, truth: bool | None) -> RepairPlan:
    return RepairPlan.RELIST if mode == RepairMode.AUTO and truth is None else plan_repair(mode, truth)


def repair_only_what_has_data(mode: RepairMode, truth: bool | None, *, has_data: bool, can_restore: bool) -> bool:
    _ = mode, truth, can_restore
    return has_data


def repair_only_what_is_empty(mode: RepairMode, truth: bool | None, *, has_data: bool, can_restore: bool) -> bool:
    _ = can_restore
    return not has_data and mode != RepairMode.RELIST and truth is False


MUTATIONS: list[tuple[str, Callable[..., object], PlanBounds, int, str]] = [
    ("listing_is_truth", always, AGES, 4, GONE),
    ("listing_is_truth", always, OVERFLOWS, 4, GONE),
    ("listing_is_truth", truth_wherever_it_begins, AGES, 4, GONE),
    ("listing_is_truth", truth_without_memory, EDITED, 7, GONE),
    ("remember_evicting", remember_nothing, EDITED, 7, GONE),
    ("listing_floor", floor_without_order, EXPIRES, 5, GONE),
    ("listing_truth", unknown, LISTS_EDITED, 6, GONE),
    ("plan_repair", plan_that_never_refuses, LISTS_EDITED, 5, GONE),
    ("plan_repair", plan_that_lists_if_nobody_knows, AGES._replace(fresh=False), 5, GONE),
    ("cursorless_start_needs_repair", repair_only_what_has_data, AGES, 4, GONE),
    ("cursorless_start_needs_repair", repair_only_what_is_empty, KEEPS, 7, THERE),
    ("cursorless_start_needs_repair", never, LISTS, 7, THERE),
]


@pytest.mark.parametrize("bounds", SOUND.values(), ids=SOUND)
def test_a_fold_is_repaired_from_what_is_true_or_not_at_all(bounds: PlanBounds) -> None:
    found = explore(RepairPlanModel(bounds))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 100


@pytest.mark.parametrize("bounds", [KEEPS, AGES, EXPIRES, OVERFLOWS, EDITED, LISTS, RESTORES])
def test_from_every_state_the_fold_can_still_become_right(bounds: PlanBounds) -> None:
    model = RepairPlanModel(bounds)
    assert find_stuck(model, model.is_done) is None


@pytest.mark.parametrize(("rule", "broken", "bounds", "steps", "problem"), MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(
    rule: str,
    broken: Callable[..., object],
    bounds: PlanBounds,
    steps: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"strandline.protocol.repairs.{rule}", broken)
    found = explore(RepairPlanModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, problem), found


@pytest.mark.parametrize(
    ("bounds", "steps", "problem"),
    [
        (AGES._replace(rechecks=False, mute=False), 4, GONE),
        (EDITED._replace(settings=(Retention.KEEPS, Retention.AGES), rechecks=False, fresh=False), 7, GONE),
        (AGES._replace(mute_at_first=True), 4, GONE),
        (EDITED._replace(unseen_edits=True), 5, GONE),
        (KEEPS._replace(mode=RepairMode.NONE), 7, THERE),
        (AGES._replace(mode=RepairMode.RELIST, mute=False), 4, GONE),
    ],
    ids=[
        "no second look at the start",
        "no second look at a repair",
        "a mute bucket at first",
        "an edit nobody saw",
        "no repair",
        "a late start without a restorer",
    ],
)
def test_what_is_taken_for_granted_is_needed(bounds: PlanBounds, steps: int, problem: str) -> None:
    found = explore(RepairPlanModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, problem), found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bounds", SOUND.values(), ids=SOUND)
def test_a_fold_of_a_longer_log_is_repaired_from_what_is_true(bounds: PlanBounds) -> None:
    found = explore(RepairPlanModel(bounds._replace(revisions=4, keys=3, edits=2 * bounds.edits)), cores=CORES)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
