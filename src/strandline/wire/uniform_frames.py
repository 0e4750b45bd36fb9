"""Client frames of one shape: the same sizes at the same places, as a busy publisher sends them.

Invariants: a returned frame equals the result of `lines.parse_frame` at its position. Only lengths have to agree:
subjects, replies and payloads may differ from frame to frame. Frames of another shape are left alone.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strandline.wire.columns import Ints
from strandline.wire.lines import Row

ROWS_MIN = 64
"""Below this, parsing frame by frame is faster."""

Octets = NDArray[np.uint8]

_LOWEST = 33
"""Blanks and control characters are below; they are left to the reference parser."""

_HIGHEST = 255
_FIELDS = len(Row._fields)


def find_uniform(data: bytes, start: int, first: Sequence[int]) -> Ints | None:
    """Return the frames from a position on that have the shape of the first; None if they are few."""
    row = Row(*first)
    stride = row.end - start
    count = (len(data) - start) // stride
    if count < ROWS_MIN:
        return None
    octets = np.frombuffer(data, np.uint8, count * stride, start).reshape(count, stride)
    line = row.header_start - start
    lowest, spread = _bounds(data[start : row.header_start], start, row)
    # By columns, so that each comparison is over many rows; bytes below the lowest wrap around and are too high.
    good = (octets[:, :line].T.copy() - lowest[:, None] <= spread[:, None]).all(axis=0)
    good &= (octets[:, -2] == ord("\r")) & (octets[:, -1] == ord("\n"))
    if not good.all():
        count = int(np.argmin(good))
        if count < ROWS_MIN:
            return None
    places = np.array(first, np.int64)
    # A part that is not there stays at zero; the first field is the operation.
    steps = (places > 0) * np.int64(stride)
    steps[0] = 0
    return places[:, None] + steps[:, None] * np.arange(count)


def _bounds(line: bytes, start: int, row: Row) -> tuple[Octets, Octets]:
    """Return the lowest value of each byte of a line, and how much higher it may be: nothing, but in names."""
    lowest = np.frombuffer(line, np.uint8).copy()
    spread = np.zeros(len(line), np.uint8)
    for begin, end in ((row.subject_start, row.subject_end), (row.reply_start, row.reply_end)):
        if end:
            lowest[begin - start : end - start] = _LOWEST
            spread[begin - start : end - start] = _HIGHEST - _LOWEST
    return lowest, spread
