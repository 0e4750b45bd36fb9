"""Compaction: it appends the live messages of the oldest part of the log again, and removes the part.

A part without live messages is removed at once. Others are emptied when more than half of the log is dead: so a full
pass moves no more than it frees, and a message that never changes is moved once for each doubling of the log.

Invariants: a part is removed only after everything that was moved out of it, and the facts that follow from it alone,
are durable, and after the checkpoint names the next part. A crash in between leaves a message twice under one sequence;
the later copy counts.
"""

from concurrent.futures import Future
from typing import Protocol

import numpy as np

from strandline.broker.streams.arrays import Places, Times, Words, among
from strandline.broker.streams.entries import Entry
from strandline.broker.streams.records import Facts, Origins, Placed, Sequence, format_control
from strandline.broker.streams.state import State
from strandline.broker.streams.storage import RECORD_OVERHEAD, MessageLog, MiB, Ticket

STEP_MESSAGES = 2_048
STEP_BYTES = MiB
STORED_BYTES_MIN = 4 * MiB


class Letting(Protocol):
    """The operations of a stream that compaction needs."""

    def append(self, entry: Entry) -> Ticket:
        """Append records of its own."""
        ...

    def let_go(self, end: int) -> Future[None]:
        """Write the new checkpoint, and remove the log below a place; all appends are durable."""
        ...

    def last_seq_at(self, place: int) -> int:
        """Return the last sequence at a place of the log."""
        ...


class Compaction:
    """One pass over the oldest part of the log, in steps."""

    def __init__(self, state: State, log: MessageLog, stream: Letting) -> None:
        self._state = state
        self._log = log
        self._stream = stream
        self._end = 0
        self._left: Words = np.zeros(0, np.uint64)
        self._dues: tuple[Words, Times] = (np.zeros(0, np.uint64), np.zeros(0, np.int64))
        self._ticket: Ticket | None = None
        self._letting: Future[None] | None = None
        self._looked_at = -1

    def step(self) -> bool:
        """Do a little; return whether there is more to do at once."""
        if self._ticket is not None:
            return self._finish()
        if not self._end and not self._begin():
            return False
        if len(self._left):
            self._move()
            return True
        self._ticket = self._stream.append(self._facts())
        return True

    def _begin(self) -> bool:
        end = self._log.oldest_end()
        if end is None:
            return False
        index = self._state.index
        if self._is_wasteful():
            rows = self._rows_below(end)
        else:
            if self._looked_at == end or self._first_place() < end:
                return False
            rows = self._rows_below(end)
            if len(rows):
                self._looked_at = end
                return False
        self._end = end
        self._left = index.rows.sequence[rows]
        self._dues = self._state.expiry.entries()
        return True

    def _is_wasteful(self) -> bool:
        """Whether more than half of the log is dead."""
        index = self._state.index
        live = index.bytes + RECORD_OVERHEAD * index.messages
        return self._log.stored_bytes > max(2 * live, STORED_BYTES_MIN)

    def _first_place(self) -> int:
        """Return the place of the first live message: a cheap sign of whether the oldest part may be empty."""
        index = self._state.index
        return index.rows.place_at[index.first_row] if index.messages else self._log.next_place

    def _rows_below(self, end: int) -> Places:
        index = self._state.index
        used = index.used
        return np.flatnonzero(index.rows.live[:used] & (index.rows.place[:used] < end))

    def _move(self) -> None:
        """Append some live messages again."""
        index = self._state.index
        rows = index.rows_of(self._left[:STEP_MESSAGES])
        rows = rows[rows >= 0]
        rows = rows[index.rows.place[rows] < self._end]
        sums = np.cumsum(index.rows.size[rows], dtype=np.int64)
        fit = max(1, int(np.searchsorted(sums, STEP_BYTES, side="right")))
        left = np.concatenate([index.rows.sequence[rows[fit:]], self._left[STEP_MESSAGES:]])
        rows = rows[:fit]
        if not len(rows):
            self._left = left
            return
        order = np.argsort(index.rows.place[rows], kind="stable")
        rows = rows[order]
        sequences = index.rows.sequence[rows]
        found = self._log.read(index.rows.place[rows])
        control = format_control(Placed(sequences, moved=True, dues=self._dues_of(sequences)))
        base = self._log.next_place
        has_headers = any(found.headers)
        times = np.concatenate([[self._state.now_ns], index.rows.time[rows]])
        size = len(control) + int(index.rows.size[rows].sum(dtype=np.int64))
        headers = [b"", *found.headers] if has_headers else None
        self._stream.append(Entry([b"", *found.keys], [control, *found.values], headers, times, size))
        index.rows.place[rows] = np.arange(base + 1, base + 1 + len(rows))
        index.rows.moved[rows] = True
        self._left = left  # not before: a read that failed may succeed the next time

    def _dues_of(self, sequences: Words) -> Times | None:
        """Return when messages go by themselves: it was settled when they came, by the configuration of then."""
        known, dues = self._dues
        never = self._state.expiry.never
        found = np.zeros(len(sequences), np.int64)
        if len(known):
            at = np.minimum(np.searchsorted(known, sequences), len(known) - 1)
            found = np.where(known[at] == sequences, dues[at], 0)
        if never:
            found[among(sequences, np.fromiter(never, np.uint64, len(never)))] = -1
        return found if found.any() else None

    def _facts(self) -> Entry:
        """Return the facts that follow from the removed part alone, and the next sequence.

        The sequence where the rest of the log begins is counted back from that: the state may be ahead of the log.
        """
        state = self._state
        last_seq = self._stream.last_seq_at(self._end)
        known = [entry for entry in state.dedupe.entries() if entry.sequence <= last_seq]
        if known:
            live = state.is_live(np.array([entry.sequence for entry in known], np.uint64))
            known = [entry for entry, is_live in zip(known, live.tolist(), strict=True) if not is_live]
        facts = Facts(state.index.last_seq, state.index.last_time, state.last_id, tuple(known))
        values = [format_control(Sequence(state.index.last_seq + 1)), format_control(facts)]
        if state.origins:
            values.append(format_control(Origins(state.origins)))
        return Entry([b""] * len(values), values, None, [state.now_ns] * len(values), sum(map(len, values)))

    def _finish(self) -> bool:
        """Remove the part when everything is durable, and wait for the removal."""
        if self._letting is None:
            if self._ticket is None or not self._ticket.done():
                return False
            self._ticket.result()
            self._letting = self._stream.let_go(self._end)
        if not self._letting.done():
            return False
        letting, self._letting, self._ticket, self._end = self._letting, None, None, 0
        letting.result()
        return True
