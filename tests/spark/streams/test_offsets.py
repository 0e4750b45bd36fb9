"""Positions: what is written is read back, in a fixed order, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.nats.streams import StreamState
from strandline.spark.streams.offsets import Position, format_position, parse_position, position_in

STATE = StreamState("S", "2026-11-15T18:00:00.1Z", 1, 10, 10)


@given(st.text(), st.text(), st.none() | st.integers(0, 2**63))
def test_a_position_is_read_back(stream: str, created: str, sequence: int | None) -> None:
    position = Position(stream, created, sequence)
    assert parse_position(json.loads(json.dumps(format_position(position)))) == position


def test_t4_the_text_of_a_position_is_fixed() -> None:
    assert json.dumps(format_position(position_in(STATE, 11))) == (
        '{"stream": "S", "created": "2026-11-15T18:00:00.1Z", "sequence": 11}'
    )
    assert format_position(position_in(STATE, None))["sequence"] == "earliest"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"journal": "00", "offset": 1},
        {"stream": "S", "created": "t", "sequence": -1},
        {"stream": "S", "created": "t", "sequence": True},
        {"stream": "S", "created": "t", "sequence": "latest"},
        {"stream": "S", "created": None, "sequence": 1},
        {"stream": "S", "created": "t", "sequence": 1, "more": 1},
    ],
)
def test_what_is_no_position_is_refused_with_a_hint(fields: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="not a position in a stream") as refusal:
        parse_position(fields)
    assert "checkpointLocation" in str(refusal.value.hint)


def test_a_stream_made_again_is_another() -> None:
    assert position_in(STATE, 3).is_of(STATE)
    assert not Position("S", "2026-11-15T18:00:00.2Z", 3).is_of(STATE)
    assert not Position("T", STATE.created, 3).is_of(STATE)
