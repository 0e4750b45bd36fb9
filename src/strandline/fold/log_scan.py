"""A snapshot log, read back: where its puts and deletes are, its cursor, and whether it is whole.

Invariants: nothing is taken from a log that its checksum does not cover. What `scan_log` returns is the state after a
whole number of records; where the bytes end in the middle of a record that is the end, and where whole records follow
bad bytes it is damage, never a silent end.
"""

import struct
from array import array
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np

from strandline.errors import FormatError
from strandline.fold.log_format import (
    CURSOR,
    DELETE,
    HEADER,
    KEY_AT,
    MAGIC,
    OLD_HEADERS,
    PUT,
    PUT_OVERHEAD_BYTES,
    RECORD_BYTES_MIN,
    VERSION,
)
from strandline.fold.log_rows import GONE, NO_ROWS, START_SHIFT, LogRows
from strandline.fold.records import STORED_VERSION_LENGTHS, VALUE_BYTES_MAX
from strandline.kv import NO_CURSOR, VERSION_BYTES_MAX, WatchCursor

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_HEAD = struct.Struct("<IBH")
_ALIKE_MIN = 8
_ALIKE_MAX = 1024


class Known(NamedTuple):
    """What is known of the beginning of a log, up to `end`."""

    rows: LogRows
    cursor: WatchCursor
    end: int


NOTHING = Known(NO_ROWS, NO_CURSOR, len(HEADER))


@dataclass(slots=True)
class LogScan:
    """What a log says: the state after its last whole record, which ends at `end`."""

    rows: LogRows
    cursor: WatchCursor
    end: int
    settled: int
    """So many of the rows are of batches that are whole: they stand before the last cursor, or an index knew them."""
    damage: str | None = None
    """Why the bytes from `end` on are not just the end of the log."""

    def between_batches(self) -> "LogScan":
        """Return what the log says without a batch that may be there in part; all of it, if it has no cursor."""
        if not self.cursor:
            return self
        rows = LogRows(self.rows.spans[: self.settled], self.rows.key_lengths[: self.settled])
        return LogScan(rows, self.cursor, self.end, self.settled)


def scan_log(path: str, data: bytes, known: Known = NOTHING) -> LogScan:
    """Read a log; `FormatError` if it is not one. A file that ends within the header is an empty log."""
    if not data.startswith((HEADER, *OLD_HEADERS)):
        _check_header(path, data)
        return LogScan(NO_ROWS, NO_CURSOR, 0, 0)
    reader = _Reader(data, known)
    while reader.take_puts() or reader.take_other():
        pass
    scan = reader.scan()
    if scan.end < len(data) and data.count(0, scan.end) < len(data) - scan.end:
        scan.damage = _damage_at(data, scan.end)
    return scan


def scan_records(data: bytes) -> LogScan:
    """Read records up to the first that is not whole; `data` is a piece of a log, whose positions count from 0."""
    reader = _Reader(data, Known(NO_ROWS, NO_CURSOR, 0))
    while reader.take_puts() or reader.take_other():
        pass
    return reader.scan()


def _check_header(path: str, data: bytes) -> None:
    if any(header.startswith(data) for header in (HEADER, *OLD_HEADERS)):
        return
    if not data.startswith(MAGIC):
        raise FormatError(path, "is not a snapshot log", hint="give the path of a fold, or of no file")
    version = int.from_bytes(data[len(MAGIC) : len(HEADER)], "little")
    hint = "move it away and build the fold again, or use the version that wrote it"
    raise FormatError(path, f"is a snapshot log of version {version}; this is version {VERSION}", hint=hint)


