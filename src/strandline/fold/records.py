"""What a store keeps for one key, as bytes: `[ver_len u8][version][value]`.

Invariants: `parse_record` undoes `format_record`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from strandline.kv import VERSION_BYTES_MAX, VersionToken

KEY_BYTES_MAX = 2**16 - 1
VALUE_BYTES_MAX = 16 * 1024 * 1024
CURSOR_BYTES_MAX = 255

VERSION_PREFIXES = [bytes([length]) for length in range(VERSION_BYTES_MAX + 1)]
"""The first byte of a record, by the length of its version."""


class FoldEntry(NamedTuple):
    """One key of a fold."""

    key: bytes
    value: bytes
    version: VersionToken


def format_record(version: bytes, value: bytes) -> bytes:
    """Return what is stored for a key."""
    return VERSION_PREFIXES[len(version)] + version + value


def format_records(versions: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """Return what is stored for each row of two columns."""
    prefixes = VERSION_PREFIXES
    return [prefixes[len(version)] + version + value for version, value in zip(versions, values, strict=True)]


def parse_record(record: bytes) -> tuple[VersionToken, bytes]:
    """Return version and value; `ValueError` for bytes that no store wrote."""
    length = record[0] if record else VERSION_BYTES_MAX + 1
    if length > VERSION_BYTES_MAX or len(record) <= length:
        raise ValueError(f"{len(record)} bytes that begin with {record[:1]!r} are not a version and a value")
    return VersionToken(record[1 : length + 1]), record[length + 1 :]


def make_entry(key: bytes, record: bytes) -> FoldEntry:
    """Return the entry that a record stands for."""
    version, value = parse_record(record)
    return FoldEntry(key, value, version)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest key above every key with this prefix, None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
