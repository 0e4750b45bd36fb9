"""Encodings of published token formats: numbers in a base, bech32, base64 of either alphabet.

Invariants: pure functions; the decoders return None for bytes that are not of their form, and never raise.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

_BECH32_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")


def to_base(value: int, alphabet: str, width: int) -> str:
    """Return a number in the base that the alphabet counts, padded on the left with its zero."""
    digits = ""
    while value:
        value, digit = divmod(value, len(alphabet))
        digits = alphabet[digit] + digits
    return digits.rjust(width, alphabet[0])


def from_base(text: bytes, alphabet: str) -> int | None:
    """Return the number that a text encodes in a base."""
    value = 0
    for character in text.decode("latin-1"):
        digit = alphabet.find(character)
        if digit < 0:
            return None
        value = value * len(alphabet) + digit
    return value


def from_base64(text: bytes) -> bytes | None:
    """Return the bytes of a base64 text of either alphabet, with its padding or without."""
    plain = text.translate(_TO_STANDARD).rstrip(b"=")
    try:
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return None


def bech32_checksum(prefix: str, words: Sequence[int]) -> list[int]:
    """Return the six checksum words of a bech32 text."""
    polymod = _polymod([*_expanded(prefix), *words, 0, 0, 0, 0, 0, 0]) ^ 1
    return [(polymod >> 5 * (5 - place)) & 31 for place in range(6)]


def is_bech32(text: bytes) -> bool:
    """Return whether a text is bech32 with the right checksum, of any length."""
    if text not in (text.lower(), text.upper()):
        return False
    prefix, mark, tail = text.lower().decode("latin-1").rpartition("1")
    words = [BECH32.find(character) for character in tail]
    if not mark or not prefix or -1 in words:
        return False
    return _polymod([*_expanded(prefix), *words]) == 1


def _expanded(prefix: str) -> list[int]:
    codes = prefix.encode("latin-1")
    return [code >> 5 for code in codes] + [0] + [code & 31 for code in codes]


def _polymod(values: Iterable[int]) -> int:
    state = 1
    for value in values:
        top = state >> 25
        state = (state & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_BECH32_GENERATOR):
            if top >> bit & 1:
                state ^= generator
    return state
