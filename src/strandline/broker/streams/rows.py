"""The rows of a stream's index: one for each message, ordered by sequence, and their lookup.

Invariants: rows rise by sequence; every row below `head` is dead. Pure.
"""

from typing import ClassVar

import numpy as np

from strandline.broker.streams.arrays import Columns, Flags, Ids, Places, Times, Words


class Rows(Columns):
    """The columns; `before` is the sequence before on the same subject."""

    TYPES: ClassVar[dict[str, type]] = {
        "sequence": np.uint64,
        "place": np.int64,
        "subject": np.uint32,
        "size": np.uint32,
        "time": np.int64,
        "before": np.uint64,
        "live": np.bool_,
        "moved": np.bool_,
    }
    sequence: Words
    place: Places
    subject: Ids
    size: Ids
    time: Times
    before: Words
    live: Flags
    moved: Flags
    sequence_at: memoryview
    place_at: memoryview
    subject_at: memoryview
    size_at: memoryview
    time_at: memoryview
    before_at: memoryview
    live_at: memoryview
    moved_at: memoryview


class Rowed:
    """Rows and their lookup."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.used = 0
        """The number of rows, dead ones included."""
        self.head = 0
        """Every row below this one is dead."""

    def row_of(self, sequence: int) -> int:
        """Return the row of a live sequence, or -1."""
        used = self.used
        if not used:
            return -1
        at = sequence - self.rows.sequence_at[0]
        if at < 0:
            return -1
        if at >= used or self.rows.sequence_at[at] != sequence:
            at = int(np.searchsorted(self.rows.sequence[:used], np.uint64(sequence)))
            if at >= used or self.rows.sequence_at[at] != sequence:
                return -1
        return at if self.rows.live_at[at] else -1

    def rows_of(self, sequences: Words) -> Places:
        """Return the row of each sequence, -1 for sequences that are not live."""
        at = self.find(sequences)
        return np.where((at >= 0) & self.rows.live[at], at, -1)

    def find(self, sequences: Words) -> Places:
        """Return the row of each sequence, dead or live, -1 if there is none."""
        used = self.used
        if not used:
            return np.full(len(sequences), -1, np.int64)
        known = self.rows.sequence[:used]
        if int(known[-1]) - int(known[0]) + 1 == used:
            at = (sequences - known[0]).astype(np.int64)  # a sequence below the first wraps to far above the last
            at[(at < 0) | (at >= used)] = 0
        else:
            at = np.searchsorted(known, sequences).astype(np.int64)
            at[at >= used] = 0
        return np.where(known[at] == sequences, at, -1)

    def row_from(self, sequence: int) -> int:
        """Return the first row, dead or live, whose sequence is at least the given one."""
        used = self.used
        if not used:
            return 0
        first = self.rows.sequence_at[0]
        if sequence <= first:
            return 0
        last = self.rows.sequence_at[used - 1]
        if sequence > last:
            return used
        if last - first + 1 == used:
            return int(sequence - first)
        return int(np.searchsorted(self.rows.sequence[:used], np.uint64(sequence)))

    @property
    def first_row(self) -> int:
        """The first live row, or `used` if there is none."""
        live = self.rows.live_at
        used = self.used
        at = self.head
        if at < used and not live[at]:
            self.head = at = self._next_live(at)
        return at

    def _next_live(self, at: int) -> int:
        step = 64
        while at < self.used:
            part = self.rows.live[at : min(at + step, self.used)]
            found = int(part.argmax())
            if part[found]:
                return at + found
            at += len(part)
            step = min(4 * step, 1 << 20)
        return self.used
