"""The index beside a snapshot log: where its records are, so that opening it need not look for them one by one.

Invariants: an index is a hint. It counts only if it is whole and the log, as far as it reaches, is byte for byte what
it was when the index was made, which BLAKE3 tells; else the log is read without it, and nothing else changes. It
takes its place only when the bytes that it covers are on stable storage.
"""

import struct
from collections.abc import Iterable

import numpy as np
from blake3 import blake3

from strandline.fold.log_rows import LogRows
from strandline.fold.log_scan import Known
from strandline.kv import WatchCursor

MAGIC = b"PGSX"
VERSION = 1
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<4sHHQQ32s")


def format_index(parts: Iterable[memoryview], rows: LogRows, cursor: WatchCursor) -> bytes:
    """Return the index of a whole log."""
    digest, size = blake3(), 0
    for part in parts:
        digest.update(part)
        size += len(part)
    return format_index_of(digest.digest(), size, rows, cursor)


def format_index_of(digest: bytes, size: int, rows: LogRows, cursor: WatchCursor) -> bytes:
    """Return the index of a log of which the BLAKE3 hash is known."""
    head = _HEAD.pack(MAGIC, VERSION, len(cursor), size, len(rows.spans), digest)
    body = b"".join((head, cursor, rows.spans.astype("<u8").data, rows.key_lengths.astype("<u2").data))
    return body + blake3(body).digest()


def parse_index(content: bytes, log: bytes) -> Known | None:
    """Return what an index knows of a log; None if it is not whole, of another version, or of other bytes."""
    body = memoryview(content)[:-_DIGEST_BYTES]
    if len(body) < _HEAD.size or blake3(body).digest() != content[-_DIGEST_BYTES:]:
        return None
    magic, version, cursor_length, size, count, digest = _HEAD.unpack_from(body)
    spans_at = _HEAD.size + cursor_length
    lengths_at = spans_at + 8 * count
    if (magic, version) != (MAGIC, VERSION) or len(body) != lengths_at + 2 * count or size > len(log):
        return None
    if blake3(memoryview(log)[:size]).digest() != digest:
        return None
    spans = np.frombuffer(body, "<u8", count, spans_at)
    lengths = np.frombuffer(body, "<u2", count, lengths_at)
    return Known(LogRows(spans, lengths), WatchCursor(bytes(body[_HEAD.size : spans_at])), size)
