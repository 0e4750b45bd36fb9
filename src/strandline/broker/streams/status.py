"""What is in a stream, as it is shown. Pure."""

import numpy as np

from strandline.broker.api.responses import StreamState
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.streams.index import Index
from strandline.broker.streams.losses import Losses


def stream_state(
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
        deleted=deleted_sequences(index) if deleted and missing else (),
        lost=losses.shown(),
        consumer_count=consumers,
    )


def deleted_sequences(index: Index) -> tuple[int, ...]:
    """Return the sequences between the first and the last that have no message."""
    rows = index.live_rows(index.first_row, index.used)
    everything = np.arange(index.first_seq, index.last_seq + 1, dtype=np.uint64)
    gone = np.setdiff1d(everything, index.rows.sequence[rows], assume_unique=True)
    return tuple(gone.tolist())
