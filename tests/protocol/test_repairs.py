"""From what a fold is repaired, and how: every row of every table."""

from itertools import product

import pytest

from strandline.protocol import repairs
from strandline.protocol.repairs import Held, KeyRepair, RepairMode, RepairPlan, RepairStep

BOOLS = (False, True)
TRUTHS = (None, False, True)


@pytest.mark.parametrize(
    ("evicts", "first", "seen", "is_truth"),
    [
        (False, 0, False, True),
        (False, 1, False, True),
        (False, 99, False, True),
        (True, 0, False, True),  # nothing was ever written
        (True, 1, False, True),  # it could evict, and has not yet
        (True, 2, False, False),
        (True, 99, False, False),
        *((evicts, first, True, False) for evicts in BOOLS for first in (0, 1, 2, 99)),
    ],
)
def test_a_listing_is_the_truth_where_nothing_was_evicted(evicts: bool, first: int, seen: bool, is_truth: bool) -> None:
    assert repairs.listing_is_truth(first, evicts=evicts, seen=seen) == is_truth


def test_a_source_that_cannot_tell_is_unknown_unless_it_was_seen_to_evict() -> None:
    assert repairs.listing_truth(seen=False) is None
    assert repairs.listing_truth(seen=True) is False


@pytest.mark.parametrize(
    ("first", "removed", "in_order", "floor"),
    [
        (1, 0, True, 1),
        (1, 3, True, 1),
        (5, 3, True, 5),
        (1, 0, False, 1),
        (1, 1, False, 2),
        (0, 1, False, 2),
        (5, 1, False, 5),
    ],
)
def test_a_log_with_holes_does_not_vouch_for_its_beginning(
    first: int, removed: int, in_order: bool, floor: int
) -> None:
    assert repairs.listing_floor(first, removed, in_order=in_order) == floor


@pytest.mark.parametrize(("seen", "evicts"), [*product(BOOLS, repeat=2)])
def test_an_evicting_bucket_is_never_forgotten(seen: bool, evicts: bool) -> None:
    assert repairs.remember_evicting(seen=seen, evicts=evicts) == (seen or evicts)


PLANS = {
    (RepairMode.NONE, None): RepairPlan.RELIST_ONLY,
    (RepairMode.NONE, False): RepairPlan.RELIST_ONLY,
    (RepairMode.NONE, True): RepairPlan.RELIST_ONLY,
    (RepairMode.RELIST, None): RepairPlan.RELIST,
    (RepairMode.RELIST, False): RepairPlan.REFUSE_RELIST,
    (RepairMode.RELIST, True): RepairPlan.RELIST,
    (RepairMode.RESTORE, None): RepairPlan.RESTORE,
    (RepairMode.RESTORE, False): RepairPlan.RESTORE,
    (RepairMode.RESTORE, True): RepairPlan.RESTORE,
    (RepairMode.AUTO, None): RepairPlan.RESTORE,
    (RepairMode.AUTO, False): RepairPlan.RESTORE,
    (RepairMode.AUTO, True): RepairPlan.RELIST,
}


@pytest.mark.parametrize(("mode", "truth"), [*product(RepairMode, TRUTHS)])
def test_the_plan_follows_from_the_mode_and_the_listing(mode: RepairMode, truth: bool | None) -> None:
    assert repairs.plan_repair(mode, truth) == PLANS[mode, truth]


@pytest.mark.parametrize(("mode", "has_data", "truth", "can"), [*product(RepairMode, BOOLS, TRUTHS, BOOLS)])
def test_a_fold_without_a_cursor_is_repaired_if_it_has_data_or_an_artifact_may_have_more(
    mode: RepairMode, has_data: bool, truth: bool | None, can: bool
) -> None:
    seeded = (mode == RepairMode.RESTORE or (mode == RepairMode.AUTO and can)) and truth is False
    expected = mode != RepairMode.NONE and (has_data or seeded)
    assert repairs.cursorless_start_needs_repair(mode, truth, has_data=has_data, can_restore=can) == expected


@pytest.mark.parametrize(("artifact", "local", "first"), [*product(range(4), range(4), range(6))])
def test_a_restore_goes_forward_to_where_the_log_goes_on(artifact: int, local: int, first: int) -> None:
    assert repairs.restore_ahead(artifact, local) == (artifact > local)
    is_reached = not set(range(artifact + 1, first))
    assert repairs.restore_allowed(artifact, local, first) == (artifact > local and is_reached)


KEEP, TAKE, DELETE = KeyRepair.KEEP, KeyRepair.TAKE, KeyRepair.DELETE
SIDES = (None, Held(None), Held(1), Held(2))


@pytest.mark.parametrize(
    ("local", "artifact", "identical", "listed", "expected"),
    [
        *((None, None, identical, listed, KEEP) for identical in BOOLS for listed in BOOLS),
        *((None, held, identical, listed, TAKE) for held in SIDES[1:] for identical in BOOLS for listed in BOOLS),
        *((held, None, identical, False, DELETE) for held in SIDES[1:] for identical in BOOLS),
        *((held, None, identical, True, KEEP) for held in SIDES[1:] for identical in BOOLS),
        *((Held(2), Held(1), identical, listed, KEEP) for identical in BOOLS for listed in BOOLS),
        *((Held(1), Held(2), identical, listed, TAKE) for identical in BOOLS for listed in BOOLS),
        *((Held(1), Held(1), True, listed, KEEP) for listed in BOOLS),
        *((Held(1), Held(1), False, listed, TAKE) for listed in BOOLS),
        *((Held(None), held, True, listed, KEEP) for held in SIDES[1:] for listed in BOOLS),
        *((Held(None), held, False, listed, TAKE) for held in SIDES[1:] for listed in BOOLS),
        *((held, Held(None), True, listed, KEEP) for held in SIDES[2:] for listed in BOOLS),
        *((held, Held(None), False, listed, TAKE) for held in SIDES[2:] for listed in BOOLS),
    ],
)
def test_the_newer_of_a_key_wins_and_what_is_listed_stays(
    local: Held | None, artifact: Held | None, identical: bool, listed: bool, expected: KeyRepair
) -> None:
    assert repairs.restore_key(local, artifact, identical=identical, listed=listed) == expected


@pytest.mark.parametrize("left", [*product(BOOLS, repeat=4)])
def test_the_steps_of_a_repair_come_in_their_order(left: tuple[bool, bool, bool, bool]) -> None:
    undrained, unflushed, undiffed, uncommitted = left
    step = repairs.next_repair_step(
        undrained=undrained, unflushed=unflushed, undiffed=undiffed, uncommitted=uncommitted
    )
    assert step == next((step for step, is_left in zip(RepairStep, left, strict=False) if is_left), RepairStep.RESUME)


def test_a_log_that_holds_nothing_was_purged_if_it_never_evicts_and_the_fold_has_something() -> None:
    assert repairs.was_emptied(0, evicts=False, has_data=True)
    assert repairs.was_emptied(1, evicts=False, has_data=True, keeps_read=False)
    assert not repairs.was_emptied(1, evicts=True, has_data=True, keeps_read=False)
    assert not repairs.was_emptied(1, evicts=False, has_data=True)
    assert not repairs.was_emptied(None, evicts=False, has_data=True)
    assert not repairs.was_emptied(0, evicts=True, has_data=True)
    assert not repairs.was_emptied(0, evicts=False, has_data=False)
