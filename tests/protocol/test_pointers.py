"""When a pointer moves and a payload goes: every row, and that the two rules fit together."""

from itertools import product

import pytest

from strandline.protocol.pointers import Pointer, payload_prunable, pointer_publish_allowed


@pytest.mark.parametrize("candidate", range(4))
def test_a_pointer_never_moves_to_something_older(candidate: int) -> None:
    assert pointer_publish_allowed(None, candidate)
    assert pointer_publish_allowed(Pointer(None), candidate)
    for rank in range(4):
        assert pointer_publish_allowed(Pointer(rank), candidate) == (candidate in range(rank, 4))


@pytest.mark.parametrize(("rank", "target", "aged"), [*product((None, 0, 4, 5, 6), (False, True), (False, True))])
def test_a_payload_goes_only_if_it_is_known_old_and_unused(rank: int | None, target: bool, aged: bool) -> None:
    expected = (rank, target, aged) in {(0, False, True), (4, False, True)}
    assert payload_prunable(rank, 5, target=target, aged=aged) == expected


@pytest.mark.parametrize(("rank", "pointer", "later"), [*product(range(4), repeat=3)])
def test_what_was_pruned_can_never_be_published_again(rank: int, pointer: int, later: int) -> None:
    if payload_prunable(rank, pointer, target=False, aged=True) and pointer_publish_allowed(Pointer(pointer), later):
        assert not pointer_publish_allowed(Pointer(later), rank)
