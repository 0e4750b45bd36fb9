"""Expiry of messages: by the stream's age, and by a time to live of their own.

Invariants: expiry is a function of the rows and of the time passed in, so a replay with the same times has the same
result. Messages with a time to live are in arrays by the second of their expiry: sixteen bytes for each.
"""

import heapq
from array import array

import numpy as np

from strandline.broker.streams.arrays import Places, Times, Words, among, distinct
from strandline.broker.streams.headers import NEVER
from strandline.broker.streams.index import Index
from strandline.clock import NS_PER_S

_TIME_MAX_NS = 2**63 - 1


def due_of(time_ns: int, ttl_s: int) -> int:
    """Return when a message expires, at most the last time that can be stored."""
    return min(time_ns + ttl_s * NS_PER_S, _TIME_MAX_NS)


class Expiry:
    """Times to live by the second, and the messages that never go by age."""

    def __init__(self) -> None:
        self._seconds: dict[int, tuple[array[int], array[int]]] = {}
        self._order: list[int] = []
        self.never: set[int] = set()

    def add(self, sequence: int, time_ns: int, ttl_s: int) -> None:
        """Note a message's own time to live."""
        if ttl_s == NEVER:
            self.never.add(sequence)
            return
        self.add_at(sequence, due_of(time_ns, ttl_s))

    def add_at(self, sequence: int, due_ns: int) -> None:
        """Record when a message expires."""
        second = due_ns // NS_PER_S
        kept = self._seconds.get(second)
        if kept is None:
            kept = self._seconds[second] = (array("Q"), array("q"))
            heapq.heappush(self._order, second)
        kept[0].append(sequence)
        kept[1].append(due_ns)

    def add_dues(self, sequences: Words, dues: Times) -> None:
        """Record when messages expire: 0 for no time of their own, -1 for never."""
        for sequence, due_ns in zip(sequences.tolist(), dues.tolist(), strict=True):
            if due_ns > 0:
                self.add_at(sequence, due_ns)
            elif due_ns < 0:
                self.never.add(sequence)

    @property
    def is_uniform(self) -> bool:
        """Whether messages go in the order in which they came: none has a time to live of its own."""
        return not self._order and not self.never

    def next_ns(self, index: Index, max_age_ns: int) -> int | None:
        """Return when something may go next, or None; never late, at times early."""
        due = [self._order[0] * NS_PER_S] if self._order else []
        if max_age_ns > 0 and index.messages:
            if not self.never:
                due.append(index.rows.time_at[index.first_row] + max_age_ns)
            else:
                aged = self._aged(index, index.used)
                due += [index.rows.time_at[int(aged[0])] + max_age_ns] if len(aged) else []
        return min(due) if due else None

    def _aged(self, index: Index, stop: int) -> Places:
        """Return the live rows up to one that have expired by age."""
        rows = index.live_rows(index.first_row, stop)
        if not self.never:
            return rows
        kept = among(index.rows.sequence[rows], np.fromiter(self.never, np.uint64, len(self.never)))
        aged: Places = rows[~kept]
        return aged

    def due(self, index: Index, now_ns: int, max_age_ns: int) -> Places:
        """Return the live rows that are past their time, in order, and forget their times to live."""
        parts = []
        if max_age_ns > 0 and index.messages and index.rows.time_at[index.first_row] <= now_ns - max_age_ns:
            first = index.first_row
            times = index.rows.time[first : index.used]
            stop = first + int(np.searchsorted(times, now_ns - max_age_ns, side="right"))
            parts.append(self._aged(index, stop))
        if self._order and self._order[0] * NS_PER_S <= now_ns:
            sequences = self._take(now_ns)
            rows = index.rows_of(sequences)
            parts.append(rows[rows >= 0])
        if not parts:
            return np.zeros(0, np.int64)
        return distinct(np.concatenate(parts))

    def _take(self, now_ns: int) -> Words:
        taken: list[Words] = []
        while self._order and self._order[0] * NS_PER_S <= now_ns:
            second = self._order[0]
            sequences, dues = self._seconds[second]
            late = np.frombuffer(dues, np.int64) <= now_ns
            taken.append(np.frombuffer(sequences, np.uint64)[late].copy())
            if late.all():
                heapq.heappop(self._order)
                del self._seconds[second]
                continue
            rest = ~late
            self._seconds[second] = (
                array("Q", np.frombuffer(sequences, np.uint64)[rest].tolist()),
                array("q", np.frombuffer(dues, np.int64)[rest].tolist()),
            )
            break
        return np.concatenate(taken)

    def entries(self) -> tuple[Words, Times]:
        """Return every message with a time to live, by sequence, and its expiry."""
        if not self._seconds:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64)
        sequences = np.concatenate([np.frombuffer(kept[0], np.uint64) for kept in self._seconds.values()])
        dues = np.concatenate([np.frombuffer(kept[1], np.int64) for kept in self._seconds.values()])
        order = np.argsort(sequences, kind="stable")
        return sequences[order], dues[order]
