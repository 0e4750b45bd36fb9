"""A stream as a log: its bounds for a planner, and Arrow batches of its messages from one sequence to another.

Invariants: a range yields every message that it held when it was planned, in order, or raises, at the latest when its
end is reached. Eviction is decided at the end: a sequence that did not come and lies below the first that the stream
holds then may have been evicted; one that lies above was deleted before, or never matched. Messages of another stream
of the same name are never handed out without an error.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.kv.nats.bucket_reader import kinds_of
from strandline.kv.nats.layout import read_prefix
from strandline.nats.deliveries import Delivered
from strandline.nats.errors import ConnectionDropped
from strandline.nats.settings import NatsSettings
from strandline.nats.streams import StreamState
from strandline.spark.errors import RecordsMissing, invalid_input
from strandline.spark.logs.columns import Columns, resized
from strandline.spark.logs.options import ROWS_PER_BATCH, View
from strandline.spark.logs.positions import PositionFormat
from strandline.spark.logs.ranges import Bounds, Log, Range, resolve_range, tell_loss
from strandline.spark.streams.columns import COLUMNS, PUT, keys_of, project, times_for
from strandline.spark.streams.options import StreamOptions, Target
from strandline.spark.streams.pull_consumer import Session, fetch, find_end, find_time
from strandline.wire import Times
from strandline.wire.columns import Flags, Words

T = TypeVar("T")
POSITIONS = PositionFormat("stream", ("stream", "created"), "sequence")
ROWS_PER_PART = 2_000
"""A part costs a consumer and a task, which so many messages outweigh."""
_DENSE = 0.5
"""Where so many of a stream's sequences are there, the length of a range is near enough to its messages."""


@dataclass(frozen=True, slots=True)
class StreamRange(Range):
    """A range of a stream; subjects begin with `prefix` and keys do not: the bucket's, or its origin's for a mirror."""

    prefix: str = ""


class StreamSource:
    """A stream or a bucket as a source of Spark; its connection is kept between questions, and not pickled."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._session: Session | None = None

    @property
    def columns(self) -> Columns:
        """Return the columns of the target."""
        return COLUMNS[self.options.target.kind]

    @property
    def positions(self) -> PositionFormat:
        """Return the format of positions in a stream."""
        return POSITIONS

    @property
    def rows_per_part(self) -> int:
        """Return how many messages outweigh a consumer and a task."""
        return ROWS_PER_PART

    def ask(self, question: Callable[[Log[StreamRange]], T]) -> T:
        """Ask over the connection that is kept; one that was lost meanwhile is made again."""
        if self._session is None:
            self._session = open_session(self.options)
        log = StreamLog(self._session, self.options)
        try:
            return question(log)
        except ConnectionDropped:
            self._session.close()
            return question(log)

    def read(self, part: StreamRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield all messages of a range with the columns of `schema`."""
        skip = len(part.prefix)
        messages = read_messages(self.options, part, times_for(schema))
        batches = (project(delivered, schema, skip) for delivered in messages)
        yield from resized(batches, self.options.rows_per_batch)

    def close(self) -> None:
        """Disconnect."""
        if self._session is not None:
            self._session.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}


class StreamLog:
    """A stream over a connection; all answers after `bounds` are by the state that it returned."""

    def __init__(self, session: Session, options: StreamOptions) -> None:
        self._session = session
        self._options = options
        self._known: StreamState | None = None

    def bounds(self, least: int = 0) -> Bounds:  # noqa: ARG002 - the server's word is never torn
        """Return the bounds of the stream; `InvalidInput` for a stream that a reader would change."""
        self._known = None
        state = self._state()
        return Bounds(identity_of(state), state.first, state.last + 1)

    def range(self, start: int, stop: int, view: View = "changes") -> StreamRange:
        """Return a range of the stream."""
        state = self._state()
        prefix = read_prefix(state) if self._options.target.kind == "bucket" else ""
        return StreamRange(identity_of(state), start, stop, view, prefix)

    def find_time(self, time_ns: int) -> int:
        """Return the sequence of the first message that was stored at a time or later."""
        return find_time(self._session, self._state(), time_ns)

    def find_end(self, start: int, stop: int, rows_max: int) -> int:
        """Return the end of a range by its length where the stream is dense, and by counting where it is not."""
        state = self._state()
        is_dense = state.messages >= _DENSE * (state.last + 1 - state.first) and not self._options.filters
        if is_dense:
            return min(stop, start + rows_max)
        return find_end(self._session, start, stop, rows_max, self._options.subjects(read_prefix(state)))

    def _state(self) -> StreamState:
        if self._known is None:
            self._known = self._session.state()
            check_retention(self._known, self._options)
        return self._known


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
    """Yield the messages of a stream as Arrow batches, without Spark: by default from its first to its last now.

    `filters` are subjects of a stream, with wildcards, or prefixes of a bucket's keys.
    """
    schema = COLUMNS[target.kind].chosen(columns)
    options = StreamOptions(
        settings,
        target,
        filters,
        view=view,
        starting="earliest" if start is None else start,
        ending="latest" if stop is None else stop,
        rows_per_batch=rows_per_batch,
    )
    with open_session(options) as session:
        wanted = resolve_range(StreamLog(session, options), options)
    yield from StreamSource(options).read(wanted, schema)


