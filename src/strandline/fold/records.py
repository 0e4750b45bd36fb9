"""What a store keeps for one key, as bytes: `[ver_len u8][version][value]`.

A stored version is a version token of at most 10 bytes; or, for a value with a time to live of its own, 16 bytes:
revision u64 BE ‖ when it expires, u64 BE (ns since 1970, by the bucket's clock).

Invariants: `parse_record` undoes `format_record`, and `split_version` undoes `join_version`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from strandline.kv import VERSION_BYTES_MAX, VersionToken
from strandline.kv.entries import REVISION_BYTES

KEY_BYTES_MAX = 2**16 - 1
VALUE_BYTES_MAX = 16 * 1024 * 1024
CURSOR_BYTES_MAX = 255

STORED_VERSION_BYTES_MAX = 2 * REVISION_BYTES
"""The length of a version with a deadline, which no version without has."""

STORED_VERSION_LENGTHS = frozenset((*range(VERSION_BYTES_MAX + 1), STORED_VERSION_BYTES_MAX))

VERSION_PREFIXES = [bytes([length]) for length in range(STORED_VERSION_BYTES_MAX + 1)]
"""The first byte of a record, by the length of its version."""


class FoldEntry(NamedTuple):
    """One key of a fold; `expires_ns` is when its value expires by a time to live of its own, 0 for never."""

    key: bytes
    value: bytes
    version: VersionToken
    expires_ns: int = 0


def split_version(stored: bytes) -> tuple[VersionToken, int]:
    """Return the version token of a stored version, and when it expires, 0 for never."""
    if len(stored) == STORED_VERSION_BYTES_MAX:
        return VersionToken(stored[:REVISION_BYTES]), int.from_bytes(stored[REVISION_BYTES:], "big")
    return VersionToken(stored), 0


def join_version(version: bytes, expires_ns: int) -> bytes:
    """Return a version as it is stored; only a revision can have a deadline."""
    return version + expires_ns.to_bytes(REVISION_BYTES, "big") if expires_ns and version else version


def format_record(version: bytes, value: bytes) -> bytes:
    """Return what is stored for a key."""
    return VERSION_PREFIXES[len(version)] + version + value


def format_records(versions: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """Return what is stored for each row of two columns."""
    prefixes = VERSION_PREFIXES
    return [prefixes[len(version)] + version + value for version, value in zip(versions, values, strict=True)]


def parse_record(record: bytes) -> tuple[bytes, bytes]:
    """Return the stored version and the value; `ValueError` for bytes that no store wrote."""
    length = record[0] if record else STORED_VERSION_BYTES_MAX + 1
    if length not in STORED_VERSION_LENGTHS or len(record) <= length:
        raise ValueError(f"{len(record)} bytes that begin with {record[:1]!r} are not a version and a value")
    return record[1 : length + 1], record[length + 1 :]


def make_entry(key: bytes, record: bytes) -> FoldEntry:
    """Return the entry that a record stands for."""
    version, value = parse_record(record)
    return FoldEntry(key, value, *split_version(version))


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest key above every key with this prefix, None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
