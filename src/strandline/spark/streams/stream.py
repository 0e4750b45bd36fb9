"""Where a streaming query goes next: decisions over positions, without Spark.

Invariants: a position never goes backwards and never leaves its stream, unless the user allowed data loss, and then it
is said; the first position is a constant of the query; with a target nothing beyond it is planned; no batch has more
messages than are allowed, and none is empty because the sequences at its beginning are.
"""

from strandline.kv.nats.layout import read_prefix
from strandline.nats.streams import StreamState
from strandline.spark.errors import invalid_input
from strandline.spark.logs.options import At
from strandline.spark.streams.counting import find_end, find_time
from strandline.spark.streams.fetching import Session
from strandline.spark.streams.offsets import Position, position_in
from strandline.spark.streams.options import StreamOptions
from strandline.spark.streams.ranges import Range, check_retention, range_in, tell_loss

_DENSE = 0.5
"""Where so many of a stream's sequences are there, the length of a range is near enough to its messages."""


def first_position(session: Session, options: StreamOptions) -> Position:
    """Return where the query begins: the same each time it is asked, whatever the stream grew or lost meanwhile."""
    state = session.state()
    check_retention(state, options)
    match options.starting:
        case int():
            return position_in(state, max(options.starting, 1))
        case At(time_ns):
            sequence = find_time(session, state, time_ns)
            if sequence > state.last:
                raise invalid_input(
                    f"{options.target}: no message was stored at startingTimestamp or later, so it names none yet",
                    f"give the sequence: startingOffset {state.last + 1}",
                )
            return position_in(state, None if sequence == state.first else sequence)
        case _:
            return position_in(state, None)


def next_position(
    session: Session, options: StreamOptions, start: Position, rows_max: int | None, target: int | None
) -> Position:
    """Return the end of the next batch; `start` itself where there is nothing new."""
    state = session.state()
    begin = _begin(state, options, start)
    end = state.last + 1
    if end < begin:
        tell_loss(options, f"it ends at {end}, before the {begin} that was read already")
    if target is not None:
        end = min(end, max(target, begin))
    if rows_max is not None and end - begin > rows_max:
        subjects = options.subjects(read_prefix(state))
        is_dense = state.messages >= _DENSE * (state.last + 1 - state.first) and not options.filters
        end = begin + rows_max if is_dense else find_end(session, begin, end, rows_max, subjects)
    if end == begin and start.is_of(state) and (start.sequence is None or start.sequence == end):
        return start
    return position_in(state, end)


def planned_range(state: StreamState, options: StreamOptions, start: Position, end: Position) -> Range:
    """Return the range between two positions; refuse one that names another stream or goes backwards."""
    if not end.is_of(state) or end.sequence is None:
        tell_loss(options, "it is another one than the batch was planned on: it was made again")
        return range_in(state, options, 1, 1)
    begin = _begin(state, options, start)
    if begin > end.sequence:
        tell_loss(options, f"the batch that ends at {end.sequence} would have to begin at {begin}")
        begin = end.sequence
    return range_in(state, options, begin, end.sequence)


def _begin(state: StreamState, options: StreamOptions, start: Position) -> int:
    """Return the first sequence to read after a position."""
    if not start.is_of(state):
        tell_loss(options, f"it was made again and begins at {state.first}; the query read one made at {start.created}")
        return state.first
    if start.sequence is None:
        return state.first
    if start.sequence < state.first:
        tell_loss(options, f"sequences [{start.sequence}, {state.first}) are gone")
        return state.first
    return start.sequence
