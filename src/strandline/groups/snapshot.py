"""The snapshot: the state of a group at one moment, in one file that is replaced as a whole.

    0   8 B  magic "STRANDLG"
    8   u16  version, 1
    10  u16  1 if the group is being removed, else 0
    12  u32  CRC-32C of bytes 0 to 12 and then 16 to the end of the file
    16  16 B identity of the group
    32  u64  sequence of the first frame that is not included
    40  i64  created, nanoseconds since 1970
    48  u64  acknowledged until (exclusive)
    56  u64  number of acknowledged ranges above that
    64  u64  number of offsets in flight
    72  u64  number of offsets waiting
    80  u32  bytes of the name
    84  u32  number of counters
    88       name, UTF-8, zeros to a multiple of 8
             ranges: u64 start, u64 end (exclusive)
             in flight, then waiting: u32 deliveries, u64 offset, u64 deadline or time it is ready (ns), u32 zero
             counters: u64 number, u64 value

Invariants: ranges ascend and do not touch each other or the frontier; offsets ascend within each list; no offset is
in two of them or acknowledged; the numbers of counters ascend.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError
from strandline.groups.acks import Acks, Ranges
from strandline.groups.delta import SAFE
from strandline.groups.state import OFFSET_LIMIT, TIME_LIMIT, Captured

SNAPSHOT_MAGIC = b"STRANDLG"
SNAPSHOT_VERSION = 1
ENTRY_BYTES = 24
RANGE_BYTES = 16
COUNTER_BYTES = 16
_REMOVED = 1
_RANGE_MAX = 2**40
_HEADER = struct.Struct("<8sHHI16sQqQQQQII")
SNAPSHOT_HEADER_BYTES = _HEADER.size
_CRC = struct.Struct("<I")
_CRC_AT = 12
_AFTER_CRC = 16
_ENTRY = np.dtype([("deliveries", "<u4"), ("offset", "<u8"), ("time", "<u8"), ("zero", "<u4")])

Entries = npt.NDArray[np.void]


class Snapshot(NamedTuple):
    """The content of a snapshot."""

    name: str
    identity: bytes
    sequence: int
    created_ns: int
    captured: Captured
    removed: bool = False


class BadSnapshot(Exception):
    """Invalid bytes with a correct checksum."""


def format_snapshot(snapshot: Snapshot) -> bytes:
    """Return the content of a snapshot file."""
    name = snapshot.name.encode()
    captured = snapshot.captured
    ranges = captured.acks.range_array()
    head = _HEADER.pack(
        SNAPSHOT_MAGIC,
        SNAPSHOT_VERSION,
        _REMOVED if snapshot.removed else 0,
        0,
        snapshot.identity,
        snapshot.sequence,
        snapshot.created_ns,
        captured.acks.until,
        len(ranges),
        len(captured.inflight),
        len(captured.waiting),
        len(name),
        len(captured.counters),
    )
    body = [
        name + bytes(-len(name) % 8),
        ranges.astype("<u8").tobytes(),
        _format_entries(captured.inflight),
        _format_entries(captured.waiting),
        np.array(sorted(captured.counters.items()), "<u8").tobytes(),
    ]
    rest = b"".join([head[_AFTER_CRC:], *body])
    return b"".join([head[:_CRC_AT], _CRC.pack(_checksum(head, rest)), rest])


def parse_snapshot(data: bytes, path: str) -> Snapshot:
    """Return the content of a snapshot file; `FormatError` if foreign or of a later version, `Damaged` otherwise."""
    if data[:8] != SNAPSHOT_MAGIC[: len(data)]:
        raise FormatError(path, "this is not a group's snapshot", hint="move the file elsewhere if it is not a group's")
    if len(data) < _HEADER.size or _CRC.unpack_from(data, _CRC_AT)[0] != _checksum(data, memoryview(data)[_AFTER_CRC:]):
        raise Damaged(path, "the checksum does not match", safe=SAFE)
    _, version, flags, *_ = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION or flags > _REMOVED:
        hint = "open it with the version of Strandline that wrote it, or a later one"
        raise FormatError(path, f"snapshot version {version} with flags {flags} is not known here", hint=hint)
    try:
        return _parse_body(data)
    except (BadSnapshot, UnicodeDecodeError) as bad:
        raise Damaged(path, f"the checksum is right, yet {bad}", safe=SAFE) from bad


def is_removed(head: bytes) -> bool:
    """Whether the header of a snapshot marks its group as being removed; nothing is checked."""
    return len(head) >= _HEADER.size and _HEADER.unpack_from(head)[2] == _REMOVED


def _checksum(head: bytes, rest: bytes | memoryview) -> int:
    return crc32c(rest, crc32c(head[:_CRC_AT]))


def _format_entries(entries: list[int]) -> bytes:
    packed = b"".join([entry.to_bytes(ENTRY_BYTES, "little") for entry in entries])
    table = np.frombuffer(packed, _ENTRY)
    # numpy sorts with the interpreter's lock let go; a list of a million would hold up all other threads.
    return table[np.argsort(table["offset"])].tobytes()


def _parse_body(data: bytes) -> Snapshot:
    fields = _HEADER.unpack_from(data)
    _, _, flags, _, identity, sequence, created_ns, until, ranges, inflight, waiting, name_bytes, counters = fields
    at_ranges = _HEADER.size + name_bytes + -name_bytes % 8
    at_inflight = at_ranges + ranges * RANGE_BYTES
    at_waiting = at_inflight + inflight * ENTRY_BYTES
    at_counters = at_waiting + waiting * ENTRY_BYTES
    if at_counters + counters * COUNTER_BYTES != len(data):
        raise BadSnapshot("its parts do not fill the file")
    if until > OFFSET_LIMIT:
        raise BadSnapshot("the frontier is not an offset")
    bounds = _parse_ranges(data[at_ranges:at_inflight], until)
    inflight_entries = np.frombuffer(data, _ENTRY, inflight, at_inflight)
    waiting_entries = np.frombuffer(data, _ENTRY, waiting, at_waiting)
    _check_entries(inflight_entries, waiting_entries, until, bounds)
    acks = Acks(until)
    for start, end in bounds.tolist():
        acks.add_range(start, end)
    known = _parse_counters(data[at_counters:])
    captured = Captured(acks, _packed(inflight_entries), _packed(waiting_entries), known)
    name = data[_HEADER.size : _HEADER.size + name_bytes].decode()
    return Snapshot(name, identity, sequence, created_ns, captured, flags == _REMOVED)


def _parse_ranges(data: bytes, until: int) -> Ranges:
    bounds = np.frombuffer(data, "<u8").reshape(-1, 2)
    if bool((bounds > OFFSET_LIMIT).any()):
        raise BadSnapshot("a range goes beyond all offsets")
    ranges = bounds.astype(np.int64)
    edges = np.concatenate(([until], ranges.reshape(-1)))
    if bool((np.diff(edges) <= 0).any()):
        raise BadSnapshot("its ranges touch or do not ascend")
    if bool((ranges[:, 1] - ranges[:, 0] > _RANGE_MAX).any()):
        raise BadSnapshot("a range is longer than any memory could have held")
    return ranges


def _parse_counters(data: bytes) -> dict[int, int]:
    pairs = np.frombuffer(data, "<u8").reshape(-1, 2)
    if bool((pairs[:, 0] >= OFFSET_LIMIT).any() or (pairs[:, 1] >= TIME_LIMIT).any()):
        raise BadSnapshot("a counter is out of bounds")
    if bool((np.diff(pairs[:, 0].astype(np.int64)) <= 0).any()):
        raise BadSnapshot("its counters do not ascend")
    return dict(pairs.tolist())


def _check_entries(inflight: Entries, waiting: Entries, until: int, ranges: Ranges) -> None:
    for table in (inflight, waiting):
        possible = (table["deliveries"] > 0) & (table["time"] < TIME_LIMIT) & (table["zero"] == 0)
        if not possible.all() or bool((np.diff(table["offset"].astype(np.int64)) <= 0).any()):
            raise BadSnapshot("a delivery is not possible")
    if len(np.intersect1d(inflight["offset"], waiting["offset"], assume_unique=True)):
        raise BadSnapshot("an offset is in flight and waits")
    offsets = np.concatenate((inflight["offset"], waiting["offset"]))
    if bool((offsets >= OFFSET_LIMIT).any()) or _acked(offsets.astype(np.int64), until, ranges).any():
        raise BadSnapshot("an acknowledged offset is in flight or waits")


def _acked(offsets: npt.NDArray[np.int64], until: int, ranges: Ranges) -> npt.NDArray[np.bool_]:
    # Between the edges start, end, start, end … an odd place is inside a range.
    inside: npt.NDArray[np.bool_] = np.searchsorted(ranges.reshape(-1), offsets, side="right") % 2 == 1
    return inside | (offsets < until)


def _packed(table: Entries) -> list[int]:
    data = table.tobytes()
    return [int.from_bytes(data[at : at + ENTRY_BYTES], "little") for at in range(0, len(data), ENTRY_BYTES)]
