"""Positions of journals and streams: written and read back, the same text for the same place, nothing foreign taken."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.nats.streams import StreamState
from strandline.spark.journals import log as journals
from strandline.spark.logs.positions import Position
from strandline.spark.streams import log as streams
from strandline.spark.streams.log import identity_of

IDENTITY = bytes(range(16)).hex()
STATE = StreamState("S", "2026-11-15T18:00:00.1Z", 1, 10, 10)


@given(st.binary(min_size=16, max_size=16), st.none() | st.integers(0, 2**63 - 1))
def test_a_position_in_a_journal_survives_the_checkpoint(identity: bytes, offset: int | None) -> None:
    position = Position((identity.hex(),), offset)
    assert journals.POSITIONS.parse(json.loads(json.dumps(journals.POSITIONS.format(position)))) == position


@given(st.text(), st.text(), st.none() | st.integers(0, 2**63))
def test_a_position_in_a_stream_survives_the_checkpoint(stream: str, created: str, sequence: int | None) -> None:
    position = Position((stream, created), sequence)
    assert streams.POSITIONS.parse(json.loads(json.dumps(streams.POSITIONS.format(position)))) == position


def test_t4_equal_positions_are_equal_texts() -> None:
    text = json.dumps(journals.POSITIONS.format(Position((IDENTITY,), 7)))
    assert text == '{"journal": "000102030405060708090a0b0c0d0e0f", "offset": 7}'
    other_way_round = {"offset": 7, "journal": IDENTITY}
    assert json.dumps(journals.POSITIONS.format(journals.POSITIONS.parse(other_way_round))) == text
    assert json.dumps(streams.POSITIONS.format(Position(identity_of(STATE), 11))) == (
        '{"stream": "S", "created": "2026-11-15T18:00:00.1Z", "sequence": 11}'
    )
    assert streams.POSITIONS.format(Position(identity_of(STATE), None))["sequence"] == "earliest"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rev": 7},
        {"journal": "00", "offset": 7},
        {"journal": IDENTITY, "offset": -1},
        {"journal": IDENTITY, "offset": "latest"},
        {"journal": IDENTITY, "offset": True},
        {"journal": IDENTITY, "offset": 7, "shard": 1},
        {"journal": 5, "offset": 7},
        {"stream": "S", "created": "t", "sequence": 1},
    ],
)
def test_a_position_of_another_source_is_none_in_a_journal(fields: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="not a position in a journal"):
        journals.POSITIONS.parse(fields)


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
def test_a_position_of_another_source_is_none_in_a_stream(fields: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="not a position in a stream") as refusal:
        streams.POSITIONS.parse(fields)
    assert "checkpointLocation" in str(refusal.value.hint)


def test_a_stream_made_again_is_another() -> None:
    again = replace(STATE, created="2026-11-15T18:00:00.2Z")
    assert identity_of(STATE) == ("S", "2026-11-15T18:00:00.1Z")
    assert len({identity_of(STATE), identity_of(again), identity_of(replace(STATE, name="T"))}) == 3
