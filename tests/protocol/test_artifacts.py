"""When a pointer may move, and what may be removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol import artifacts as rules
from strandline.protocol.artifacts import PointerState

RANKS = st.integers(0, 2**64 - 1)


@given(RANKS, RANKS)
def test_a_pointer_never_moves_back(current: int, candidate: int) -> None:
    assert rules.pointer_publish_allowed(None, candidate)
    assert rules.pointer_publish_allowed(PointerState(None), candidate)
    assert rules.pointer_publish_allowed(PointerState(current), candidate) == (candidate >= current)


@given(RANKS, RANKS, st.booleans())
def test_what_was_removed_can_never_be_published(rank: int, pointer: int, is_target: bool) -> None:
    if rules.payload_prunable(rank, pointer, is_target=is_target, is_aged=True):
        assert not is_target
        assert not rules.pointer_publish_allowed(PointerState(pointer), rank)


@pytest.mark.parametrize(
    ("rank", "is_target", "is_aged", "prunable"),
    [
        (4, False, True, True),
        (4, True, True, False),
        (4, False, False, False),
        (5, False, True, False),
        (6, False, True, False),
        (None, False, True, False),
    ],
)
def test_what_may_be_removed(rank: int | None, is_target: bool, is_aged: bool, prunable: bool) -> None:
    assert rules.payload_prunable(rank, 5, is_target=is_target, is_aged=is_aged) is prunable


def test_only_files_of_the_target_may_be_shared() -> None:
    assert rules.shared_files_allowed(set(), set())
    assert rules.shared_files_allowed({"a"}, {"a", "b"})
    assert not rules.shared_files_allowed({"a", "c"}, {"a", "b"})


def test_a_lease_is_free_when_it_has_expired_or_was_given_back() -> None:
    assert not rules.lease_is_free(9.9, 10.0, released=False)
    assert rules.lease_is_free(10.0, 10.0, released=False)
    assert rules.lease_is_free(0.0, 10.0, released=True)
