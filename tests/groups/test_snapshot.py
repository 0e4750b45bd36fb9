"""The snapshot's bytes: what is written is what is read, and anything else is a typed error."""

import random
import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged, FormatError
from strandline.groups import GroupState, Scheduled
from strandline.groups.acks import Acks
from strandline.groups.schedule import format_scheduled
from strandline.groups.snapshot import SNAPSHOT_HEADER_BYTES, Snapshot, format_snapshot, is_removed, parse_snapshot
from strandline.groups.state import Captured
from tests.groups.helpers import facts

IDENTITY = bytes(range(16))
times = st.integers(0, 2**63 - 2)
counts = st.integers(1, 2**32 - 1)
far = st.one_of(st.integers(0, 50), st.integers(2**40, 2**40 + 50), st.just(2**63 - 2))


@st.composite
def states(draw: st.DrawFn) -> GroupState:
    state = GroupState()
    state.ack_below(draw(st.integers(0, 20)))
    state.ack_many(draw(st.lists(far)))
    for offset, time_ns, deliveries, waits in draw(st.lists(st.tuples(far, times, counts, st.booleans()))):
        (state.put_waiting if waits else state.put_inflight)(offset, time_ns, deliveries)
    return state


def snapshot_of(state: GroupState, *, removed: bool = False) -> Snapshot:
    return Snapshot("größe/1", IDENTITY, 12, 34, state.capture(), removed)


@given(states(), st.booleans())
def test_everything_comes_back(state: GroupState, removed: bool) -> None:
    data = format_snapshot(snapshot_of(state, removed=removed))
    parsed = parse_snapshot(data, "x")
    assert (parsed.name, parsed.identity, parsed.sequence, parsed.created_ns) == ("größe/1", IDENTITY, 12, 34)
    assert parsed.removed == is_removed(data) == removed
    assert facts(GroupState(*parsed.captured)) == facts(state)
    assert format_snapshot(parsed) == data


@pytest.mark.parametrize("acked", [[(3, 4)], [(3, 5)], [(511, 513)], [(1, 2), (3, 4)], [(512, 1024)], [(1, 100_000)]])
def test_an_exclusive_end_is_read_back_as_exclusive(acked: list[tuple[int, int]]) -> None:
    state = GroupState()
    for start, end in acked:
        state.ack_range(start, end)
    again = GroupState(*parse_snapshot(format_snapshot(snapshot_of(state)), "x").captured)
    assert again.acked_ranges() == acked
    for start, end in acked:
        assert not again.is_acked(start - 1)
        assert again.is_acked(end - 1)
        assert not again.is_acked(end)


def example() -> bytes:
    state = GroupState()
    state.ack_below(3)
    state.ack_many([7, 8, 600])
    state.mark_many([4, 9], 1_000)
    state.nack(9, 2_000)
    return format_snapshot(snapshot_of(state))


def test_a_snapshot_cut_anywhere_is_damage() -> None:
    whole = example()
    for size in range(len(whole)):
        with pytest.raises(Damaged):
            parse_snapshot(whole[:size], "x")


def test_a_snapshot_with_any_bit_changed_is_refused() -> None:
    whole = example()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Damaged, FormatError)):
            parse_snapshot(bytes(data), "x")


def test_another_kind_of_file_is_refused() -> None:
    for data in (b"hello", bytes(200), b"STRANDLJ" + bytes(200)):
        with pytest.raises(FormatError, match="not a group's snapshot"):
            parse_snapshot(data, "x")


def sealed(data: bytes) -> bytes:
    """Return the data with the right checksum in it."""
    return data[:12] + struct.pack("<I", crc32c(data[16:], crc32c(data[:12]))) + data[16:]


def test_a_later_version_is_refused_by_name() -> None:
    data = example()
    with pytest.raises(FormatError, match="version 2"):
        parse_snapshot(sealed(data[:8] + struct.pack("<H", 2) + data[10:]), "x")


