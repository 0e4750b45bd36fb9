"""The share of a connection: little is read at once of what costs much, and much of what costs little."""

import pytest

from strandline.broker.sockets.read_size import (
    BULK_SLICE_S,
    LATER_BYTES_MIN,
    READ_BYTES_FIRST,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    SLICE_S,
    ReadSizer,
)


def _read(share: ReadSizer, s_per_byte: float, later_s_per_byte: float = 0.0) -> float:
    """Read as much as the share allows, of something at a price; return the processor time that it took."""
    size = share.next_size(later_s_per_byte)
    share.record(size, size * s_per_byte)
    return size * (s_per_byte + later_s_per_byte)


@pytest.mark.parametrize("s_per_byte", [1e-7, 1e-6, 1.5e-5])
def test_what_costs_much_takes_a_slice_from_the_second_read_on(s_per_byte: float) -> None:
    share = ReadSizer()
    _read(share, s_per_byte)
    assert all(_read(share, s_per_byte) <= SLICE_S for _ in range(100))
    assert _read(share, s_per_byte) >= SLICE_S / 4


def test_what_is_done_after_the_read_counts_as_well() -> None:
    share = ReadSizer()
    for _ in range(6):
        _read(share, 1e-9)
    assert share.size == READ_BYTES_MAX
    taken = [_read(share, 1e-9, 1e-7) for _ in range(100)]
    assert max(taken[2:]) <= SLICE_S


@pytest.mark.parametrize("later_s_per_byte", [1e-6, 1e-4, 1.0])
def test_what_others_cost_after_the_read_takes_a_share_only_so_far(later_s_per_byte: float) -> None:
    share = ReadSizer()
    for _ in range(100):
        _read(share, 1e-9, later_s_per_byte)
    assert share.next_size(later_s_per_byte) == LATER_BYTES_MIN
    for _ in range(3):
        _read(share, 1.0)
    assert share.next_size(0.0) == READ_BYTES_MIN
    for _ in range(100):
        _read(share, 1e-9, later_s_per_byte)
    assert share.next_size(later_s_per_byte) == LATER_BYTES_MIN, "it grows again, whatever others cost"


def test_a_price_that_no_size_makes_good_is_read_in_the_smallest_pieces() -> None:
    share = ReadSizer()
    for _ in range(3):
        _read(share, 1.0)
    assert share.next_size(0.0) == READ_BYTES_MIN


def test_what_costs_little_is_soon_read_as_a_whole() -> None:
    share = ReadSizer()
    assert share.next_size(0.0) == READ_BYTES_FIRST
    for _ in range(5):
        _read(share, 1e-9)
    assert share.next_size(0.0) == READ_BYTES_MAX


def test_messages_in_bulk_have_a_longer_slice() -> None:
    share = ReadSizer()
    taken = [_read(share, 12e-9) for _ in range(20)]
    assert SLICE_S < max(taken) <= BULK_SLICE_S
    assert share.next_size(0.0) == READ_BYTES_MAX


def test_a_client_that_sends_little_keeps_its_size() -> None:
    share = ReadSizer()
    for _ in range(100):
        share.next_size(0.0)
        share.record(6, 1e-5)
    assert share.next_size(0.0) == READ_BYTES_FIRST


def test_a_cost_of_every_piece_does_not_make_pieces_smaller_and_smaller() -> None:
    share = ReadSizer()
    for number in range(200):
        size = share.next_size(0.0)
        share.record(size, 1e-3 + size * (5e-7 if number == 20 else 45e-9))
    assert share.next_size(0.0) >= READ_BYTES_FIRST