def open_session(options: StreamOptions) -> Session:
    """Return a connection for the stream of some options."""
    return Session(options.settings, options.target.stream, str(options.target))


def identity_of(state: StreamState) -> tuple[str, ...]:
    """Return the identity of a stream: its name, and the moment when it was made."""
    return state.name, state.created


def check_retention(state: StreamState, options: StreamOptions) -> None:
    """Refuse a stream where reading would take messages away from its consumers."""
    if state.retention != "limits":
        raise invalid_input(
            f"{options.target} is kept by {state.retention}: a reader of it is one more consumer that decides",
            "make a stream that is kept by limits with this one as its source, and read that",
        )


def read_messages(options: StreamOptions, wanted: StreamRange, times: Times = Times.ALL) -> Iterator[Delivered]:
    """Yield the messages of a range as they came."""
    with open_session(options) as session:
        _check_identity(session.state(), options, wanted)
        if wanted.view == "latest":
            yield from _latest(session, options, wanted, times)
        elif wanted.start < wanted.stop:
            seen = _Seen(wanted.start)
            filters = options.subjects(wanted.prefix)
            for delivered in fetch(session, wanted.start, wanted.stop - 1, filters, times=times):
                seen.note(delivered.sequences)
                yield delivered
            _check_complete(session.state(), options, wanted, seen)


class _Seen:
    """Which sequences came: all below `missing` did."""

    def __init__(self, start: int) -> None:
        self.missing = start
        self._has_gap = False

    def note(self, sequences: Words) -> None:
        if self._has_gap:
            return
        wanted = np.arange(self.missing, self.missing + len(sequences), dtype=np.uint64)
        others = np.flatnonzero(sequences != wanted)
        self._has_gap = bool(len(others))
        self.missing += int(others[0]) if self._has_gap else len(wanted)


def _check_identity(state: StreamState, options: StreamOptions, wanted: StreamRange) -> None:
    check_retention(state, options)
    if identity_of(state) != wanted.identity:
        raise RecordsMissing(str(options.target), "it was made again since the range was planned")


def _check_complete(state: StreamState, options: StreamOptions, wanted: StreamRange, seen: _Seen) -> None:
    """Tell the loss of messages that were evicted, purged or lost since the range was planned."""
    _check_identity(state, options, wanted)
    if state.last + 1 < wanted.stop:
        tell_loss(options, f"it ends at {state.last + 1}, before the {wanted.stop} that it had reached")
    elif options.is_floor_watched and seen.missing < min(state.first, wanted.stop):
        gone = f"sequences from {seen.missing} on were removed before they were read"
        tell_loss(options, f"{gone}: it begins at {state.first} now")


class _Listing:
    """The keys that were told, and how many there should be.

    A key that is written again meanwhile may be told twice, or only with its new value if the old message went before
    it was sent: what lies behind the end of the beginning counts only if its key was not told before. A read to
    the end of the moment at which the listing is over has missed no key, unless a key vanished altogether.
    """

    def __init__(self, last: int) -> None:
        self._last = last
        self._told: list[pa.Array] = []
        self.expected = 0
        self.is_over = False

    def expect(self, count: int) -> None:
        self.expected = count

    def new_rows(self, keys: pa.Array, sequences: Words) -> Flags:
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


def _latest(session: Session, options: StreamOptions, wanted: StreamRange, times: Times) -> Iterator[Delivered]:
    """Yield one message for each key that has a value."""
    state, skip, stop = session.state(), len(wanted.prefix), None
    listing = _Listing(state.last)
    filters = options.subjects(wanted.prefix)
    for delivered in fetch(session, None, None, filters, listing.expect, times=times):
        chosen = listing.new_rows(keys_of(delivered, skip), delivered.sequences)
        chosen &= kinds_of(delivered.headers, len(delivered)) == PUT
        if chosen.any():
            yield delivered if chosen.all() else delivered.select(chosen)
        if listing.is_over and stop is None:
            with open_session(options) as other:
                stop = other.state().last
        if stop is not None and int(delivered.sequences[-1]) >= stop:
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
