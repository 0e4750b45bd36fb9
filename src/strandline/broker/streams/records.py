"""The records of a stream's log: a message has its subject as key; a control record has an empty key.

    0   u8   kind: 1 sequence, 2 placed, 3 gone, 4 config, 5 facts, 6 origins
    1   u8   version, 1
    2   u16  flags
    4   u32  count
    8        fields of the kind (docs/formats/broker-stream.md)

Invariants: a message has the sequence after the last one, unless a control record says otherwise; the messages of a
`Placed` record follow it directly. An unknown record is an error, never skipped.
"""

import struct
from typing import NamedTuple

import numpy as np

from strandline.broker.streams.arrays import Times, Words
from strandline.errors import FormatError

VERSION = 1
SEQUENCE, PLACED, GONE, CONFIG, FACTS, ORIGINS = 1, 2, 3, 4, 5, 6
MOVED_FLAG = BY_LIMITS_FLAG = 1
DUES_FLAG = 2
_HEAD = struct.Struct("<BBHI")
_SEQUENCE = struct.Struct("<Q")
_GONE = struct.Struct("<qQ")
_TIME = struct.Struct("<q")
_FACTS = struct.Struct("<QqI")
_ID = struct.Struct("<QqI")
_ORIGIN = struct.Struct("<QHH")
_WORD = np.dtype("<u8")


class Sequence(NamedTuple):
    """The next message has this sequence."""

    next_seq: int


class Placed(NamedTuple):
    """The messages that follow have these sequences; `moved` messages were there before, the others are new.

    `dues` is when each expires: 0 for no time to live of its own, -1 for never. None: no message has one.
    """

    sequences: Words
    moved: bool
    dues: Times | None = None


class Gone(NamedTuple):
    """These sequences are removed; the last sequence is at least the given one. `by_limits`: as the log implies."""

    time_ns: int
    last_seq: int
    sequences: Words
    by_limits: bool = False


class Config(NamedTuple):
    """The configuration from here on."""

    time_ns: int
    json: bytes


class KnownId(NamedTuple):
    """A message identifier in the duplicate window."""

    identifier: bytes
    sequence: int
    time_ns: int


class Facts(NamedTuple):
    """State of a stream beyond its live messages; written before the first part of the log is removed."""

    last_seq: int
    last_time: int
    last_id: bytes
    known: tuple[KnownId, ...]


class Position(NamedTuple):
    """The position of a source: the last handled sequence of its origin, and the identity of that origin."""

    sequence: int
    identity: bytes = b""


class Origins(NamedTuple):
    """How far some sources have come, by name; written with the messages that it is about."""

    positions: dict[bytes, Position]


Control = Sequence | Placed | Gone | Config | Facts | Origins


def format_control(control: Control) -> bytes:
    """Return the value of a control record."""
    match control:
        case Sequence(next_seq):
            return _HEAD.pack(SEQUENCE, VERSION, 0, 0) + _SEQUENCE.pack(next_seq)
        case Placed(sequences, moved, dues):
            flags = moved * MOVED_FLAG | (dues is not None) * DUES_FLAG
            own = b"" if dues is None else dues.astype("<i8").tobytes()
            return _HEAD.pack(PLACED, VERSION, flags, len(sequences)) + sequences.astype(_WORD).tobytes() + own
        case Gone(time_ns, last_seq, sequences, by_limits):
            ranges = to_ranges(sequences)
            head = _HEAD.pack(GONE, VERSION, by_limits, len(ranges))
            return head + _GONE.pack(time_ns, last_seq) + ranges.tobytes()
        case Config(time_ns, json):
            return _HEAD.pack(CONFIG, VERSION, 0, len(json)) + _TIME.pack(time_ns) + json
        case Facts(last_seq, last_time, last_id, known):
            parts = [_HEAD.pack(FACTS, VERSION, 0, len(known)), _FACTS.pack(last_seq, last_time, len(last_id)), last_id]
            for entry in known:
                parts += [_ID.pack(entry.sequence, entry.time_ns, len(entry.identifier)), entry.identifier]
            return b"".join(parts)
        case Origins(positions):
            parts = [_HEAD.pack(ORIGINS, VERSION, 0, len(positions))]
            for name, (sequence, identity) in positions.items():
                parts += [_ORIGIN.pack(sequence, len(name), len(identity)), name, identity]
            return b"".join(parts)


