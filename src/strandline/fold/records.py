"""What a store keeps for one key, as bytes: `[ver_len u8][version][value]`; and the digest of a whole fold.

Invariants: `parse_record` undoes `format_record`; two folds have the same digest exactly if they hold the same keys
with the same versions and values, whatever the backend and the order of their history.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from blake3 import blake3

from strandline.kv import VERSION_BYTES_MAX, VersionToken

KEY_BYTES_MAX = 2**16 - 1
VALUE_BYTES_MAX = 16 * 1024 * 1024
CURSOR_BYTES_MAX = 255

_LENGTHS = struct.Struct("<II")
_HASHED_AT_ONCE = 1024
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


def digest_rows(rows: Iterable[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Return how many keys and records there are, and their BLAKE3 hash; rows come in the order of their keys."""
    digest = blake3()
    count = 0
    rows = iter(rows)
    while page := list(islice(rows, _HASHED_AT_ONCE)):
        parts = [part for key, record in page for part in (_LENGTHS.pack(len(key), len(record)), key, record)]
        digest.update(b"".join(parts))
        count += len(page)
    return count, digest.digest()
