"""Reads messages of a stream: one, the last, the next, many, and their number.

Invariants: only live messages are returned; counts are exact; the time of a lookup hardly grows with the stream.
"""

from collections.abc import Callable

import numpy as np

from strandline.broker.api.requests import GetRequest, PurgeRequest
from strandline.broker.streams.arrays import Places, Words
from strandline.broker.streams.messages import (
    BYTES_MAX,
    MESSAGE_NOT_FOUND,
    MULTI_LAST_MAX,
    NO_RESULTS,
    TOO_MANY_RESULTS,
    Message,
    Messages,
    Reply,
    check_direct,
    format_direct,
    format_end,
    message_bytes,
)
from strandline.broker.streams.state import State
from strandline.broker.streams.storage import MessageLog
from strandline.broker.streams.subjects import Filter
from strandline.wire import has_wildcard

CHUNK_MESSAGES = 256


class MessageReader:
    """Reads a stream's messages by way of its state."""

    def __init__(self, state: State, log: MessageLog, refuse: Callable[[int], None]) -> None:
        self._state = state
        self._log = log
        self._refuse = refuse
        """Raises where the log may not have the messages up to a sequence that the state knows."""

    def filter(self, patterns: tuple[str, ...]) -> Filter:
        """Return which subjects some patterns match; remembered, so that each subject is looked at once."""
        return self._state.index.subjects.filter(patterns)

    def read(self, sequences: Words, bytes_max: int | None = None) -> Messages:
        """Return the messages of ascending sequences; sequences without a message are left out.

        Together the messages have at most `bytes_max` bytes, but there is at least one.
        """
        rows = self._state.index.rows_of(sequences)
        rows = rows[rows >= 0]
        if bytes_max is not None and len(rows) > 1:
            ends = np.cumsum(self._state.index.rows.size[rows], dtype=np.int64)
            if ends[-1] > bytes_max:
                rows = rows[: max(1, int(np.searchsorted(ends, bytes_max, side="right")))]
        return self.read_rows(rows)

    def read_rows(self, rows: Places) -> Messages:
        """Return the messages of some rows, which rise."""
        columns = self._state.index.rows
        self._refuse(int(columns.sequence[rows[-1]]) if len(rows) else 0)
        places = columns.place[rows]
        if len(places) > 1 and (places[1:] < places[:-1]).any():  # some were moved by compaction
            order = np.argsort(places, kind="stable")
            found = self._log.read(places[order])
            back = np.argsort(order, kind="stable").tolist()
            keys, values, headers = ([column[at] for at in back] for column in found)
        else:
            keys, values, headers = self._log.read(places)
        return Messages(columns.sequence[rows], columns.time[rows], columns.subject[rows], keys, headers, values)

    def get(self, sequence: int) -> Message | None:
        """Return a message, or None."""
        row = self._state.index.row_of(sequence)
        return None if row < 0 else self.read_rows(np.array([row], np.int64))[0]

    def last_sequence(self, pattern: str) -> int:
        """Return the last sequence on a subject or pattern, 0 if there is none."""
        index = self._state.index
        if pattern == ">":
            return 0 if not index.messages else int(self._last_of_all())
        if not has_wildcard(pattern):
            number = index.subjects.find(pattern.encode(errors="surrogateescape"))
            return 0 if number is None else int(index.subjects.last_at[number])
        numbers = self.filter((pattern,)).numbers()
        return int(index.subjects.last[numbers].max()) if len(numbers) else 0

    def _last_of_all(self) -> int:
        index = self._state.index
        at = index.used - 1
        while not index.rows.live_at[at]:
            at -= 1
        return int(index.rows.sequence_at[at])

    def last(self, pattern: str) -> Message | None:
        """Return the last message on a subject or pattern, or None."""
        sequence = self.last_sequence(pattern)
        return self.get(sequence) if sequence else None

    def next_sequences(self, matching: Filter, from_seq: int, limit: int) -> Words:
        """Return up to `limit` sequences from one on that match a filter."""
        index = self._state.index
        rows = index.live_rows(index.row_from(from_seq), index.used, matching, limit)
        found: Words = index.rows.sequence[rows]
        return found

    def subject_counts(self, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
        """Return how many subjects a pattern matches, and of some of them, by name, how many messages each has."""
        subjects = self._state.index.subjects
        names = subjects.names
        numbers = sorted(self.filter((pattern,)).numbers().tolist(), key=names.__getitem__)
        shown = numbers[offset : offset + limit]
        if not shown:
            return len(numbers), {}
        texts = b"\n".join([names[number] for number in shown]).decode(errors="replace").split("\n")
        return len(numbers), dict(zip(texts, subjects.count[shown].tolist(), strict=True))

    def purged_by(self, request: PurgeRequest) -> Words:
        """Return the sequences that a purge removes."""
        index = self._state.index
        matching = self.filter((request.filter,) if request.filter else ())
        stop = index.row_from(request.seq) if request.seq else index.used
        rows = index.live_rows(index.first_row, stop, matching)
        if request.keep:
            rows = rows[: max(0, len(rows) - request.keep)]
        found: Words = index.rows.sequence[rows]
        return found

    def next(self, pattern: str, from_seq: int) -> Message | None:
        """Return the first message from a sequence on, on a subject or pattern, or None."""
        found = self.next_sequences(self.filter((pattern,)), from_seq, 1)
        return self.get(int(found[0])) if len(found) else None

    def sequence_at(self, time_ns: int) -> int:
        """Return the first live sequence stored at a time or after it; the next sequence if there is none."""
        index = self._state.index
        start = int(np.searchsorted(index.rows.time[: index.used], time_ns))
        rows = index.live_rows(start, index.used, limit=1)
        return int(index.rows.sequence[rows[0]]) if len(rows) else index.last_seq + 1

    # Direct get.

    def direct(self, request: GetRequest) -> list[Reply]:
        """Return the response to a direct get."""
        refusal = check_direct(request)
        if refusal is not None:
            return [refusal]
        if request.multi_last:
            return self._multi_last(request)
        if request.batch > 0:
            return self._batch(request)
        message = self._single(request)
        if message is None:
            return [MESSAGE_NOT_FOUND]
        if request.no_hdr:
            return [Reply(b"", message.payload)]
        return [format_direct(self._name, message)]

    def direct_lasts(self, subjects: list[bytes]) -> list[Reply]:
        """Return the response to each direct get of the last message on a subject; no subject is a pattern."""
        known = self._state.index.subjects
        numbers = list(map(known.find, subjects))
        sequences = [0 if number is None else int(known.last_at[number]) for number in numbers]
        found = self.read(np.array(sorted(set(sequences) - {0}), np.uint64))
        name = self._name
        replies = {
            message.sequence: format_direct(name, message) for message in map(found.__getitem__, range(len(found)))
        }
        return [replies.get(sequence, MESSAGE_NOT_FOUND) for sequence in sequences]

    @property
    def _name(self) -> bytes:
        return self._state.config.name.encode()

    def _single(self, request: GetRequest) -> Message | None:
        if request.last_by_subj:
            return self.last(request.last_by_subj)
        start = request.seq if request.start_time is None else self.sequence_at(request.start_time)
        return self.next(request.next_by_subj, start) if request.next_by_subj else self.get(start)

    def _batch(self, request: GetRequest) -> list[Reply]:
        matching = self.filter((request.next_by_subj,) if request.next_by_subj else ())
        start = request.seq if request.start_time is None else self.sequence_at(request.start_time)
        if not request.next_by_subj and self._state.index.row_of(start) < 0:
            return [MESSAGE_NOT_FOUND]
        sequences = self.next_sequences(matching, start, request.batch)
        if not len(sequences):
            return [MESSAGE_NOT_FOUND]
        pending = self._state.index.pending(matching, start)
        return self._replies(sequences, pending, request)

    def _replies(self, sequences: Words, pending: int, request: GetRequest, up_to: int | None = None) -> list[Reply]:
        """Return messages until there are enough bytes, and the end of the batch."""
        replies: list[Reply] = []
        left = request.max_bytes if request.max_bytes > 0 else BYTES_MAX
        before = 0
        for at in range(0, len(sequences), CHUNK_MESSAGES):
            messages = self.read(sequences[at : at + CHUNK_MESSAGES])
            for number in range(len(messages)):
                message = messages[number]
                pending -= 1
                replies.append(format_direct(self._name, message, (pending, before)))
                before = message.sequence
                left -= message_bytes(message)
                if left <= 0:
                    break
            if left <= 0:
                break
        return [*replies, format_end(pending, before, up_to)]

    def _multi_last(self, request: GetRequest) -> list[Reply]:
        index = self._state.index
        up_to = request.up_to_seq
        if request.up_to_time is not None:
            up_to = self.sequence_at(request.up_to_time + 1) - 1
            if up_to < index.first_seq:
                return [NO_RESULTS]
        up_to = up_to or index.last_seq
        sequences = index.lasts(self.filter(request.multi_last), up_to)
        if len(sequences) > MULTI_LAST_MAX:
            return [TOO_MANY_RESULTS]
        if not len(sequences):
            return [NO_RESULTS]
        sequences = sequences[sequences >= request.seq]
        pending = len(sequences)
        if request.batch > 0:
            sequences = sequences[: request.batch]
        return self._replies(sequences, pending, request, up_to)
