"""The range reader: Arrow batches of a stream's messages from one sequence to another, for all three doors.

Invariants: a range yields every message that it held when it was planned, in order, or raises, at the latest when its
end is reached. Whether one was evicted meanwhile is decided at the end: a sequence that did not come and lies below the
first that the stream holds then may have been evicted; one that lies above was deleted before, or never matched.
Messages of another stream of the same name are never handed out without an error.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.kv.nats.layout import read_prefix
from strandline.nats.settings import NatsSettings
from strandline.nats.streams import StreamState
from strandline.spark.errors import RecordsMissing, invalid_input
from strandline.spark.journals.columns import BATCH_BYTES_MAX, resized
from strandline.spark.logs.options import ROWS_PER_BATCH, At, Place
from strandline.spark.streams.columns import COLUMNS, PUT, kinds_of, project
from strandline.spark.streams.counting import find_time
from strandline.spark.streams.fetching import Session, fetch, select
from strandline.spark.streams.options import StreamOptions, Target, View
from strandline.wire import FrameBatch
from strandline.wire.acks import AckColumns
from strandline.wire.columns import Flags

ROWS_PER_PART = 2_000
"""A part costs a consumer and a task, which so many messages outweigh."""

logger = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Range:
    """Sequences [start, stop) of one stream, or, with `stop` None, the last message of each subject.

    `prefix` is what subjects begin with and keys do not: that of the bucket, or of its origin if it is a mirror.
    """

    created: str
    start: int
    stop: int | None
    prefix: str = ""


def read_stream(
    settings: NatsSettings,
    target: Target,
    columns: Sequence[str] | None = None,
    *,
    filters: tuple[str, ...] = (),
    view: View = "changes",
    start: int | None = None,
    stop: int | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a stream as Arrow batches, without Spark: from the first that is there to the last now.

    `filters` are subjects of a stream, with wildcards, or prefixes of a bucket's keys.
    """
    schema = COLUMNS[target.kind].chosen(columns)
    options = StreamOptions(
        settings,
        target,
        filters,
        view,
        "earliest" if start is None else start,
        "latest" if stop is None else stop,
        rows_per_batch=rows_per_batch,
    )
    with open_session(options) as session:
        wanted = resolve_range(session, options)
    yield from read_range(options, wanted, schema)


def open_session(options: StreamOptions) -> Session:
    """Return a connection for the stream of some options."""
    return Session(options.settings, options.target.stream, str(options.target))


def resolve_range(session: Session, options: StreamOptions) -> Range:
    """Return the range that a bounded read means, by what the stream holds now."""
    state = session.state()
    check_retention(state, options)
    if options.view == "latest":
        return range_in(state, options, state.first, None)
    start = _resolve(session, state, options.starting)
    stop = _resolve(session, state, options.ending)
    if start < state.first:
        tell_loss(options, f"sequences [{start}, {state.first}) are gone")
        start = state.first
    for name, sequence in (("starting", start), ("ending", stop)):
        if sequence > state.last + 1:
            raise invalid_input(
                f"{options.target}: the {name} offset {sequence} is beyond the end, {state.last + 1}",
                "leave it out to read to the end",
            )
    return range_in(state, options, start, max(start, stop))


def range_in(state: StreamState, options: StreamOptions, start: int, stop: int | None) -> Range:
    """Return a range of a stream."""
    return Range(state.created, start, stop, read_prefix(state) if options.target.kind == "bucket" else "")


def check_retention(state: StreamState, options: StreamOptions) -> None:
    """Refuse a stream where reading would take messages away from its consumers."""
    if state.retention != "limits":
        raise invalid_input(
            f"{options.target} is kept by {state.retention}: a reader of it is one more consumer that decides",
            "make a stream that is kept by limits with this one as its source, and read that",
        )


