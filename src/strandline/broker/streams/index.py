"""The index of a stream: one row for each message, ordered by sequence, and totals by subject.

Invariants: rows rise by sequence; dead rows are dropped when they are half of all; `messages`, `bytes` and the count of
every subject are exact at all times. Pure: it knows nothing of bytes, files or time.
"""

import numpy as np

from strandline.broker.streams.arrays import Ids, Places, Times, Words, distinct
from strandline.broker.streams.rows import Rowed
from strandline.broker.streams.subjects import Filter, Subjects

SQUEEZE_MIN = 16_384
SCAN_ROWS = 4_096
_NO_WORDS: Words = np.zeros(0, np.uint64)


class Index(Rowed):
    """The rows and subjects of one stream, and queries over them."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects = Subjects()
        self.messages = 0
        self.bytes = 0
        self.last_seq = 0
        self.last_time = 0

    # Adding.

    def append(self, subjects: Ids, sizes: Ids, place: int, time_ns: int) -> int:
        """Add rows with the next sequences at consecutive places; return the first sequence."""
        count = len(subjects)
        first = self.last_seq + 1
        sequences = np.arange(first, first + count, dtype=np.uint64)
        places = np.arange(place, place + count, dtype=np.int64)
        self.add(sequences, places, subjects, sizes, time_ns)
        return first

    def append_one(self, subject: int, size: int, place: int, time_ns: int) -> int:
        """Add one row with the next sequence, without the cost of arrays; return its sequence."""
        rows, at = self.rows, self.used
        rows.reserve(at + 1)
        sequence = self.last_seq + 1
        rows.sequence_at[at] = sequence
        rows.place_at[at] = place
        rows.subject_at[at] = subject
        rows.size_at[at] = size
        rows.time_at[at] = time_ns
        subjects = self.subjects
        rows.before_at[at] = subjects.last_at[subject]
        rows.live_at[at] = True
        rows.moved_at[at] = False
        self.used = at + 1
        if not subjects.count_at[subject]:
            subjects.first_at[subject] = sequence
            subjects.used += 1
        subjects.count_at[subject] += 1
        subjects.last_at[subject] = sequence
        self.messages += 1
        self.bytes += size
        self.last_seq = sequence
        self.last_time = time_ns
        return sequence

    def add(self, sequences: Words, places: Places, numbers: Ids, sizes: Ids, times: Times | int) -> None:
        """Add rows with given sequences, which rise and are above all others."""
        count = len(sequences)
        if not count:
            return
        rows, subjects, at = self.rows, self.subjects, self.used
        end = at + count
        rows.reserve(end)
        rows.sequence[at:end] = sequences
        rows.place[at:end] = places
        rows.subject[at:end] = numbers
        rows.size[at:end] = sizes
        rows.time[at:end] = times
        rows.live[at:end] = True
        rows.moved[at:end] = False
        rows.before[at:end], repeats = self._before(sequences, numbers)
        self.used = end
        counts = subjects.count[numbers]
        fresh = counts == 0
        if fresh.any():
            # Backwards, so that the first of several stays.
            subjects.first[numbers[fresh][::-1]] = sequences[fresh][::-1]
            subjects.used += len(distinct(numbers[fresh]))
        subjects.last[numbers] = sequences
        if repeats:
            np.add.at(subjects.count, numbers, 1)
        else:
            subjects.count[numbers] = counts + np.uint32(1)
        self.messages += count
        self.bytes += int(sizes.sum(dtype=np.int64))
        self.last_seq = int(sequences[-1])
        self.last_time = int(rows.time_at[end - 1])

    def _before(self, sequences: Words, numbers: Ids) -> tuple[Words, bool]:
        """Return the sequence before each new row on the same subject (0: none), and whether a subject comes twice."""
        before = self.subjects.last[numbers]
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(again):
            before[order[again + 1]] = sequences[order[again]]
        return before, bool(len(again))

    def put_back(self, sequences: Words, places: Places, numbers: Ids, sizes: Ids, times: Times) -> None:
        """Add rows of older sequences, or give an existing row another place; only replay does this.

        A dead row stays dead: it was alive when it was moved, and was removed since.
        """
        found = self.find(sequences)
        known = found >= 0
        rows = self.rows
        rows.place[found[known]] = places[known]
        rows.moved[found[known]] = True
        if known.all():
            return
        new = np.flatnonzero(~known)
        self._insert(sequences[new], places[new], numbers[new], sizes[new], times[new])

    def _insert(self, sequences: Words, places: Places, numbers: Ids, sizes: Ids, times: Times) -> None:
        rows, used, count = self.rows, self.used, len(sequences)
        rows.reserve(used + count)
        order = np.argsort(np.concatenate([rows.sequence[:used], sequences]), kind="stable")
        for name, values in (
            ("sequence", sequences),
            ("place", places),
            ("subject", numbers),
            ("size", sizes),
            ("time", times),
            ("before", np.zeros(count, np.uint64)),
            ("live", np.ones(count, np.bool_)),
            ("moved", np.ones(count, np.bool_)),
        ):
            column = getattr(rows, name)
            column[: used + count] = np.concatenate([column[:used], values])[order]
        self.used += count
        self.head = 0
        self.messages += count
        self.bytes += int(sizes.sum(dtype=np.int64))
        self._recount()

    def _recount(self) -> None:
        """Work out every subject's count, first and last, and each row's row before, from the rows alone."""
        rows, subjects = self.rows, self.subjects
        live = np.flatnonzero(rows.live[: self.used])
        numbers, sequences = rows.subject[live], rows.sequence[live]
        size = len(subjects)
        subjects.count[:size] = np.bincount(numbers, minlength=size)
        subjects.used = int(np.count_nonzero(subjects.count[:size]))
        subjects.first[:size] = 0
        subjects.last[:size] = 0
        rows.before[live], _ = self._before(sequences, numbers)
        subjects.first[numbers[::-1]] = sequences[::-1]
        subjects.last[numbers] = sequences

    def restore(self, count: int) -> None:
        """Take over `count` live rows that were put into the columns from outside."""
        self.used = self.messages = count
        self.bytes = int(self.rows.size[:count].sum(dtype=np.int64))
        self._recount()

    # Finding.

    @property
    def first_seq(self) -> int:
        """The first live sequence; without messages, the next one."""
        if not self.messages:
            return self.last_seq + 1
        return int(self.rows.sequence_at[self.first_row])

    def live_rows(self, start: int, stop: int, matching: Filter | None = None, limit: int | None = None) -> Places:
        """Return live rows of [start, stop) that a filter lets through, at most `limit`."""
        start, stop = max(start, self.head), min(stop, self.used)
        if matching is not None and matching.is_everything:
            matching = None
        if limit is None:
            return self._chosen(start, stop, matching)
        parts: list[Places] = []
        step = max(SCAN_ROWS, limit)
        while start < stop and limit > 0:
            end = min(stop, start + step)
            part = self._chosen(start, end, matching)[:limit]
            limit -= len(part)
            start = end
            step = min(4 * step, 1 << 20)
            if len(part):
                parts.append(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _chosen(self, start: int, stop: int, matching: Filter | None) -> Places:
        chosen = self.rows.live[start:stop]
        if matching is not None:
            chosen = chosen & matching.mask()[self.rows.subject[start:stop]]
        return np.flatnonzero(chosen) + start

    def pending(self, matching: Filter, from_seq: int, up_to: int | None = None) -> int:
        """Return how many live messages from a sequence on, up to another (inclusive), a filter lets through."""
        start = max(self.row_from(from_seq), self.head)
        stop = self.used if up_to is None else self.row_from(up_to + 1)
        if stop <= start:
            return 0
        if start <= self.first_row and stop == self.used:
            if matching.is_everything:
                return self.messages
            return int(self.subjects.count[matching.numbers()].sum(dtype=np.int64))
        if matching.is_everything:
            if stop == self.used and start - self.head < stop - start:
                return self.messages - int(np.count_nonzero(self.rows.live[self.head : start]))
            return int(np.count_nonzero(self.rows.live[start:stop]))
        return len(self._chosen(start, stop, matching))

    def first_of(self, number: int) -> int:
        """Return the first sequence of a subject that has messages, and remember it."""
        subjects = self.subjects
        if subjects.count_at[number] == 1:
            first = subjects.last_at[number]
        else:
            first = self._scan_first(number, subjects.first_at[number])
        subjects.first_at[number] = first
        return int(first)

    def _scan_first(self, number: int, bound: int) -> int:
        at = max(self.row_from(bound), self.head)
        step = 256
        while at < self.used:
            end = min(self.used, at + step)
            found = np.flatnonzero(self.rows.live[at:end] & (self.rows.subject[at:end] == number))
            if len(found):
                return int(self.rows.sequence_at[at + int(found[0])])
            at = end
            step = min(4 * step, 1 << 20)
        raise AssertionError("a subject with messages has a first one")

    def sequences_of(self, number: int) -> Words:
        """Return every live sequence of a subject."""
        start = self.row_from(self.subjects.first_at[number])
        stop = self.row_from(self.subjects.last_at[number] + 1)
        chosen = self.rows.live[start:stop] & (self.rows.subject[start:stop] == number)
        found: Words = self.rows.sequence[start:stop][chosen]
        return found

    def lasts(self, matching: Filter, up_to: int | None = None) -> Words:
        """Return the last sequence of each subject that a filter lets through, in order; at or before `up_to`."""
        numbers = matching.numbers()
        found = self.subjects.last[numbers]
        if up_to is not None and up_to < self.last_seq:
            late = found > up_to
            if late.any():
                found = np.concatenate([found[~late], self._lasts_before(numbers[late], up_to)])
        found.sort()
        return found

    def _lasts_before(self, numbers: Ids, up_to: int) -> Words:
        stop = self.row_from(up_to + 1)
        wanted = np.zeros(len(self.subjects), np.bool_)
        wanted[numbers] = True
        rows = np.flatnonzero(self.rows.live[:stop] & wanted[self.rows.subject[:stop]])
        last = np.zeros(len(self.subjects), np.uint64)
        last[self.rows.subject[rows]] = self.rows.sequence[rows]
        found: Words = last[last > 0]
        return found

    # Removing.

    def remove_one(self, row: int) -> None:
        """Remove one live row."""
        rows, subjects = self.rows, self.subjects
        rows.live_at[row] = False
        number, sequence = rows.subject_at[row], rows.sequence_at[row]
        left = subjects.count_at[number] - 1
        subjects.count_at[number] = left
        self.messages -= 1
        self.bytes -= rows.size_at[row]
        if not left:
            subjects.first_at[number] = subjects.last_at[number] = 0
            subjects.used -= 1
        elif subjects.first_at[number] == sequence:
            subjects.first_at[number] = sequence + 1
        elif subjects.last_at[number] == sequence:
            subjects.last_at[number] = self._live_before(row)

    def remove(self, found: Places) -> None:
        """Take live rows out; each is named once."""
        if len(found) <= 8:  # noqa: PLR2004 - below this the loop is cheaper than the arrays
            for row in found.tolist():
                self.remove_one(row)
            return
        rows, subjects = self.rows, self.subjects
        rows.live[found] = False
        numbers, sequences = rows.subject[found], rows.sequence[found]
        removals = np.bincount(numbers) if 8 * len(numbers) > len(subjects) else None
        touched = distinct(numbers) if removals is None else np.flatnonzero(removals).astype(np.uint32)
        if len(touched) == len(numbers):
            subjects.count[numbers] -= np.uint32(1)
        elif removals is None:
            np.subtract.at(subjects.count, numbers, 1)
        else:
            subjects.count[touched] -= removals[touched].astype(np.uint32)
        self.messages -= len(found)
        self.bytes -= int(rows.size[found].sum(dtype=np.int64))
        empty = touched[subjects.count[touched] == 0]
        subjects.first[empty] = 0
        subjects.last[empty] = 0
        subjects.used -= len(empty)
        at_first = subjects.first[numbers] == sequences
        subjects.first[numbers[at_first]] = sequences[at_first] + np.uint64(1)
        for place in np.flatnonzero(subjects.last[numbers] == sequences).tolist():
            subjects.last_at[int(numbers[place])] = self._live_before(int(found[place]))

    def _live_before(self, row: int) -> int:
        """Return the sequence of the previous live row on the same subject, which must exist."""
        rows = self.rows
        number = rows.subject_at[row]
        sequence = rows.before_at[row]
        while sequence:
            at = self.row_from(sequence)
            if at >= self.used or rows.sequence_at[at] != sequence:
                break  # it was squeezed out, and its link with it
            if rows.live_at[at]:
                return int(sequence)
            sequence = rows.before_at[at]
        end = row
        while end > self.head:
            start = max(self.head, end - SCAN_ROWS)
            found = np.flatnonzero(rows.live[start:end] & (rows.subject[start:end] == number))
            if len(found):
                return int(rows.sequence_at[start + int(found[-1])])
            end = start
        raise AssertionError("a subject with messages has a last one")

    def squeeze(self) -> bool:
        """Forget dead rows if they are the larger part; return whether that was done."""
        dead = self.used - self.messages
        if dead < SQUEEZE_MIN or dead * 2 < self.used:
            return False
        rows = self.rows
        kept = np.flatnonzero(rows.live[: self.used])
        for name in rows.TYPES:
            column = getattr(rows, name)
            column[: len(kept)] = column[kept]
        rows.shrink(len(kept))
        rows.live[len(kept) :] = False
        self.used, self.head = len(kept), 0
        if self.subjects.is_sparse:
            new = self.subjects.renumber()
            rows.subject[: self.used] = new[rows.subject[: self.used]]
        return True
