"""What a fold makes of retention, decided: modes, what has left, and from where on a first copy is complete."""

import pytest

from strandline.protocol import fold_modes
from strandline.protocol.fold_modes import FoldMode

UNKNOWN, MIRROR, ARCHIVE = FoldMode.UNKNOWN, FoldMode.MIRROR, FoldMode.ARCHIVE


@pytest.mark.parametrize(
    ("stored", "wanted", "seen", "chosen"),
    [
        (UNKNOWN, None, False, MIRROR),
        (UNKNOWN, None, True, ARCHIVE),
        (UNKNOWN, MIRROR, True, MIRROR),
        (UNKNOWN, ARCHIVE, False, ARCHIVE),
        (MIRROR, None, True, MIRROR),
        (ARCHIVE, None, False, ARCHIVE),
        (ARCHIVE, MIRROR, False, ARCHIVE),
    ],
)
def test_the_mode_of_a_fold(stored: FoldMode, wanted: FoldMode | None, seen: bool, chosen: FoldMode) -> None:
    assert fold_modes.chosen_mode(stored, wanted, seen_evicting=seen) is chosen


@pytest.mark.parametrize(
    ("stored", "wanted", "asked", "may"),
    [
        (UNKNOWN, ARCHIVE, False, True),
        (MIRROR, None, False, True),
        (MIRROR, MIRROR, False, True),
        (MIRROR, ARCHIVE, False, False),
        (MIRROR, ARCHIVE, True, False),
        (ARCHIVE, MIRROR, False, False),
        (ARCHIVE, MIRROR, True, True),
    ],
)
def test_when_a_mode_may_change(stored: FoldMode, wanted: FoldMode | None, asked: bool, may: bool) -> None:
    assert fold_modes.may_change_mode(stored, wanted, asked=asked) is may


@pytest.mark.parametrize("truth", [True, False, None])
def test_a_listing_counts_for_a_mirror_whatever_the_bucket_does(truth: bool | None) -> None:
    assert fold_modes.listing_counts(MIRROR, truth) is True
    assert fold_modes.listing_counts(ARCHIVE, truth) is truth
    assert fold_modes.listing_counts(UNKNOWN, truth) is truth


@pytest.mark.parametrize(
    ("mode", "revision", "expires", "drops", "left"),
    [
        (MIRROR, 4, 0, True, True),
        (MIRROR, 5, 0, True, False),
        (MIRROR, 9, 100, False, True),
        (MIRROR, 9, 101, False, False),
        (MIRROR, 0, 0, True, False),
        (ARCHIVE, 4, 0, False, True),
        (ARCHIVE, 4, 0, True, False),
        (ARCHIVE, 4, 1, False, False),
        (ARCHIVE, 9, 1, False, False),
        (UNKNOWN, 4, 0, True, False),
    ],
)
def test_what_has_left_where_the_log_begins_at_5_and_it_is_100(
    mode: FoldMode, revision: int, expires: int, drops: bool, left: bool
) -> None:
    assert fold_modes.has_left(mode, revision, expires, first=5, now_ns=100, drops=drops) is left


@pytest.mark.parametrize(
    ("first", "evicts", "in_order", "removed", "complete"),
    [
        (5, False, True, 3, 1),
        (1, True, True, 3, 1),
        (1, True, False, 0, 1),
        (5, True, True, 0, 5),
        (1, True, False, 1, 10),
        (5, True, False, 0, 10),
    ],
)
def test_from_where_on_a_first_copy_is_complete(
    first: int, evicts: bool, in_order: bool, removed: int, complete: int
) -> None:
    found = fold_modes.first_copy_is_complete_from(first, 9, evicts=evicts, in_order=in_order, removed=removed)
    assert found == complete


def test_a_fold_is_settled_when_it_has_reached_the_end_that_was_seen() -> None:
    assert [fold_modes.is_settled(cursor, 5) for cursor in (4, 5, 6)] == [False, True, True]
    assert [fold_modes.follows_expiry(mode) for mode in (MIRROR, ARCHIVE)] == [True, False]
