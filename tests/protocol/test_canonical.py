"""The canonical encoding: one value, one string of bytes; and BLAKE3 under a context."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.protocol.canonical import (
    Plain,
    canonical_value,
    derive_64,
    prefixed,
    to_signed,
    to_unsigned,
    u8,
    u32,
    u64,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def typed(value: Plain) -> object:
    """Return a value in which 1, 1.0 and True differ, as they do in the encoding."""
    if isinstance(value, Mapping):
        return "map", frozenset((key, typed(item)) for key, item in value.items())
    if isinstance(value, list):
        return "list", tuple(map(typed, value))
    if isinstance(value, float):
        return "float", value + 0.0
    return type(value).__name__, value


def test_numbers_are_little_endian() -> None:
    assert u8(0xAB) == b"\xab"
    assert u32(0x01020304) == b"\x04\x03\x02\x01"
    assert u64(1) == b"\x01" + bytes(7)
    assert prefixed(b"ab") == b"\x02\x00\x00\x00ab"


@pytest.mark.parametrize(("encode", "limit"), [(u8, 2**8), (u32, 2**32), (u64, 2**64)])
def test_a_number_that_does_not_fit_is_refused(encode: type, limit: int) -> None:
    assert len(encode(limit - 1)) == limit.bit_length() // 8
    for wrong in (-1, limit):
        with pytest.raises(InvalidInput, match="is not in"):
            encode(wrong)


def test_the_first_eight_bytes_of_a_derivation_are_a_number_as_published() -> None:
    assert derive_64("gossip/golden-64/v1", b"deterministic golden vector") == 0x86659F9498143183


@given(st.integers(0, 2**64 - 1))
def test_bits_survive_becoming_signed_and_back(pattern: int) -> None:
    assert -(2**63) <= to_signed(pattern) < 2**63
    assert to_unsigned(to_signed(pattern)) == pattern


@given(plain, plain)
def test_two_values_share_bytes_only_if_they_are_equal(one: Plain, other: Plain) -> None:
    assert (canonical_value(one) == canonical_value(other)) == (typed(one) == typed(other))


def test_order_of_keys_and_the_sign_of_zero_do_not_matter() -> None:
    assert canonical_value({"a": 1, "b": -0.0}) == canonical_value({"b": 0.0, "a": 1})


def test_the_bytes_are_as_they_always_were() -> None:
    value: Plain = {"b": [None, True, False, -1, 0.5], "a": "é", "c": b"\x00"}
    wanted = (
        "08030000000100000061" + "0502000000c3a9"
        "0100000062" + "0705000000" + "00" + "02" + "01" + "03ffffffffffffffff" + "04000000000000e03f"
        "0100000063" + "060100000000"
    )
    assert canonical_value(value).hex() == wanted


@pytest.mark.parametrize("wrong", [2**63, float("nan"), {1: "a"}, {"a": {1, 2}}, object()])
def test_what_has_no_canonical_form_is_refused(wrong: Plain) -> None:
    with pytest.raises(InvalidInput):
        canonical_value(wrong)
