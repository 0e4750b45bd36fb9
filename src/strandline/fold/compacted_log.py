"""A compacted snapshot log, written from rows and read again in pieces, without a fold in memory.

Invariants: rows come in the order of their keys, each key once, and the cursor is the last record. Memory holds some
megabytes of the log, and ten bytes for each row where an index is made. The index and the mark of a proper close are
left beside the log for the one who syncs it: they may take their places only when the log is on stable storage.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from strandline.files import Buffer
from strandline.fold.append_log import CLEAN_SUFFIX, INDEX_BYTES_MIN, INDEX_SUFFIX, format_mark
from strandline.fold.batches import FoldBatch, PutColumns
from strandline.fold.chunks import Chunks
from strandline.fold.columns import Numbers, lengths_of
from strandline.fold.digests import FoldDigest
from strandline.fold.key_index import is_ascending
from strandline.fold.log_format import HEADER, format_batch, format_columns
from strandline.fold.log_index import format_index_of
from strandline.fold.log_rows import GONE, LENGTH_MASK, NO_ROWS, LogRows, Spans, spans_of
from strandline.fold.log_scan import LogScan, scan_records
from strandline.fold.records import KEY_BYTES_MAX, VALUE_BYTES_MAX
from strandline.fold.store import Verified
from strandline.kv import NO_CURSOR, WatchCursor

_PIECE_BYTES = 8 * 1024 * 1024
_RECORD_BYTES_MAX = VALUE_BYTES_MAX + KEY_BYTES_MAX + 64


def write_log(path: Path, pages: Iterable[PutColumns], cursor: WatchCursor) -> None:
    """Write a log that does not exist, with its index and its mark beside it; nothing is synced."""
    digest, index, size = blake3(), _Rows(), 0
    with path.open("xb", buffering=0) as file:

        def write(parts: Iterable[Buffer]) -> None:
            nonlocal size
            for part in parts:
                rest = memoryview(part)
                digest.update(rest)
                size += len(rest)
                while rest:
                    rest = rest[file.write(rest) :]

        write([HEADER])
        for rows in pages:
            parts, lengths = format_columns(rows)
            index.add(np.cumsum(lengths) - lengths + size, lengths, lengths_of(rows.keys))
            write(parts)
        write(format_batch(FoldBatch(), cursor).parts)
    _leave_hints(path, size, digest.digest(), index, cursor)


def verify_log(path: Path, *, leaves_hints: bool = False) -> Verified | None:
    """Read a compacted log, and return what it holds; None if it is not one, or not whole.

    With `leaves_hints`, its index and its mark are left beside it, as `write_log` does.
    """
    with path.open("rb", buffering=0) as file:
        if file.read(len(HEADER)) != HEADER:
            return None
    digest, index, found = blake3(HEADER), _Rows(), FoldDigest()
    last_key, cursor, size = b"", NO_CURSOR, len(HEADER)
    for data, scan in _scanned(path):
        digest.update(data)
        spans = scan.rows.spans.view(np.int64)
        if cursor or (spans & GONE).any() or (scan.cursor and scan.settled != len(spans)):
            return None
        if len(spans):
            rows = Chunks([data]).rows(spans)
            if rows.keys[0].as_py() <= last_key or not is_ascending(rows.keys):
                return None
            last_key = rows.keys[-1].as_py()
            found.update(rows)
            index.add(scan.rows.starts + size, spans & LENGTH_MASK, scan.rows.key_lengths)
        cursor = scan.cursor
        size += scan.end
    if size != path.stat().st_size:
        return None
    if leaves_hints:
        _leave_hints(path, size, digest.digest(), index, cursor)
    return Verified(cursor, found.entries, found.digest())


class _Rows:
    """Where the records of a log are, gathered piece by piece."""

    def __init__(self) -> None:
        self._spans: list[Spans] = [NO_ROWS.spans]
        self._key_lengths: list[NDArray[np.uint16]] = [NO_ROWS.key_lengths]

    def add(self, starts: Numbers, lengths: Numbers, key_lengths: NDArray[np.integer]) -> None:
        self._spans.append(spans_of(starts, lengths, len(lengths)))
        self._key_lengths.append(key_lengths.astype(np.uint16))

    def rows(self) -> LogRows:
        return LogRows(np.concatenate(self._spans), np.concatenate(self._key_lengths))


def _leave_hints(path: Path, size: int, digest: bytes, index: _Rows, cursor: WatchCursor) -> None:
    if size >= INDEX_BYTES_MIN:
        path.with_name(path.name + INDEX_SUFFIX).write_bytes(format_index_of(digest, size, index.rows(), cursor))
    path.with_name(path.name + CLEAN_SUFFIX).write_bytes(format_mark(size))


def _scanned(path: Path) -> Iterator[tuple[bytes, LogScan]]:
    """Yield pieces of a log behind its header, each of whole records, and what they say, until there are no more."""
    with path.open("rb", buffering=0) as file:
        file.seek(len(HEADER))
        rest = b""
        while data := file.read(_PIECE_BYTES):
            data = rest + data
            scan = scan_records(data)
            rest = data[scan.end :]
            if len(rest) > _RECORD_BYTES_MAX:
                return
            if scan.end:
                yield data[: scan.end], scan