def parse_control(data: bytes) -> Control:
    """Return a control record; `FormatError` if this version does not know it."""
    try:
        kind, version, flags, count = _HEAD.unpack_from(data)
        if version == VERSION:
            control = _parse(kind, flags, count, data[_HEAD.size :])
            if control is not None:
                return control
    except (struct.error, ValueError):
        pass
    raise FormatError("stream", "unknown control record", hint="a later release may have written it")


def _parse(kind: int, flags: int, count: int, body: bytes) -> Control | None:
    match kind:
        case 1:
            return Sequence(*_SEQUENCE.unpack(body))
        case 2:
            moved, has_dues = bool(flags & MOVED_FLAG), bool(flags & DUES_FLAG)
            words = _words(body, 2 * count if has_dues else count)
            return Placed(words[:count], moved, words[count:].view(np.int64) if has_dues else None)
        case 3:
            time_ns, last_seq = _GONE.unpack_from(body)
            ranges = _words(body[_GONE.size :], 2 * count).reshape(-1, 2)
            return Gone(time_ns, last_seq, from_ranges(ranges), bool(flags & BY_LIMITS_FLAG))
        case 4:
            return Config(_TIME.unpack_from(body)[0], body[_TIME.size : _TIME.size + count])
        case 5 | 6:
            return _parse_facts(body, count) if kind == FACTS else _parse_origins(body, count)
        case _:
            return None


def _parse_facts(body: bytes, count: int) -> Facts:
    last_seq, last_time, size = _FACTS.unpack_from(body)
    at = _FACTS.size + size
    known = []
    for _ in range(count):
        sequence, time_ns, length = _ID.unpack_from(body, at)
        at += _ID.size
        known.append(KnownId(body[at : at + length], sequence, time_ns))
        at += length
    if at != len(body):
        raise ValueError("facts do not fill their record")
    return Facts(last_seq, last_time, body[_FACTS.size : _FACTS.size + size], tuple(known))


def _parse_origins(body: bytes, count: int) -> Origins:
    at, positions = 0, {}
    for _ in range(count):
        sequence, length, extra = _ORIGIN.unpack_from(body, at)
        begin, middle, at = at + _ORIGIN.size, at + _ORIGIN.size + length, at + _ORIGIN.size + length + extra
        positions[body[begin:middle]] = Position(sequence, body[middle:at])
    if at != len(body):
        raise ValueError("positions do not fill their record")
    return Origins(positions)


def _words(body: bytes, count: int) -> Words:
    if len(body) != 8 * count:
        raise ValueError("the count does not fit")
    return np.frombuffer(body, _WORD)


def to_ranges(sequences: Words) -> Words:
    """Return rising sequences as ranges, first and last (inclusive) in two columns."""
    if not len(sequences):
        return np.zeros((0, 2), _WORD)
    breaks = np.flatnonzero(np.diff(sequences) != 1)
    firsts = sequences[np.concatenate([[0], breaks + 1])]
    lasts = sequences[np.concatenate([breaks, [len(sequences) - 1]])]
    return np.column_stack([firsts, lasts]).astype(_WORD)


def from_ranges(ranges: Words) -> Words:
    """Return the sequences of some ranges."""
    if not len(ranges):
        return np.zeros(0, np.uint64)
    if (ranges[:, 1] < ranges[:, 0]).any() or int((ranges[:, 1] - ranges[:, 0]).sum()) > _RANGE_MAX:
        raise ValueError("not ranges")
    return np.concatenate([np.arange(first, last + 1, dtype=np.uint64) for first, last in ranges.tolist()])


_RANGE_MAX = 1 << 31
