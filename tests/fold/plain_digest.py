"""The digest of a fold, row by row: what the digest from columns has to be."""

import struct
from collections.abc import Iterable

from blake3 import blake3

from strandline.fold.records import parse_record, split_version

_HEAD = struct.Struct("<II")


def digest_rows(rows: Iterable[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Return how many keys and records there are, and their digest; when a value expires is no part of it."""
    digest, count = blake3(), 0
    for key, record in rows:
        stored, value = parse_record(record)
        version, _ = split_version(stored)
        plain = bytes([len(version)]) + version + value
        digest.update(_HEAD.pack(len(key), len(plain)) + key + plain)
        count += 1
    return count, digest.digest()
