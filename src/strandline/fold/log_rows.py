"""Where the puts and deletes of a snapshot log are: one number for each, and the keys that they are about.

Invariants: a span is `start << 26 | gone << 25 | length` of a record in the file, so the spans of a log ascend, and a
span is enough to find a record whose key is known.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.files import Buffer
from strandline.fold.columns import Numbers
from strandline.fold.log_format import KEY_AT
from strandline.wire import gather

Spans = NDArray[np.uint64]

START_SHIFT = 26
GONE = 1 << 25
LENGTH_MASK = GONE - 1
_WINDOW_BYTES = 1 << 30
"""Arrow's columns of bytes end at 2 GiB, and a record is far smaller than half of that."""


class LogRows(NamedTuple):
    """Puts and deletes in the order of the log."""

    spans: Spans
    key_lengths: NDArray[np.uint16]

    @property
    def starts(self) -> Numbers:
        """Return where each record begins."""
        return (self.spans >> np.uint64(START_SHIFT)).view(np.int64)

    def keys(self, data: Buffer) -> list[tuple[pa.BinaryArray, Spans]]:
        """Return the keys, in columns of some rows, with their spans; `data` is the log."""
        starts = self.starts + KEY_AT
        ends = starts + self.key_lengths
        found, first = [], 0
        while first < len(starts):
            begin = int(starts[first])
            end = max(first + 1, int(np.searchsorted(ends, begin + _WINDOW_BYTES, "right")))
            rows = slice(first, end)
            window = memoryview(data)[begin : int(ends[end - 1])]
            found.append((gather(window, starts[rows] - begin, ends[rows] - begin), self.spans[rows]))
            first = end
        return found


NO_ROWS = LogRows(np.empty(0, np.uint64), np.empty(0, np.uint16))


def spans_of(starts: Numbers, lengths: Numbers, puts: int) -> Spans:
    """Return the spans of records of which the first `puts` are puts, and the others deletes."""
    spans = starts << START_SHIFT | lengths
    spans[puts:] |= GONE
    return spans.view(np.uint64)


def sum_of_lengths(spans: Spans) -> int:
    """Return how many bytes the records have together."""
    return int((spans & np.uint64(LENGTH_MASK)).sum())
