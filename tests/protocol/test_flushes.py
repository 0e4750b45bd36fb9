"""How a cursor follows what is stored."""

import pytest

from strandline.protocol import flushes
from strandline.protocol.flushes import Reopened


@pytest.mark.parametrize(
    ("high", "revision", "expected"), [(0, 1, 1), (3, 5, 5), (5, 3, 5), (5, None, 5), (0, None, 0), (0, 0, 0)]
)
def test_the_highest_revision_counts_and_an_unknown_one_does_not(
    high: int, revision: int | None, expected: int
) -> None:
    assert flushes.batch_high(high, revision) == expected


def test_what_could_not_be_stored_comes_before_what_came_since() -> None:
    assert flushes.requeue(["a", "b"], ["c"]) == ("a", "b", "c")
    assert flushes.requeue([], ["c"]) == ("c",)
    assert flushes.requeue(["a"], []) == ("a",)


@pytest.mark.parametrize(
    ("found", "before", "attempted", "expected"),
    [
        (3, 3, 5, Reopened.AGAIN),
        (5, 3, 5, Reopened.STORED),
        (3, 3, 3, Reopened.AGAIN),
        (2, 3, 5, Reopened.MOVED),
        (4, 3, 5, Reopened.MOVED),
        (9, 3, 5, Reopened.MOVED),
    ],
)
def test_a_store_opened_again_says_what_becomes_of_the_batch(
    found: int, before: int, attempted: int, expected: Reopened
) -> None:
    assert flushes.after_reopening(found, before, attempted) == expected


def test_a_watch_ends_after_sixteen_failures_in_a_row() -> None:
    assert [failures for failures in range(20) if flushes.gives_up(failures)] == [16, 17, 18, 19]
    assert flushes.gives_up(2, failures_max=2)
