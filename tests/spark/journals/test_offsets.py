"""Positions of a stream: the same text for the same place, and nothing foreign taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.spark.journals.offsets import StreamOffset, format_offset, parse_offset

IDENTITY = bytes(range(16))


@given(st.binary(min_size=16, max_size=16), st.none() | st.integers(0, 2**63 - 1))
def test_a_position_survives_the_checkpoint(identity: bytes, offset: int | None) -> None:
    position = StreamOffset(identity, offset)
    assert parse_offset(json.loads(json.dumps(format_offset(position)))) == position


def test_t4_equal_positions_are_equal_texts() -> None:
    text = json.dumps(format_offset(StreamOffset(IDENTITY, 7)))
    assert text == '{"journal": "000102030405060708090a0b0c0d0e0f", "offset": 7}'
    other_way_round = {"offset": 7, "journal": IDENTITY.hex()}
    assert json.dumps(format_offset(parse_offset(other_way_round))) == text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rev": 7},
        {"journal": "00", "offset": 7},
        {"journal": IDENTITY.hex(), "offset": -1},
        {"journal": IDENTITY.hex(), "offset": "latest"},
        {"journal": IDENTITY.hex(), "offset": True},
        {"journal": IDENTITY.hex(), "offset": 7, "shard": 1},
        {"journal": 5, "offset": 7},
    ],
)
def test_what_another_source_wrote_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="not a position"):
        parse_offset(fields)
