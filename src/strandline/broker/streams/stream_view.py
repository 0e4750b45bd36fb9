"""The read-only face of a stream: its messages, their number, and its status.

Invariants: it changes nothing. It also shows messages that are not durable yet: a caller that shows them to clients
waits for the stream's barrier, or checks `durable_seq`.
"""

import numpy as np

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.requests import GetRequest
from strandline.broker.api.responses import StreamState
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.streams.arrays import Flags, Words
from strandline.broker.streams.index import Index
from strandline.broker.streams.losses import Losses
from strandline.broker.streams.message_reader import MessageReader
from strandline.broker.streams.messages import Message, Messages, Reply
from strandline.broker.streams.state import State
from strandline.broker.streams.subjects import Filter


class StreamView:
    """A stream's state, and a reader of its messages."""

    def __init__(self, state: State, reader: MessageReader) -> None:
        self._state = state
        self._reader = reader

    # Messages.

    def filter(self, patterns: tuple[str, ...]) -> Filter:
        """Return which subjects some patterns match."""
        return self._reader.filter(patterns)

    def pending(self, matching: Filter, from_seq: int, up_to: int | None = None) -> int:
        """Return exactly how many messages from a sequence on, up to another, a filter lets through."""
        return self._state.index.pending(matching, from_seq, up_to)

    def next_sequences(self, matching: Filter, from_seq: int, limit: int) -> Words:
        """Return up to `limit` sequences from one on that match a filter."""
        return self._reader.next_sequences(matching, from_seq, limit)

    def last_per_subject(self, matching: Filter, up_to: int | None = None) -> Words:
        """Return the last sequence of each subject that a filter lets through, in order."""
        return self._state.index.lasts(matching, up_to)

    def is_live(self, sequences: Words) -> Flags:
        """Tell which sequences have a message."""
        return self._state.is_live(sequences)

    def read(self, sequences: Words, bytes_max: int | None = None) -> Messages:
        """Return messages by ascending sequences: at least one, and no more than `bytes_max` bytes."""
        return self._reader.read(sequences, bytes_max)

    def get(self, sequence: int) -> Message | None:
        """Return a message, or None."""
        return self._reader.get(sequence)

    def last(self, pattern: str) -> Message | None:
        """Return the last message on a subject or pattern, or None."""
        return self._reader.last(pattern)

    def next(self, pattern: str, from_seq: int) -> Message | None:
        """Return the first message from a sequence on, on a subject or pattern, or None."""
        return self._reader.next(pattern, from_seq)

    def sequence_at(self, time_ns: int) -> int:
        """Return the first sequence stored at a time or after it; the next sequence if there is none."""
        return self._reader.sequence_at(time_ns)

    def direct(self, request: GetRequest) -> list[Reply]:
        """Return the response to a direct get."""
        return self._reader.direct(request)

    def direct_lasts(self, subjects: list[bytes]) -> list[Reply]:
        """Return the response to each direct get of the last message on a subject; no subject is a pattern."""
        return self._reader.direct_lasts(subjects)

    # Status.

    @property
    def config(self) -> StreamConfig:
        """The configuration, as it is stored."""
        return self._state.config

    @property
    def created_ns(self) -> int:
        """Time of creation."""
        return self._state.created_ns

    @property
    def last_seq(self) -> int:
        """The last sequence that was given out."""
        return self._state.index.last_seq

    @property
    def byte_count(self) -> int:
        """How many bytes the messages have, as `state` counts them."""
        return self._state.index.bytes

    @property
    def first_seq(self) -> int:
        """The first sequence with a message; without messages, the next one."""
        return self._state.index.first_seq

    @property
    def losses(self) -> Losses:
        """Losses by damage that are not accepted."""
        return self._state.losses

    def state(
        self, *, consumers: int = 0, subjects: dict[str, int] | None = None, deleted: bool = False
    ) -> StreamState:
        """Return the state for responses."""
        state = self._state
        return _stream_state(state.index, state.losses, consumers=consumers, subjects=subjects, deleted=deleted)

    def subject_counts(self, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
        """Return how many subjects a pattern matches, and of some of them, by name, how many messages each has."""
        return self._reader.subject_counts(pattern, offset, limit)


def _stream_state(
    index: Index, losses: Losses, *, consumers: int, subjects: dict[str, int] | None, deleted: bool
) -> StreamState:
    """Return the state of an index; a stream that never had a message begins at 0, not at 1."""
    first, last = index.first_seq, index.last_seq
    missing = last - first + 1 - index.messages
    return StreamState(
        messages=index.messages,
        bytes=index.bytes,
        first_seq=first if last else 0,
        first_ts=index.rows.time_at[index.first_row] if index.messages else ZERO_TIME_NS,
        last_seq=last,
        last_ts=index.last_time or ZERO_TIME_NS,
        num_subjects=index.subjects.used,
        subjects=subjects,
        num_deleted=missing,
        deleted=_deleted_sequences(index) if deleted and missing else (),
        lost=losses.shown(),
        consumer_count=consumers,
    )


def _deleted_sequences(index: Index) -> tuple[int, ...]:
    """Return the sequences between the first and the last that have no message."""
    rows = index.live_rows(index.first_row, index.used)
    everything = np.arange(index.first_seq, index.last_seq + 1, dtype=np.uint64)
    gone = np.setdiff1d(everything, index.rows.sequence[rows], assume_unique=True)
    return tuple(gone.tolist())
