"""Message frames of a whole buffer found at once: every step is one operation over all rows.

How: each line that begins with the word of a message is a candidate, its arguments and size are read as columns, and
the candidates are linked where one ends exactly at the start of another. Payloads may contain anything, even
operations of the protocol: a candidate counts only if the chain of frames from the start of the buffer leads to it.

Invariants: a row that is marked as good is what `lines.parse_frame` says about that position; unusual lines are
not good and left to that function.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strandline.wire.columns import DIGITS_MAX, Flags, Ints, decimals, gather, gathered_bytes, positions_of, words_at
from strandline.wire.lines import CLIENT_DIGITS_MAX, Row
from strandline.wire.ops import Op, Side, WireLimits

CR, LF, SPACE = 13, 10, 32
WORD_BYTES = 4
ROWS_MIN = 128
"""Below this, reading frame by frame is faster than setting up columns."""

BUFFER_BYTES_MAX = 1 << 31
"""Positions within a buffer are 32-bit numbers while its lines are gathered."""

_DIGITS_MAX = {Side.CLIENT: CLIENT_DIGITS_MAX, Side.SERVER: DIGITS_MAX}
_PLAIN = {Side.CLIENT: (Op.PUB, b"PUB "), Side.SERVER: (Op.MSG, b"MSG ")}
_HEADERED = {Side.CLIENT: (Op.HPUB, b"HPUB"), Side.SERVER: (Op.HMSG, b"HMSG")}


@dataclass(frozen=True, slots=True)
class Candidates:
    """Lines that look like message frames, by position; `rows` has a column for each field of `Row`."""

    starts: Ints
    good: Flags
    rows: Ints
    breaks: Ints
    """Rows that are not followed by the next one."""


def find_candidates(data: bytes, side: Side, limits: WireLimits) -> Candidates | None:
    """Return the message frames of a buffer; None if its lines are unusual and have to be read one by one."""
    lines = _message_lines(data, side) if len(data) < BUFFER_BYTES_MAX else None
    if lines is None:
        return None
    starts, line_ends, headered = lines
    blob = gathered_bytes(gather(data, starts, line_ends + 1))
    text = np.frombuffer(blob, np.uint8)
    marks = np.flatnonzero(text <= SPACE)
    kinds = text[marks]
    alike = _rows_alike(blob, marks, kinds, lines, side, limits)
    if alike is not None:
        return _linked(data, alike, starts)
    returns = np.flatnonzero(kinds == CR)
    plain = np.count_nonzero(kinds == SPACE) + len(returns) == len(marks)
    # Neighbouring marks are repeated blanks; fewer or more returns than lines are a return within a line.
    if not plain or len(returns) != len(starts) or not (np.diff(marks) > 1).all():
        return None
    return _linked(data, _rows(blob, marks, returns, (starts, line_ends, headered), side, limits), starts)


def _message_lines(data: bytes, side: Side) -> tuple[Ints, Ints, Flags] | None:
    octets = np.frombuffer(data, np.uint8)
    feeds = positions_of(octets, LF)
    line_ends = feeds[octets[np.maximum(feeds - 1, 0)] == CR] - 1
    starts = np.empty_like(line_ends)
    starts[:1] = 0
    starts[1:] = line_ends[:-1] + 2
    words = words_at(data, "<u4", np.minimum(starts, len(data) - WORD_BYTES))
    headered = words == int.from_bytes(_HEADERED[side][1], "little")
    chosen = np.flatnonzero((words == int.from_bytes(_PLAIN[side][1], "little")) | headered)
    if len(chosen) < ROWS_MIN:
        return None
    return starts[chosen], line_ends[chosen], headered[chosen]


def _rows_alike(
    blob: bytes, marks: Ints, kinds: NDArray[np.uint8], lines: tuple[Ints, Ints, Flags], side: Side, limits: WireLimits
) -> tuple[Ints, Flags] | None:
    """Return what `_rows` does if all lines are of one operation with the same arguments; None if they are not."""
    starts, line_ends, headered = lines
    count = len(starts)
    with_headers = bool(headered[0])
    with_sid = int(side is Side.SERVER)
    spaces = len(marks) // count - 1
    with_reply = spaces - (2 + with_sid + with_headers)
    wanted = np.full(spaces + 1, SPACE, np.uint8)
    wanted[-1:] = CR
    if with_reply not in (0, 1) or len(marks) % count or not (kinds.reshape(count, -1) == wanted).all():
        return None
    table = marks.reshape(count, -1)
    begins = np.empty(count, np.int64)
    begins[0] = 0
    begins[1:] = table[:-1, -1] + 1
    lengths = table[:, 1:] - table[:, :-1] - 1
    if (headered != with_headers).any() or (table[:, 0] - begins != 3 + with_headers).any() or lengths.min() < 1:
        return None
    sizes, good = decimals(blob, table[:, -1], lengths[:, -1])
    good &= (sizes <= limits.payload_bytes_max) & (lengths[:, -1] <= _DIGITS_MAX[side])
    good &= line_ends - starts <= limits.line_bytes_max
    sizes *= good
    places = (table + (starts - begins)[:, None]).T
    rows = np.empty((len(Row._fields), count), np.int64)
    rows[0] = (_HEADERED if with_headers else _PLAIN)[side][0]
    rows[1] = places[0] + 1
    rows[2] = places[1]
    rows[3] = places[1 + with_sid] + 1 if with_reply else 0
    rows[4] = places[2 + with_sid] if with_reply else 0
    rows[5] = places[1] + 1 if with_sid else 0
    rows[6] = places[2] if with_sid else 0
    rows[7] = line_ends + 2
    rows[8] = rows[7]
    if with_headers:
        header_sizes, known = decimals(blob, table[:, -2], lengths[:, -2])
        good &= known & (header_sizes <= sizes) & (header_sizes > 0) & (lengths[:, -2] <= _DIGITS_MAX[side])
        header_sizes *= good
        rows[8] += header_sizes.view(np.int64)
    rows[9] = rows[7] + sizes.view(np.int64)
    rows[10] = rows[9] + 2
    return rows, good


def _rows(
    blob: bytes, marks: Ints, returns: Ints, lines: tuple[Ints, Ints, Flags], side: Side, limits: WireLimits
) -> tuple[Ints, Flags]:
    """Return the fields of each line's frame, and which of them are usual; positions are those of the buffer."""
    starts, line_ends, headered = lines
    spaces = np.diff(returns, prepend=-1) - 1
    first = returns - spaces
    with_sid = int(side is Side.SERVER)
    least = 2 + with_sid + headered
    with_reply = spaces == least + 1
    good = (spaces == least) | with_reply
    line_returns = marks[returns]
    begins = np.empty_like(line_returns)
    begins[:1] = 0
    begins[1:] = line_returns[:-1] + 1
    # Rows without enough spaces read those of their neighbours; they are not good, so the values are not used.
    highest = len(marks) - 1
    space = [marks[np.minimum(first + n, highest)] for n in range(3 + with_sid)]
    good &= space[0] - begins == 3 + headered
    good &= line_ends - starts <= limits.line_bytes_max
    last = marks[returns - 1]
    sizes, known = decimals(blob, line_returns, line_returns - last - 1)
    good &= known & (sizes <= limits.payload_bytes_max) & (line_returns - last - 1 <= _DIGITS_MAX[side])
    size = np.where(good, sizes, 0).astype(np.int64)
    header_size = np.zeros_like(size)
    if headered.any():
        digits = last - marks[np.maximum(returns - 2, 0)] - 1
        sizes, known = decimals(blob, last, digits)
        known &= digits <= _DIGITS_MAX[side]
        good &= (known & (sizes <= size.astype(np.uint64)) & (sizes > 0)) | ~headered
        header_size = np.where(good & headered, sizes, 0).astype(np.int64)
    shift = starts - begins
    rows = np.empty((len(Row._fields), len(starts)), np.int64)
    rows[0] = np.where(headered, _HEADERED[side][0], _PLAIN[side][0])
    rows[1] = space[0] + 1 + shift
    rows[2] = space[1] + shift
    rows[3] = np.where(with_reply, space[1 + with_sid] + 1 + shift, 0)
    rows[4] = np.where(with_reply, space[2 + with_sid] + shift, 0)
    rows[5] = space[1] + 1 + shift if with_sid else 0
    rows[6] = space[2] + shift if with_sid else 0
    rows[7] = line_ends + 2
    rows[8] = rows[7] + header_size
    rows[9] = rows[7] + size
    rows[10] = rows[9] + 2
    return rows, good


def _linked(data: bytes, found: tuple[Ints, Flags], starts: Ints) -> Candidates:
    rows, good = found
    ends = rows[10]
    good &= ends <= len(data)
    linked = good[:-1] & (ends[:-1] == starts[1:])
    breaks = np.flatnonzero(~linked)
    # A linked frame ends where a line begins, so its CR LF was seen; for the others it is looked at here.
    loose = np.append(breaks, len(starts) - 1)
    octets = np.frombuffer(data, np.uint8)
    closing = np.clip(ends[loose], 2, len(data))
    good[loose] &= (octets[closing - 2] == CR) & (octets[closing - 1] == LF)
    return Candidates(starts, good, rows, breaks)
