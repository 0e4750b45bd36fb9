"""How a fold goes on, decided from its mark and what the bucket says of itself."""

import pytest

from strandline.fold.cursor import FoldCursor
from strandline.fold.repair.decisions import (
    Basis,
    Course,
    decide,
    decide_expired,
    floor,
    foreign_reason,
    is_young,
    may_list,
)
from strandline.kv import Retention
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairMode, RepairPlan

ID, OTHER = b"identity", b"another!"
KEEPS = Retention(evicts_current_values=False, first_revision=5, last_revision=9, identity=ID, updates=3)
AGES = Retention(True, 5, 9, age_only=True, age_max_ns=100, identity=ID, updates=5)
AUTO, RELIST, RESTORE, NONE = RepairMode.AUTO, RepairMode.RELIST, RepairMode.RESTORE, RepairMode.NONE


def course(
    mark: FoldCursor,
    retention: Retention | None,
    mode: RepairMode = AUTO,
    *,
    has_data: bool = True,
    can_restore: bool = True,
) -> Course:
    return decide(mark, retention, mode, 0, has_data=has_data, can_restore=can_restore).course


@pytest.mark.parametrize(
    ("mark", "retention", "expected"),
    [
        (FoldCursor(5, identity=ID), KEEPS, Course.RESUME),
        (FoldCursor(4, identity=ID), KEEPS, Course.REPAIR),
        (FoldCursor(4, identity=ID, seen_evicting=True), KEEPS, Course.RESUME),
        (FoldCursor(9, identity=ID), KEEPS, Course.RESUME),
        (FoldCursor(5), KEEPS, Course.RESUME),
        (FoldCursor(4, identity=ID), None, Course.RESUME),
        (FoldCursor(3, identity=ID), KEEPS, Course.REPAIR),
        (FoldCursor(10, identity=ID), KEEPS, Course.FORGET),
        (FoldCursor(4, identity=OTHER), KEEPS, Course.FORGET),
        (FoldCursor(0, identity=OTHER), KEEPS, Course.FORGET),
        (FoldCursor(0), KEEPS, Course.REPAIR),
    ],
)
def test_where_a_fold_with_data_goes_on(mark: FoldCursor, retention: Retention | None, expected: Course) -> None:
    assert course(mark, retention) is expected


def test_an_empty_archive_begins_anew_unless_the_bucket_has_evicted_and_there_may_be_an_artifact() -> None:
    assert course(FoldCursor(), KEEPS, has_data=False) is Course.ANEW
    assert course(FoldCursor(), AGES, has_data=False) is Course.REPAIR
    assert course(FoldCursor(), AGES, has_data=False, can_restore=False) is Course.ANEW
    assert course(FoldCursor(), AGES, RESTORE, has_data=False, can_restore=False) is Course.REPAIR
    assert course(FoldCursor(), AGES, RELIST, has_data=False) is Course.ANEW
    assert course(FoldCursor(), AGES, NONE, has_data=False) is Course.ANEW
    assert course(FoldCursor(), None, has_data=False) is Course.ANEW


def test_a_bucket_that_holds_nothing_was_purged_if_the_fold_has_something() -> None:
    empty = Retention(False, 10, 9, identity=ID, updates=0)
    assert course(FoldCursor(9, identity=ID), empty) is Course.REPAIR
    assert course(FoldCursor(9, identity=ID), empty, has_data=False) is Course.RESUME


@pytest.mark.parametrize(
    ("mode", "seen", "retention", "plan"),
    [
        (AUTO, False, KEEPS, RepairPlan.RELIST),
        (AUTO, True, KEEPS, RepairPlan.RESTORE),
        (AUTO, False, AGES, RepairPlan.RESTORE),
        (AUTO, False, None, RepairPlan.RESTORE),
        (RELIST, False, None, RepairPlan.RELIST),
        (RELIST, True, None, RepairPlan.REFUSE_RELIST),
        (RELIST, False, AGES, RepairPlan.REFUSE_RELIST),
        (RESTORE, False, KEEPS, RepairPlan.RESTORE),
        (NONE, True, AGES, RepairPlan.RELIST_ONLY),
    ],
)
def test_from_what_an_expired_fold_is_repaired(
    mode: RepairMode, seen: bool, retention: Retention | None, plan: RepairPlan
) -> None:
    assert decide_expired(FoldCursor(1, seen), retention, mode, 0).plan == plan


@pytest.mark.parametrize(("mode", "plan"), [(AUTO, RepairPlan.RELIST), (RELIST, RepairPlan.RELIST)])
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("retention", [KEEPS, AGES, None])
def test_an_expired_mirror_is_repaired_from_the_listing_whatever_the_bucket_does(
    mode: RepairMode, plan: RepairPlan, seen: bool, retention: Retention | None
) -> None:
    mirror = FoldCursor(1, seen, mode=FoldMode.MIRROR)
    assert decide_expired(mirror, retention, mode, 0).plan == plan
    assert course(FoldCursor(0, seen, mode=FoldMode.MIRROR), retention, mode, has_data=False) is Course.ANEW


def test_a_young_cursor_skips_a_gap_where_age_alone_evicts() -> None:
    assert decide_expired(FoldCursor(1, since_ns=1000), AGES, AUTO, 1050).course is Course.SKIP_GAP
    assert decide_expired(FoldCursor(1, since_ns=1000), AGES, AUTO, 1051).course is Course.REPAIR
    assert not is_young(FoldCursor(1), AGES, 50), "a time that is not known is no time"
    assert not is_young(FoldCursor(1, since_ns=1000), AGES, 999), "a clock that went back tells nothing"
    assert not is_young(FoldCursor(1, since_ns=1000), KEEPS, 1001)


def test_a_listing_counts_only_if_it_still_does_after_it_was_read() -> None:
    basis = Basis(evicts=False, seen=False)
    assert may_list(basis, KEEPS, AUTO, RepairPlan.RELIST)
    assert not may_list(basis, AGES, AUTO, RepairPlan.RELIST)
    assert may_list(basis, AGES, AUTO, None), "a first copy always counts"
    assert not may_list(basis, AGES, RESTORE, None)
    assert may_list(basis, AGES, RELIST, None)
    assert may_list(basis._replace(mode=FoldMode.MIRROR), AGES, AUTO, RepairPlan.RELIST)
    assert may_list(Basis(evicts=True, seen=False), Retention(True, 1, 9, updates=9), AUTO, None)


def test_messages_that_expire_one_by_one_leave_no_trace_but_their_number() -> None:
    whole = Retention(True, 1, 9, updates=9, in_order=False)
    assert floor(whole) == 1
    assert floor(Retention(True, 1, 9, updates=8, in_order=False)) == 2
    assert floor(Retention(True, 1, 9, updates=8)) == 1
    assert floor(Retention(True, 1, 9, in_order=False)) == 2, "what is not known counts as missing"


def test_why_a_mark_is_of_another_log_is_said() -> None:
    assert foreign_reason(FoldCursor(9, identity=ID), KEEPS) is None
    assert "created again" in (foreign_reason(FoldCursor(9, identity=OTHER), KEEPS) or "")
    assert "ends at revision 9" in (foreign_reason(FoldCursor(10, identity=ID), KEEPS) or "")
    assert foreign_reason(FoldCursor(99), None) is None