class _Reader:
    """Takes whole records, one kind after the other, until there is none."""

    def __init__(self, data: bytes, known: Known) -> None:
        self._data = data
        self._known = known
        self._at = known.end
        self._cursor = known.cursor
        self._spans = array("Q")
        self._key_lengths = array("H")
        self._settled = len(known.rows.spans)

    def scan(self) -> LogScan:
        spans = np.concatenate([self._known.rows.spans, np.frombuffer(self._spans, np.uint64)])
        lengths = np.concatenate([self._known.rows.key_lengths, np.frombuffer(self._key_lengths, np.uint16)])
        return LogScan(LogRows(spans, lengths), self._cursor, self._at, self._settled)

    def take_puts(self) -> int:
        """Take puts while there are any, and return how many; this is the time it takes to read a log."""
        data, at, end = self._data, self._at, len(self._data)
        spans, key_lengths = self._spans, self._key_lengths
        view, head, u32, count, alike = memoryview(data), _HEAD.unpack_from, _U32.unpack_from, 0, 0
        last = 0
        while at + 4 < end and data[at + 4] == PUT:
            try:
                crc, _, key_length = head(data, at)
                value_at = at + PUT_OVERHEAD_BYTES + key_length
                version_at = value_at + u32(data, value_at - 4)[0]
                stop = version_at + 1 + data[version_at]
            except (struct.error, IndexError):
                break
            if stop > end or data[version_at] not in STORED_VERSION_LENGTHS or version_at - value_at > VALUE_BYTES_MAX:
                break
            if crc32(view[at + 4 : stop]) != crc:
                break
            spans.append(at << START_SHIFT | stop - at)
            key_lengths.append(key_length)
            count += 1
            alike = alike + 1 if stop - at == last else 0
            last = stop - at
            at = stop
            if alike >= _ALIKE_MIN:
                many = self._take_alike(at, last)
                at += many * last
                count += many
                alike = 0 if many else -_ALIKE_MAX  # after a vain look, do not look again soon
        self._at = at
        return count

    def _take_alike(self, at: int, length: int) -> int:
        """Take the puts from `at` on that have the lengths of the one before it, and return how many."""
        data = self._data
        count = min(_ALIKE_MAX, (len(data) - at) // length)
        before = at - length
        rows = np.frombuffer(data, np.uint8, length * (count + 1), before).reshape(count + 1, length)
        key_length = self._key_lengths[-1]
        places = [4, 5, 6, *range(KEY_AT + key_length, PUT_OVERHEAD_BYTES + key_length)]
        (value_length,) = _U32.unpack_from(data, before + KEY_AT + key_length)
        places.append(PUT_OVERHEAD_BYTES + key_length + value_length)
        heads = rows[:, places]
        count = int(np.argmin(np.append((heads[1:] == heads[0]).all(axis=1), False)))
        if not count:
            return 0
        rows = rows[1 : count + 1]
        wanted = np.ascontiguousarray(rows[:, :4]).view("<u4").ravel()
        bodies = np.ascontiguousarray(rows[:, 4:]).view(f"V{length - 4}").ravel().tolist()
        same = np.fromiter(map(crc32, bodies), np.uint32, count) == wanted
        count = count if same.all() else int(np.argmin(same))
        starts = np.arange(at, at + count * length, length, dtype=np.uint64)
        self._spans.frombytes((starts << np.uint64(START_SHIFT) | np.uint64(length)).tobytes())
        self._key_lengths.extend([key_length] * count)
        return count

    def take_other(self) -> bool:
        """Take one delete or cursor; False if there is none that is whole."""
        data, at = self._data, self._at
        stop, possible = _extent(data, at)
        if not possible or not _is_whole(data, at, stop) or data[at + 4] == PUT:
            return False
        if data[at + 4] == DELETE:
            self._spans.append(at << START_SHIFT | GONE | stop - at)
            self._key_lengths.append(_U16.unpack_from(data, at + 5)[0])
        elif stop > at + RECORD_BYTES_MIN:
            self._cursor = WatchCursor(data[at + RECORD_BYTES_MIN : stop])
            self._settled = len(self._known.rows.spans) + len(self._spans)
        self._at = stop
        return True


def _extent(data: bytes, at: int) -> tuple[int, bool]:  # noqa: PLR0911 - one for each place where it may be cut
    """Return where the record at `at` ends by its own lengths, and whether those are possible.

    Beyond the end of the data means that it was cut; of an impossible one, the place is where that shows.
    """
    cut = len(data) + 1
    if at + RECORD_BYTES_MIN > len(data):
        return cut, True
    kind = data[at + 4]
    if kind == CURSOR:
        return at + RECORD_BYTES_MIN + data[at + 5], True
    if kind not in (PUT, DELETE):
        return at + 5, False
    if at + KEY_AT > len(data):
        return cut, True
    version_at: int = at + KEY_AT + _U16.unpack_from(data, at + 5)[0]
    if kind == PUT:
        if version_at + 4 > len(data):
            return cut, True
        value_length = _U32.unpack_from(data, version_at)[0]
        version_at += 4
        if value_length > VALUE_BYTES_MAX:
            return version_at, False
        version_at += value_length
    if version_at >= len(data):
        return cut, True
    length, possible = data[version_at], data[version_at] in STORED_VERSION_LENGTHS
    return version_at + 1 + (length if possible else VERSION_BYTES_MAX), possible


def _is_whole(data: bytes, at: int, stop: int) -> bool:
    if stop > len(data):
        return False
    (wanted,) = _U32.unpack_from(data, at)
    return crc32(memoryview(data)[at + 4 : stop]) == int(wanted)


def _damage_at(data: bytes, at: int) -> str | None:
    """Say what is wrong with the bytes from `at` on; None if they are what a torn write leaves."""
    behind = _whole_record_behind(data, at)
    if behind is not None:
        return f"the bytes from {at:,} to {behind:,} are no records, and whole records follow"
    stop, possible = _extent(data, at)
    is_cut = possible and stop > len(data)
    if is_cut or len(data) - stop < RECORD_BYTES_MIN:
        return None
    return f"the record at byte {at:,} does not match its checksum"


def _whole_record_behind(data: bytes, at: int) -> int | None:
    """Return where the next whole record begins behind a bad place, None if there is none."""
    kinds = np.frombuffer(data, np.uint8, offset=min(at + 5, len(data)))
    for found in np.flatnonzero((kinds >= PUT) & (kinds <= CURSOR)).tolist():
        start = at + 1 + found
        stop, possible = _extent(data, start)
        if possible and _is_whole(data, start, stop):
            return int(start)
    return None
