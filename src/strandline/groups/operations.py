"""Operations: the changes of a commit, as fixed-width records of the resulting facts.

    0   u64  offset; of a counter: its number
    8   i64  acknowledged: how many offsets from this one on; in flight: deadline; waiting: time it is ready (ns);
             counter: its value
    16  u32  deliveries so far; 0 where acknowledged, and for a counter
    20  u32  kind: 1 acknowledged, 2 in flight, 3 waiting, 4 counter

Invariants: an operation states a fact and needs no other to be understood, so applying it twice changes nothing; an
acknowledged offset stays so whatever follows; expiry is no operation, as it follows from the deadline. Counters are
numbers that the group's owner keeps with it; they mean nothing here.
"""

import operator
import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strandline.errors import InvalidInput
from strandline.groups.acks import runs_of
from strandline.groups.schedule import Scheduled
from strandline.groups.state import OFFSET_LIMIT, TIME_LIMIT, Delivery, GroupState, checked_offset

ACKED = 1
INFLIGHT = 2
WAITING = 3
COUNTER = 4
OPERATION_BYTES = 24
RUN_MAX = 2**24
"""The longest run in one operation; from offset 0, where it only moves the frontier, it may have any length."""
RANGE_MAX = 2**32
"""The longest range that is taken at once."""

_STRUCT = struct.Struct("<QqII")
_DTYPE = np.dtype([("offset", "<u8"), ("argument", "<i8"), ("deliveries", "<u4"), ("kind", "<u4")])

Operation = tuple[int, int, int, int]
"""Offset, argument, deliveries, kind."""
Run = tuple[int, int]
"""Start and exclusive end."""


class BadOperation(Exception):
    """Bytes that are not an operation of this version."""


def format_acked(runs: Sequence[Run]) -> bytes:
    """Return the operations that acknowledge runs of offsets."""
    if len(runs) == 1:
        start, end = runs[0]
        return _STRUCT.pack(start, end - start, 0, ACKED)
    table = np.zeros(len(runs), _DTYPE)
    bounds = np.array(runs, np.int64).reshape(-1, 2)
    table["offset"] = bounds[:, 0]
    table["argument"] = bounds[:, 1] - bounds[:, 0]
    table["kind"] = ACKED
    return table.tobytes()


def format_entries(kind: int, entries: Sequence[Scheduled]) -> bytes:
    """Return the operations that let entries be in flight, or wait."""
    return b"".join([_STRUCT.pack(offset, time_ns, deliveries, kind) for time_ns, offset, deliveries in entries])


def format_given(deliveries: Sequence[Delivery]) -> bytes:
    """Return the operations that let deliveries be in flight."""
    pack = _STRUCT.pack
    return b"".join([pack(offset, deadline_ns, count, INFLIGHT) for offset, count, deadline_ns in deliveries])


def format_deliveries(kind: int, offsets: npt.NDArray[np.uint64], time_ns: int, deliveries: int) -> bytes:
    """Return the operations that let offsets be in flight, or wait, all until one time and delivered as often."""
    if len(offsets) == 1:
        return _STRUCT.pack(int(offsets[0]), time_ns, deliveries, kind)
    table = np.empty(len(offsets), _DTYPE)
    table["offset"] = offsets
    table["argument"] = time_ns
    table["deliveries"] = deliveries
    table["kind"] = kind
    return table.tobytes()


def format_counters(counters: Mapping[int, int]) -> bytes:
    """Return the operations that give counters their values."""
    return b"".join([_STRUCT.pack(number, value, 0, COUNTER) for number, value in counters.items()])


def parse_operations(data: bytes | memoryview) -> list[Operation]:
    """Return the operations in a frame's body; `BadOperation` where one is not possible."""
    table = np.frombuffer(data, _DTYPE)
    kind, offset, argument = table["kind"], table["offset"], table["argument"]
    acked = kind == ACKED
    length = np.where(acked, argument, 1)
    possible = (
        ((kind >= ACKED) & (kind <= COUNTER))
        & (offset < OFFSET_LIMIT)
        & (argument >= acked)
        & (argument < TIME_LIMIT)
        & ((table["deliveries"] > 0) != (acked | (kind == COUNTER)))
        # Both terms fit 63 bits, so the sum fits the 64 of an unsigned one.
        & (offset + length.astype(np.uint64) <= OFFSET_LIMIT)
        & ((length <= RUN_MAX) | (offset == 0))
    )
    if not possible.all():
        raise BadOperation("an operation is not one that this version knows")
    rows: list[Operation] = table.tolist()
    return rows


def apply_operations(state: GroupState, operations: Iterable[Operation]) -> None:
    """Apply operations to a state, in order."""
    for offset, argument, deliveries, kind in operations:
        if kind == ACKED:
            state.ack_range(offset, offset + argument)
        elif kind == INFLIGHT:
            state.put_inflight(offset, argument, deliveries)
        elif kind == COUNTER:
            state.counters[offset] = argument
        else:
            state.put_waiting(offset, argument, deliveries)


def runs(offsets: Iterable[int]) -> list[Run]:
    """Return offsets, in any order, as ascending runs; `InvalidInput` where one is not an offset."""
    if isinstance(offsets, range) and offsets.step == 1:
        return _split(_bounds(offsets))
    numbers = [operator.index(offset) for offset in offsets]
    if len(numbers) <= 1:
        return [(checked_offset(number), number + 1) for number in numbers]
    first = checked_offset(min(numbers))
    last = checked_offset(max(numbers))
    if last - first == len(numbers) - 1 and numbers == list(range(first, last + 1)):  # as takers mostly answer
        return _split([(first, last + 1)])
    ordered = np.sort(np.array(numbers, np.int64))  # `np.unique` takes ten times as long where there are many
    return _split(runs_of(ordered[np.diff(ordered, prepend=-1) > 0]).tolist())


def _bounds(offsets: range) -> list[Run]:
    if not offsets:
        return []
    start, end = checked_offset(offsets.start), checked_offset(offsets.stop - 1) + 1
    if end - start > RANGE_MAX:
        hint = "acknowledge them in parts, or use ack_below"
        raise InvalidInput(f"a range of {end - start:,} offsets is longer than {RANGE_MAX:,}", hint=hint)
    return [(start, end)]


def _split(bounds: Iterable[Sequence[int]]) -> list[Run]:
    """Return runs none of which is too long for one operation."""
    return [(at, min(at + RUN_MAX, end)) for start, end in bounds for at in range(start, end, RUN_MAX)]
