"""A consumer's position in its stream: the next messages, and the exact number of pending ones.

Invariants: `left` is the number of live messages that match the filters and are ahead of the position, of those counted
so far; nothing beyond the stream's durable sequence is returned. While only the last message of each subject is wanted,
their sequences are known beforehand, in order.
"""

import numpy as np

from strandline.broker.api.consumer_config import ConsumerConfig, DeliverPolicy
from strandline.broker.streams import Filter, Removed, Stream
from strandline.broker.streams.arrays import Flags, Words, among

_NOTHING: Words = np.zeros(0, np.uint64)


def beginning(stream: Stream, config: ConsumerConfig, known: tuple[int, int]) -> tuple[int, int]:
    """Return the start of a consumer that has delivered nothing; `known` is its stored start, (0, 0) if unknown."""
    position, resume = known
    if not position:
        return starting_sequence(stream, config)
    # If the stream has lost its last messages since, others have their sequences.
    return (position if config.opt_start_seq else min(position, stream.last_seq + 1)), resume


def starting_sequence(stream: Stream, config: ConsumerConfig) -> tuple[int, int]:
    """Return the start of a new consumer, and up to where it wants only the last message of each subject, or 0."""
    first, last = stream.first_seq, stream.last_seq
    asked = config.opt_start_seq
    if asked:
        position = max(asked, first)
        return (min(position, last + 1) if config.direct else position), 0
    resume = 0
    match config.deliver_policy:
        case DeliverPolicy.LAST:
            position = max((_last_on(stream, pattern) for pattern in config.filters), default=last)
        case DeliverPolicy.LAST_PER_SUBJECT if stream.config.max_msgs_per_subject != 1:
            lasts = stream.last_per_subject(stream.filter(config.filters))
            position = int(lasts[0]) if len(lasts) else last
            resume = last
        case DeliverPolicy.BY_START_TIME:
            position = stream.sequence_at(config.opt_start_time or 0)
        case DeliverPolicy.NEW:
            position = last + 1
        case _:
            position = first
    return min(max(position, first), last + 1), resume


def _last_on(stream: Stream, pattern: str) -> int:
    found = stream.last(pattern)
    return 0 if found is None else found.sequence


class Cursor:
    """A position in a stream."""

    def __init__(self, stream: Stream, patterns: tuple[str, ...], position: int, resume: int = 0) -> None:
        self._stream = stream
        self._filter: Filter = stream.filter(patterns)
        self.position = position
        """The next sequence to read."""
        self._resume = resume
        self._lasts = _NOTHING
        if resume >= position:
            lasts = stream.last_per_subject(self._filter, resume)
            self._lasts = lasts[np.searchsorted(lasts, np.uint64(position)) :]
        self._counted = stream.last_seq
        self._left = len(self._lasts) + stream.pending(self._filter, max(position, resume + 1))

    @property
    def left(self) -> int:
        """The number of pending messages that are durable or existed at the start."""
        self._count()
        return self._left

    def next(self, limit: int) -> Words:
        """Return up to `limit` next sequences."""
        self._count()
        if not self._left:
            self.position = max(self.position, self._counted + 1)
            return _NOTHING
        if len(self._lasts):
            return self._next_lasts(limit)
        found = self._stream.next_sequences(self._filter, max(self.position, self._resume + 1), limit)
        visible = self._stream.durable_seq
        if len(found) and int(found[-1]) > visible:
            found = found[: int(np.searchsorted(found, np.uint64(visible), side="right"))]
        return found

    def _next_lasts(self, limit: int) -> Words:
        lasts = self._lasts[:limit]
        visible = self._stream.durable_seq
        return lasts if int(lasts[-1]) <= visible else lasts[lasts <= visible]

    def passed(self, sequences: Words) -> None:
        """Move past messages that were delivered."""
        last = int(sequences[-1])
        self._left -= len(sequences)
        if len(self._lasts):
            self._lasts = self._lasts[len(sequences) :]
            if not len(self._lasts):
                last = max(last, self._resume)
        self.position = last + 1 if self._left else max(last, self._counted) + 1

    def _count(self) -> None:
        """Count messages that have become durable since the last call."""
        visible = self._stream.durable_seq
        if visible > self._counted:
            start = max(self._counted + 1, self.position)
            self._counted = visible
            self._left += self._stream.pending(self._filter, start, visible)

    def note_removed(self, removed: Removed) -> Words:
        """Uncount removed messages; return those that match and are ahead of the position."""
        sequences = removed.sequences
        after = max(self.position, self._resume + 1)
        gone = sequences >= np.uint64(after)
        if gone.any():
            if not self._filter.is_everything:
                gone &= self._filter.matches(removed.subjects)
            self._left -= int(np.count_nonzero(gone & (sequences <= np.uint64(self._counted))))
        if len(self._lasts):
            at = np.minimum(np.searchsorted(self._lasts, sequences), len(self._lasts) - 1)
            found = self._lasts[at] == sequences
            if found.any():
                self._left -= int(np.count_nonzero(found))
                self._lasts = np.delete(self._lasts, at[found])
                gone |= found
        return sequences[gone] if gone.any() else _NOTHING

    def lets_through(self, sequences: Words) -> Flags:
        """Tell which of some ascending sequences match the filters."""
        if not len(sequences):
            return np.zeros(0, np.bool_)
        first, last = int(sequences[0]), int(sequences[-1])
        found = self._stream.next_sequences(self._filter, first, self._stream.pending(self._filter, first, last))
        return among(sequences, found)
