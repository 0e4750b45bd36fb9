"""The bytes of a snapshot log: formatting batches, and reading a whole log back.

Invariants: nothing is taken from a log that its checksum does not cover. What `scan_log` returns is the state after a
whole number of records; where the bytes end in the middle of a record that is the end, and where whole records follow
bad bytes it is damage, never a silent end. `docs/formats/snapshot-log.md` is the format.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from zlib import crc32

import numpy as np

from strandline.errors import FormatError
from strandline.fold.batches import Deletes, Puts
from strandline.fold.records import VALUE_BYTES_MAX, VERSION_PREFIXES
from strandline.kv import NO_CURSOR, VERSION_BYTES_MAX, WatchCursor

MAGIC = b"PGSS"
VERSION = 2
HEADER = MAGIC + struct.pack("<H", VERSION)
PUT, DELETE, CURSOR = 1, 2, 3
RECORD_BYTES_MIN = 6
PUT_OVERHEAD_BYTES = 11
"""What a put has beside its key and its record in memory."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_HEAD = struct.Struct("<IBH")


@dataclass(slots=True)
class LogScan:
    """What a log says: the state after its last whole record, which ends at `end`."""

    records: dict[bytes, bytes]
    cursor: WatchCursor
    end: int
    count: int
    damage: str | None = None
    """Why the bytes from `end` on are not just the end of the log."""


def format_batch(puts: Puts, deletes: Deletes, cursor: WatchCursor) -> bytes:
    """Return the records of a batch, the cursor last; `NO_CURSOR` has no record."""
    bodies = [*_put_bodies(puts), *_delete_bodies(deletes)]
    if cursor != NO_CURSOR:
        bodies.append(bytes((CURSOR, len(cursor))) + cursor)
    sums = np.fromiter(map(crc32, bodies), "<u4", len(bodies)).view("V4").tolist()
    return b"".join(chain.from_iterable(zip(sums, bodies, strict=True)))


def _put_bodies(puts: Puts) -> list[bytes]:
    keys, values, versions = puts
    key_lengths = _lengths(keys, "<u2")
    value_lengths = _lengths(values, "<u4")
    version_lengths = map(VERSION_PREFIXES.__getitem__, map(len, versions))
    columns = zip(key_lengths, keys, value_lengths, values, version_lengths, versions, strict=True)
    return [b"\x01%b%b%b%b%b%b" % row for row in columns]


def _delete_bodies(deletes: Deletes) -> list[bytes]:
    lengths = map(VERSION_PREFIXES.__getitem__, map(len, deletes.versions))
    columns = zip(_lengths(deletes.keys, "<u2"), deletes.keys, lengths, deletes.versions, strict=True)
    return [b"\x02%b%b%b%b" % row for row in columns]


def _lengths(column: Sequence[bytes], kind: str) -> list[bytes]:
    numbers = np.fromiter(map(len, column), kind, len(column))
    packed: list[bytes] = numbers.view(f"V{numbers.itemsize}").tolist()
    return packed


def scan_log(path: str, data: bytes) -> LogScan:
    """Read a log; `FormatError` if it is not one. A file that ends within the header is an empty log."""
    if not data.startswith(HEADER):
        _check_header(path, data)
        return LogScan({}, NO_CURSOR, 0, 0)
    scan = _read_records(data)
    if scan.end < len(data) and data.count(0, scan.end) < len(data) - scan.end:
        scan.damage = _damage_at(data, scan.end)
    return scan


def _check_header(path: str, data: bytes) -> None:
    if HEADER.startswith(data):
        return
    if not data.startswith(MAGIC):
        raise FormatError(path, "is not a snapshot log", hint="give the path of a fold, or of no file")
    version = int.from_bytes(data[len(MAGIC) : len(HEADER)], "little")
    hint = "move it away and build the fold again, or use the version that wrote it"
    raise FormatError(path, f"is a snapshot log of version {version}; this is version {VERSION}", hint=hint)


def _read_records(data: bytes) -> LogScan:
    """Take whole records until there is none."""
    scan = LogScan({}, NO_CURSOR, len(HEADER), 0)
    _take_puts(scan, data)
    while _take_other(scan, data):
        _take_puts(scan, data)
    return scan


def _take_puts(scan: LogScan, data: bytes) -> None:
    """Take puts while there are any; this loop is the time it takes to open a fold, so it calls nothing of ours."""
    records, at, count, end = scan.records, scan.end, 0, len(data)
    view, head, u32 = memoryview(data), _HEAD.unpack_from, _U32.unpack_from
    while at + 4 < end and data[at + 4] == PUT:
        try:
            crc, _, key_length = head(data, at)
            value_at = at + PUT_OVERHEAD_BYTES + key_length
            version_at = value_at + u32(data, value_at - 4)[0]
            stop = version_at + 1 + data[version_at]
        except (struct.error, IndexError):
            break
        if stop > end or stop - version_at > VERSION_BYTES_MAX + 1 or version_at - value_at > VALUE_BYTES_MAX:
            break
        if crc32(view[at + 4 : stop]) != crc:
            break
        records[data[at + 7 : value_at - 4]] = data[version_at:stop] + data[value_at:version_at]
        at = stop
        count += 1
    scan.end = at
    scan.count += count


def _take_other(scan: LogScan, data: bytes) -> bool:
    """Take one delete or cursor; False if there is none that is whole."""
    at = scan.end
    stop, possible = _extent(data, at)
    if not possible or not _is_whole(data, at, stop) or data[at + 4] == PUT:
        return False
    if data[at + 4] == DELETE:
        scan.records.pop(data[at + 7 : at + 7 + _U16.unpack_from(data, at + 5)[0]], None)
    else:
        scan.cursor = WatchCursor(data[at + 6 : stop]) or scan.cursor
    scan.end = stop
    scan.count += 1
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
    if at + 7 > len(data):
        return cut, True
    version_at: int = at + 7 + _U16.unpack_from(data, at + 5)[0]
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
    return version_at + 1 + min(data[version_at], VERSION_BYTES_MAX), data[version_at] <= VERSION_BYTES_MAX


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
