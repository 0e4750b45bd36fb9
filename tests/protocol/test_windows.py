"""Whether a log still reaches back to a revision: every case of a small table, and the ends of 64 bits."""

from itertools import product

import pytest

from strandline.protocol.windows import (
    REVISION_MAX,
    gap_holds_no_eviction,
    is_gapped,
    is_other_log,
    proven_frontier,
    resume_start_sequence,
    resume_window_ok,
)


@pytest.mark.parametrize(("revision", "first"), [*product(range(6), repeat=2)])
def test_a_window_is_open_if_nothing_is_missing_after_the_revision(revision: int, first: int) -> None:
    missing = set(range(revision + 1, first))
    assert resume_window_ok(revision, first) == (not missing)


@pytest.mark.parametrize(
    ("revision", "first", "is_open"),
    [
        (REVISION_MAX, REVISION_MAX, True),
        (REVISION_MAX - 1, REVISION_MAX, True),
        (REVISION_MAX - 2, REVISION_MAX, False),
        (REVISION_MAX, 0, True),
        (0, 1, True),
        (0, 2, False),
    ],
)
def test_a_window_saturates_at_the_last_revision(revision: int, first: int, is_open: bool) -> None:
    assert resume_window_ok(revision, first) == is_open


def test_a_reader_goes_on_at_the_next_revision_and_never_at_zero() -> None:
    assert [resume_start_sequence(revision) for revision in (0, 1, 41)] == [1, 2, 42]
    assert resume_start_sequence(REVISION_MAX - 1) == REVISION_MAX
    assert resume_start_sequence(REVISION_MAX) is None


@pytest.mark.parametrize(
    ("age_only", "age_max", "cursor_age"), [*product((True, False), range(5), range(5)), (True, 10, 5), (True, 10, 6)]
)
def test_a_hole_is_young_if_only_age_evicts_and_the_cursor_has_half_of_it_left(
    age_only: bool, age_max: int, cursor_age: int
) -> None:
    expected = age_only and age_max != 0 and cursor_age <= age_max / 2
    assert gap_holds_no_eviction(age_max, cursor_age, age_only=age_only) == expected


@pytest.mark.parametrize(("frontier", "revision"), [*product(range(5), repeat=2)])
def test_a_revision_is_gapped_if_one_lies_between_it_and_the_frontier(frontier: int, revision: int) -> None:
    assert is_gapped(frontier, revision) == bool(set(range(frontier + 1, revision)))


def test_nothing_is_gapped_at_the_last_revision() -> None:
    assert not is_gapped(REVISION_MAX, REVISION_MAX)
    assert not is_gapped(REVISION_MAX - 1, REVISION_MAX)
    assert is_gapped(REVISION_MAX - 2, REVISION_MAX)


@pytest.mark.parametrize(
    ("delivered", "sentinel", "awaited", "frontier"),
    [
        (0, 0, None, 0),
        (3, 0, None, 3),  # the sentinel is slower, and holds nothing back
        (3, 7, None, 7),  # what came since is not ours
        (3, 7, 5, 4),  # one of ours is to come
        (3, 7, 4, 3),
        (3, 4, 4, 3),
    ],
)
def test_the_frontier_passes_what_is_others_and_waits_for_what_is_ours(
    delivered: int, sentinel: int, awaited: int | None, frontier: int
) -> None:
    assert proven_frontier(delivered, sentinel, awaited) == frontier


def test_a_cursor_of_another_log_is_noticed_by_its_identity_or_because_the_log_ends_before_it() -> None:
    assert not is_other_log(5, 5, same_identity=True)
    assert not is_other_log(0, 0, same_identity=True)
    assert is_other_log(6, 5, same_identity=True)
    assert is_other_log(3, 5, same_identity=False)
