"""The delta's bytes: what is written is what is read, and a changed byte is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged, FormatError
from strandline.groups.delta import (
    DELTA_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    BadFrame,
    DeltaHeader,
    Frame,
    format_delta_header,
    format_frame,
    frames_after,
    parse_delta_header,
    walk,
)
from strandline.groups.operations import format_acked

IDENTITY = bytes(range(16))
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
bodies = st.lists(st.integers(0, 2**40).map(lambda offset: format_acked([(offset, offset + 1)])), max_size=5)


def delta_of(frames: list[list[bytes]], base: int = 7) -> bytes:
    parts = [format_delta_header(DeltaHeader(IDENTITY, base, 1))]
    parts += [format_frame(IDENTITY, base + n, base, 100 + n, body) for n, body in enumerate(frames)]
    return b"".join(parts)


@given(st.binary(min_size=16, max_size=16), u64, i64)
def test_a_header_comes_back(identity: bytes, base: int, created_ns: int) -> None:
    header = DeltaHeader(identity, base, created_ns)
    data = format_delta_header(header)
    assert len(data) == DELTA_HEADER_BYTES
    assert parse_delta_header(data + b"frames", "x") == header


def test_a_header_with_any_bit_changed_is_refused() -> None:
    whole = format_delta_header(DeltaHeader(IDENTITY, 7, 1))
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Damaged, FormatError)):
            parse_delta_header(bytes(data), "x")


def test_a_header_cut_anywhere_is_damage_because_no_crash_could_tear_it() -> None:
    whole = format_delta_header(DeltaHeader(IDENTITY, 7, 1))
    for size in range(len(whole)):
        with pytest.raises(Damaged) as caught:
            parse_delta_header(whole[:size], "x")
        assert "repair_group" in caught.value.safe


@given(st.lists(bodies, max_size=6))
def test_frames_come_back_in_order(written: list[list[bytes]]) -> None:
    data = delta_of(written)
    frames = list(walk(data, DeltaHeader(IDENTITY, 7, 1)))
    assert [bytes(frame.operations) for frame in frames] == [b"".join(body) for body in written]
    assert [(frame.sequence, frame.durable_sequence, frame.written_ns) for frame in frames] == [
        (7 + n, 7, 100 + n) for n in range(len(written))
    ]
    assert (frames[-1].end if frames else DELTA_HEADER_BYTES) == len(data)


def test_a_frame_with_any_bit_changed_is_not_one() -> None:
    whole = delta_of([[format_acked([(1, 3)])]])
    for bit in range(8 * DELTA_HEADER_BYTES, 8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadFrame):
            list(walk(bytes(data), DeltaHeader(IDENTITY, 7, 1)))


def test_a_frame_of_another_group_is_not_one() -> None:
    data = delta_of([[format_acked([(1, 3)])]])
    with pytest.raises(BadFrame):
        list(walk(data, DeltaHeader(bytes(16), 7, 1)))
    assert list(frames_after(data, 0, DeltaHeader(bytes(16), 7, 1))) == []


def test_a_frame_out_of_turn_is_refused() -> None:
    data = delta_of([[], []], base=7)
    second = DELTA_HEADER_BYTES + FRAME_HEADER_BYTES
    for wrong in (data[:DELTA_HEADER_BYTES] + data[second:], data + data[second:]):
        with pytest.raises(BadFrame, match="belongs"):
            list(walk(wrong, DeltaHeader(IDENTITY, 7, 1)))


def test_whole_frames_are_found_behind_bad_bytes() -> None:
    body = [format_acked([(5, 6)])]
    data = bytearray(delta_of([body, body, body]))
    data[DELTA_HEADER_BYTES + 1] ^= 1
    found = list(frames_after(bytes(data), DELTA_HEADER_BYTES, DeltaHeader(IDENTITY, 7, 1)))
    assert [frame.sequence for frame in found] == [8, 9]
    assert all(isinstance(frame, Frame) for frame in found)
