"""The canonical encoding, and BLAKE3 under a context: equal content has equal bytes and equal digests everywhere.

    u8, u32, u64   little-endian
    bytes          u32 length, then the bytes; 32-byte digests stand without a length
    records        their fields in order, without tags or padding
    plain values   a tag byte, then: nothing (null, false, true), i64, f64, text and bytes with their length, lists and
                   maps with their count; a map's keys are sorted by their bytes

Invariants: `canonical_value` is injective on the values it accepts, and refuses all others with `InvalidInput`; it
depends on no locale, hash seed or insertion order.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from blake3 import blake3

from strandline.errors import InvalidInput

U8_MAX, U32_MAX, U64_MAX = 2**8 - 1, 2**32 - 1, 2**64 - 1
Plain: TypeAlias = "bool | int | float | str | bytes | Sequence[Plain] | Mapping[str, Plain] | None"

_NULL, _FALSE, _TRUE, _INT, _FLOAT, _TEXT, _BYTES, _LIST, _MAP = (bytes([tag]) for tag in range(9))


def u8(value: int) -> bytes:
    """Return an unsigned byte."""
    return _unsigned("<B", value, U8_MAX)


def u32(value: int) -> bytes:
    """Return an unsigned 32-bit number."""
    return _unsigned("<I", value, U32_MAX)


def u64(value: int) -> bytes:
    """Return an unsigned 64-bit number."""
    return _unsigned("<Q", value, U64_MAX)


def prefixed(data: bytes) -> bytes:
    """Return bytes behind their length."""
    return u32(len(data)) + data


def derive(context: str, data: bytes) -> bytes:
    """Return 32 bytes of BLAKE3 in derive-key mode."""
    return blake3(data, derive_key_context=context).digest()


def derive_64(context: str, data: bytes) -> int:
    """Return the first eight bytes of a derivation as an unsigned number."""
    return int.from_bytes(derive(context, data)[:8], "little")


def to_signed(pattern: int) -> int:
    """Return the signed number with the bits of an unsigned one: how SQL and Spark hold derived ids."""
    return pattern - 2**64 if pattern >= 2**63 else pattern


def to_unsigned(number: int) -> int:
    """Return the bits of a signed number as an unsigned one: how ids are hashed and shown."""
    return number + 2**64 if number < 0 else number


def canonical_value(value: Plain) -> bytes:
    """Return the canonical bytes of a plain value, such as a rule read from TOML."""
    match value:
        case None | bool():
            return _NULL if value is None else _TRUE if value else _FALSE
        case int() | float():
            return _INT + _signed(value) if isinstance(value, int) else _FLOAT + _double(value)
        case str() | bytes():
            return _TEXT + prefixed(value.encode()) if isinstance(value, str) else _BYTES + prefixed(value)
        case Mapping():
            return _MAP + _map(value)
        case Sequence():
            return _LIST + u32(len(value)) + b"".join(map(canonical_value, value))
        case _:
            raise InvalidInput(f"a {type(value).__name__} has no canonical form")


def _unsigned(layout: str, value: int, limit: int) -> bytes:
    if not 0 <= value <= limit:
        raise InvalidInput(f"{value} is not in [0, {limit}]")
    return struct.pack(layout, value)


def _signed(value: int) -> bytes:
    try:
        return struct.pack("<q", value)
    except struct.error as error:
        raise InvalidInput(f"{value} does not fit 64 bits") from error


def _double(value: float) -> bytes:
    if math.isnan(value):
        raise InvalidInput("NaN has no canonical form")
    return struct.pack("<d", value + 0.0)  # minus zero becomes zero


def _map(value: Mapping[str, Plain]) -> bytes:
    rows = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidInput(f"a map's keys must be text, and one is a {type(key).__name__}")
        rows.append((key.encode(), canonical_value(item)))
    return u32(len(rows)) + b"".join(prefixed(key) + item for key, item in sorted(rows))