def test_nonsense_under_a_right_checksum_is_data_or_a_typed_error() -> None:
    whole = example()
    bodies = range(16, len(whole))
    # A range of the right shape may be as long as it says, which takes its time: its high bytes are left alone.
    name_bytes = 16
    ranges = range(SNAPSHOT_HEADER_BYTES + name_bytes, SNAPSHOT_HEADER_BYTES + name_bytes + 32)
    places = [at for at in bodies if at not in ranges or (at - ranges.start) % 8 < 3]
    for seed in range(2000):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.choice(places)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        try:
            parsed = parse_snapshot(sealed(bytes(data)), "x")
        except (Damaged, FormatError):
            continue
        assert facts(GroupState(*parsed.captured)), f"seed {seed}"


def captured(
    acked: Sequence[tuple[int, int]] = (), inflight: Sequence[Scheduled] = (), waiting: Sequence[Scheduled] = ()
) -> Captured:
    acks = Acks()
    for start, end in acked:
        acks.add_range(start, end)
    return Captured(
        acks, [format_scheduled(entry) for entry in inflight], [format_scheduled(entry) for entry in waiting]
    )


@pytest.mark.parametrize(
    "nonsense",
    [
        captured(inflight=[Scheduled(5, 1, 0)]),
        captured(inflight=[Scheduled(5, 1, 1), Scheduled(6, 1, 1)]),
        captured(inflight=[Scheduled(5, 1, 1)], waiting=[Scheduled(6, 1, 1)]),
        captured(acked=[(0, 2)], inflight=[Scheduled(5, 1, 1)]),
        captured(acked=[(3, 9)], waiting=[Scheduled(5, 8, 1)]),
        captured(acked=[(3, 9)], waiting=[Scheduled(5, 3, 1)]),
        captured(inflight=[Scheduled(5, 2**63 - 1, 1)]),
        captured(inflight=[Scheduled(2**63 - 1, 1, 1)]),
    ],
)
def test_what_a_group_cannot_know_is_damage(nonsense: Captured) -> None:
    data = format_snapshot(Snapshot("x", IDENTITY, 0, 0, nonsense))
    with pytest.raises(Damaged, match="the checksum is right, yet"):
        parse_snapshot(data, "x")


def test_the_neighbours_of_a_range_are_not_in_it() -> None:
    neighbours = captured(acked=[(3, 9)], waiting=[Scheduled(5, 2, 1), Scheduled(5, 9, 1)])
    assert parse_snapshot(format_snapshot(Snapshot("x", IDENTITY, 0, 0, neighbours)), "x").captured.waiting


@pytest.mark.parametrize(
    "rows", [[(5, 5)], [(5, 4)], [(0, 4)], [(3, 5), (5, 7)], [(7, 9), (3, 5)], [(3, 2**63)], [(1, 2**62)]]
)
def test_ranges_that_touch_overlap_or_lead_nowhere_are_damage(rows: list[tuple[int, int]]) -> None:
    data = bytearray(format_snapshot(Snapshot("x" * 8, IDENTITY, 0, 0, captured())))
    struct.pack_into("<Q", data, 56, len(rows))
    data += b"".join(struct.pack("<QQ", *row) for row in rows)
    with pytest.raises(Damaged, match="range"):
        parse_snapshot(sealed(bytes(data)), "x")


def test_counters_come_back_in_order() -> None:
    counters = {7: 1, 2: 2**62, 0: 0}
    data = format_snapshot(Snapshot("g", bytes(16), 5, 6, Captured(Acks(3), [], [], counters)))

    assert parse_snapshot(data, "x").captured.counters == counters


@pytest.mark.parametrize("rows", [[(3, 1), (3, 2)], [(3, 1), (2, 1)], [(2**63, 1)], [(1, 2**63)]])
def test_counters_that_cannot_be_are_damage(rows: list[tuple[int, int]]) -> None:
    numbers = dict.fromkeys(range(len(rows)), 1)
    data = format_snapshot(Snapshot("g", bytes(16), 5, 6, Captured(Acks(3), [], [], numbers)))
    tail = b"".join(struct.pack("<QQ", *row) for row in rows)

    with pytest.raises(Damaged):
        parse_snapshot(sealed(data[: -len(tail)] + tail), "x")
