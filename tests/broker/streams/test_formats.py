"""What is written is read back the same, and what is not ours is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.streams.checkpoint import StreamCheckpoint, format_checkpoint, parse_checkpoint
from strandline.broker.streams.index_file import capture, format_snapshot, parse_snapshot
from strandline.broker.streams.records import (
    Config,
    Control,
    Facts,
    Gone,
    KnownId,
    Placed,
    Sequence,
    format_control,
    from_ranges,
    parse_control,
    to_ranges,
)
from strandline.broker.streams.state import RemovalBatch, State
from strandline.errors import Damaged, FormatError
from tests.broker.streams.helpers import make

WORDS = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
KNOWN = st.builds(KnownId, st.binary(max_size=20), WORDS, TIMES)
RISING = st.sets(st.integers(1, 10_000), max_size=50).map(lambda some: np.array(sorted(some), np.uint64))


def _plain(control: Control) -> list[object]:
    return [part.tolist() if isinstance(part, np.ndarray) else part for part in control]


@given(
    st.one_of(
        st.builds(Sequence, WORDS),
        st.builds(Placed, RISING, st.booleans(), st.none()),
        RISING.map(lambda rising: Placed(rising, moved=True, dues=rising.astype(np.int64) - 1)),
        st.builds(Gone, TIMES, WORDS, RISING, st.booleans()),
        st.builds(Config, TIMES, st.binary(max_size=50)),
        st.builds(Facts, WORDS, TIMES, st.binary(max_size=20), st.lists(KNOWN, max_size=4).map(tuple)),
    )
)
def test_a_control_record_is_read_back(control: Control) -> None:
    found = parse_control(format_control(control))
    assert type(found) is type(control)
    assert _plain(found) == _plain(control)


@given(st.binary(max_size=60))
def test_what_is_no_control_record_is_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        control = parse_control(data)
    except FormatError:
        return
    assert format_control(control)


def test_a_later_version_is_refused() -> None:
    data = bytearray(format_control(Sequence(5)))
    data[1] = 2
    with pytest.raises(FormatError):
        parse_control(bytes(data))


@given(RISING)
def test_ranges_are_the_sequences(sequences: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
    assert from_ranges(to_ranges(sequences)).tolist() == sequences.tolist()


def test_a_checkpoint_is_read_back_and_damage_is_told() -> None:
    checkpoint = StreamCheckpoint(b"i" * 16, 5, 7, -1, 123, b'{"name":"S"}')
    data = format_checkpoint(checkpoint)
    assert parse_checkpoint(data, "front") == checkpoint
    for at in range(8, len(data)):
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises((Damaged, FormatError)):
            parse_checkpoint(broken, "front")
    with pytest.raises(Damaged):
        parse_checkpoint(data[:40], "front")
    with pytest.raises(FormatError):
        parse_checkpoint(b"something else", "front")
    for other in (b"STRANDLF\x02", b"STRANDLS\x01", b"STRANDLS\x03"):  # the version of the other magic, and a later one
        with pytest.raises(FormatError, match="version"):
            parse_checkpoint(other + data[9:], "front")


def _some_state() -> State:
    state = State(make(allow_msg_ttl=True), 100)
    state.configs = [(0, b"{}")]
    removals = RemovalBatch()
    for number, subject in enumerate([b"s.a", b"s.b", b"s.a", b"s.c"]):
        state.tick(200 + number)
        state.append_special(
            state.index.subjects.number(subject),
            50 + number,
            number,
            removals,
            identifier=b"id%d" % number,
            rollup=b"",
            ttl_s=[0, 5, -1, 0][number],
        )
    state.remove(np.array([2], np.uint64), removals)
    return state


def _lasts(state: State) -> dict[bytes, int]:
    subjects = state.index.subjects
    return {name: int(subjects.last[number]) for number, name in enumerate(subjects.names)}


def test_a_snapshot_is_read_back() -> None:
    state = _some_state()
    found = parse_snapshot(format_snapshot(capture(state), b"i" * 16, 9), b"i" * 16)
    assert found is not None
    again, place = found
    assert place == 9
    assert format_snapshot(capture(again), b"i" * 16, 9) == format_snapshot(capture(state), b"i" * 16, 9)
    assert _lasts(again) == _lasts(state) == {b"s.a": 3, b"s.b": 0, b"s.c": 4}
    assert (again.index.messages, again.index.bytes) == (state.index.messages, state.index.bytes)


def test_a_damaged_or_foreign_snapshot_is_as_good_as_none() -> None:
    data = format_snapshot(capture(_some_state()), b"i" * 16, 9)
    assert parse_snapshot(data, b"j" * 16) is None
    for at in range(0, len(data), 7):
        assert parse_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], b"i" * 16) is None
        assert parse_snapshot(data[:at], b"i" * 16) is None
