"""Encodings of token formats, by their published vectors and round trips."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.tokens.encodings import (
    BASE58,
    BASE62,
    BECH32,
    bech32_checksum,
    from_base,
    from_base64,
    is_bech32,
    to_base,
)


@given(value=st.integers(0, 2**256), alphabet=st.sampled_from([BASE58, BASE62, "01"]), width=st.integers(1, 300))
def test_a_number_in_a_base_comes_back(value: int, alphabet: str, width: int) -> None:
    text = to_base(value, alphabet, width)
    assert len(text) >= width
    assert from_base(text.encode(), alphabet) == value


def test_a_character_outside_the_alphabet_is_no_number() -> None:
    assert from_base(b"0OIl", BASE58) is None
    assert from_base(b"\xff", BASE62) is None


@given(data=st.binary(max_size=200))
def test_base64_is_read_in_either_alphabet_with_padding_or_without(data: bytes) -> None:
    for text in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        assert from_base64(text) == data
        assert from_base64(text.rstrip(b"=")) == data


@given(data=st.binary(max_size=50))
def test_whatever_is_no_base64_is_none(data: bytes) -> None:
    result = from_base64(data)
    assert result is None or isinstance(result, bytes)
    assert from_base64(data + b"!") is None


@pytest.mark.parametrize(
    "text",
    [
        b"A12UEL5L",
        b"a12uel5l",
        b"an83characterlonghumanreadablepartthatcontainsthenumber1andtheexcludedcharactersbio1tt5tgs",
        b"abcdef1qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw",
        b"split1checkupstagehandshakeupstreamerranterredcaperred2y9e3w",
    ],
)
def test_the_vectors_of_bech32_are_whole(text: bytes) -> None:
    assert is_bech32(text)


@pytest.mark.parametrize(
    "text", [b"A12UEL5X", b"a12UEL5L", b"1pzry9x0s0muk", b"pzry9x0s0muk", b"x1b4n0q5v", b"", b"\xff1\xff"]
)
def test_what_is_not_bech32_is_told(text: bytes) -> None:
    assert not is_bech32(text)


@given(words=st.lists(st.integers(0, 31), max_size=60), prefix=st.from_regex(r"[a-z]{1,10}", fullmatch=True))
def test_a_checksum_makes_a_text_whole(words: list[int], prefix: str) -> None:
    tail = "".join(BECH32[word] for word in [*words, *bech32_checksum(prefix, words)])
    assert is_bech32(f"{prefix}1{tail}".encode())