def split_range(wanted: Range, parts_max: int) -> list[Range]:
    """Return contiguous ranges of about the same length, at most `parts_max` and none very short."""
    if wanted.stop is None:
        return [wanted]
    count = wanted.stop - wanted.start
    if count <= 0:
        return []
    parts = min(parts_max, max(1, count // ROWS_PER_PART))
    bounds = [wanted.start + count * part // parts for part in range(parts + 1)]
    return [replace(wanted, start=start, stop=stop) for start, stop in pairwise(bounds)]


def read_range(options: StreamOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all messages of a range with the columns of `schema`."""
    skip = len(wanted.prefix)
    batches = (project(frames, acks, schema, skip) for frames, acks in read_frames(options, wanted))
    yield from resized(batches, options.rows_per_batch, BATCH_BYTES_MAX)


def read_frames(options: StreamOptions, wanted: Range) -> Iterator[tuple[FrameBatch, AckColumns]]:
    """Yield the messages of a range as they came."""
    with open_session(options) as session:
        _check_identity(session.state(), options, wanted)
        if wanted.stop is None:
            yield from _latest(session, options, wanted)
        elif wanted.start < wanted.stop:
            seen = _Seen(wanted.start)
            for frames, acks in fetch(session, wanted.start, wanted.stop - 1, options.subjects(wanted.prefix)):
                seen.note(acks)
                yield frames, acks
            _check_complete(session.state(), options, wanted, seen)


def tell_loss(options: StreamOptions, problem: str) -> None:
    """Raise `RecordsMissing`, or log it where the user said that the query shall go on."""
    if options.is_loss_refused:
        raise RecordsMissing(str(options.target), problem)
    logger.warning("%s: %s; going on, since failOnDataLoss is false", options.target, problem)


class _Seen:
    """Which sequences came: all below `missing` did."""

    def __init__(self, start: int) -> None:
        self.missing = start
        self._has_gap = False

    def note(self, acks: AckColumns) -> None:
        if self._has_gap:
            return
        wanted = np.arange(self.missing, self.missing + len(acks.known), dtype=np.uint64)
        others = np.flatnonzero(acks.stream_sequence != wanted)
        self._has_gap = bool(len(others))
        self.missing += int(others[0]) if self._has_gap else len(wanted)


def _check_identity(state: StreamState, options: StreamOptions, wanted: Range) -> None:
    check_retention(state, options)
    if state.created != wanted.created:
        raise RecordsMissing(str(options.target), "it was made again since the range was planned")


def _check_complete(state: StreamState, options: StreamOptions, wanted: Range, seen: _Seen) -> None:
    """Tell the loss of what was evicted, purged or lost since the range was planned."""
    _check_identity(state, options, wanted)
    stop = wanted.stop or 0
    if state.last + 1 < stop:
        tell_loss(options, f"it ends at {state.last + 1}, before the {stop} that it had reached")
    elif options.is_floor_watched and seen.missing < min(state.first, stop):
        gone = f"sequences from {seen.missing} on were removed before they were read"
        tell_loss(options, f"{gone}: it begins at {state.first} now")


class _Listing:
    """The keys that were told, and how many there should be.

    A key that is written again meanwhile may be told twice, or only with its new value if the old message went before
    it was sent: what lies behind the end of the beginning counts only if its key was not told before. Whoever reads to
    the end of the moment at which the listing is over has missed no key, unless a key vanished altogether.
    """

    def __init__(self, last: int) -> None:
        self._last = last
        self._told: list[pa.Array] = []
        self.expected = 0
        self.is_over = False

    def expect(self, count: int) -> None:
        self.expected = count

    def new_rows(self, keys: pa.Array, sequences: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Flags:
        """Tell which rows are of keys that were not told before."""
        is_late = sequences > self._last
        self.is_over = bool(is_late.any())
        chosen = np.ones(len(keys), np.bool_)
        if self.is_over:
            known = pc.is_in(keys, pa.chunked_array(self._told, pa.binary())).to_numpy(zero_copy_only=False)
            chosen &= ~(is_late & (known | ~_is_first(keys)))
        self.expected -= int(chosen.sum())
        self._told.append(keys)
        return chosen


def _latest(session: Session, options: StreamOptions, wanted: Range) -> Iterator[tuple[FrameBatch, AckColumns]]:
    """Yield one message for each key that has a value."""
    state, skip, stop = session.state(), len(wanted.prefix), None
    listing = _Listing(state.last)
    for frames, acks in fetch(session, None, None, options.subjects(wanted.prefix), listing.expect):
        chosen = listing.new_rows(frames.subject_array(skip), acks.stream_sequence) & (kinds_of(frames) == PUT)
        if chosen.any():
            yield (frames, acks) if chosen.all() else select(frames, acks, chosen)
        if listing.is_over and stop is None:
            with open_session(options) as other:
                stop = other.state().last
        if stop is not None and int(acks.stream_sequence[-1]) >= stop:
            break
    with open_session(options) as other:
        _check_identity(other.state(), options, wanted)
    if listing.expected > 0 and not state.evicts_current_values:
        tell_loss(options, f"{listing.expected} keys were purged before they were read")


def _is_first(keys: pa.Array) -> Flags:
    """Tell which rows are the first of their key."""
    codes = keys.dictionary_encode().indices.to_numpy()
    first = np.zeros(len(keys), np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    return first


def _resolve(session: Session, state: StreamState, place: Place) -> int:
    match place:
        case "earliest":
            return state.first
        case "latest":
            return state.last + 1
        case At(time_ns):
            return find_time(session, state, time_ns)
        case int():
            # Sequences begin with 1, and 0 is what people write for the beginning.
            return max(place, 1)
