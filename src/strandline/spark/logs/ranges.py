"""Which range of a log is read: that of a bounded read, and the next batch of a streaming query; without Spark.

Invariants: a position never goes backwards and never leaves its log, unless the user allowed data loss, which is then
logged. The first position is a constant of the query. A batch ends by the target, if there is one, and has at most as
many records as are allowed; it is not empty because the offsets at its beginning are.
"""

import logging
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from strandline.spark.errors import RecordsMissing, invalid_input
from strandline.spark.logs.options import At, Place, ReadOptions, View
from strandline.spark.logs.positions import Position

logger = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Range:
    """Records [start, stop) of one log; the view `latest` has the last record of each key, and cannot be cut."""

    identity: tuple[str, ...]
    start: int
    stop: int
    view: View = "changes"


R = TypeVar("R", bound=Range)
R_co = TypeVar("R_co", bound=Range, covariant=True)


class Bounds(NamedTuple):
    """The offsets [first, end) that a log holds now."""

    identity: tuple[str, ...]
    first: int
    end: int


class Log(Protocol[R_co]):
    """A log that is open for questions of a planner."""

    def bounds(self, least: int = 0) -> Bounds:
        """Return the present bounds; an end below `least` is read again where it may be torn."""

    def range(self, start: int, stop: int, view: View = "changes") -> R_co:
        """Return a range of the log."""

    def find_time(self, time_ns: int) -> int:
        """Return the offset of the first record that was appended at a time or later; the end if there is none."""

    def find_end(self, start: int, stop: int, rows_max: int) -> int:
        """Return the end of a range from `start` on that has at most `rows_max` records and ends by `stop`."""


def tell_loss(options: ReadOptions, problem: str) -> None:
    """Raise `RecordsMissing`, or log the loss where the user allowed it."""
    if options.is_loss_refused:
        raise RecordsMissing(options.label, problem)
    logger.warning("%s: %s; going on, since failOnDataLoss is false", options.label, problem)


def split_range(wanted: R, parts_max: int, rows_min: int) -> list[R]:
    """Return contiguous ranges of about the same length, at most `parts_max` and none much shorter than `rows_min`."""
    if wanted.view == "latest":
        return [wanted]
    count = wanted.stop - wanted.start
    if count <= 0:
        return []
    parts = min(parts_max, max(1, count // rows_min))
    bounds = [wanted.start + count * part // parts for part in range(parts + 1)]
    return [replace(wanted, start=start, stop=stop) for start, stop in pairwise(bounds)]


def resolve_range(log: Log[R], options: ReadOptions) -> R:
    """Return the range of a bounded read, by the present bounds of the log."""
    bounds = log.bounds()
    if options.view == "latest":
        return log.range(bounds.first, bounds.end, "latest")
    start, stop = (_resolve(log, bounds, options, place) for place in (options.starting, options.ending))
    if start < bounds.first:
        tell_loss(options, _removed(options, start, bounds.first))
        start = bounds.first
    for name, offset in (("starting", start), ("ending", stop)):
        if offset > bounds.end:
            raise invalid_input(
                f"{options.label}: the {name} offset {offset} is beyond the end, {bounds.end}",
                "leave it out to read to the end",
            )
    return log.range(start, max(start, stop))


def first_position(log: Log[Range], options: ReadOptions) -> Position:
    """Return where a query begins: the same at each call, whatever the log grew or lost meanwhile."""
    bounds = log.bounds()
    match options.starting:
        case int():
            return Position(bounds.identity, max(options.starting, options.offset_min))
        case At(time_ns):
            offset = log.find_time(time_ns)
            if offset >= bounds.end:
                raise invalid_input(
                    f"{options.label}: no record was stored at startingTimestamp or later, so it names no offset yet",
                    f"give the offset: startingOffset {bounds.end}",
                )
            return Position(bounds.identity, None if offset == bounds.first else offset)
        case _:
            return Position(bounds.identity, None)


def next_position(
    log: Log[Range], options: ReadOptions, start: Position, rows_max: int | None, target: int | None
) -> Position:
    """Return the end of the next batch, at most `rows_max` records on; `start` itself where there is nothing new."""
    bounds = log.bounds()
    begin = _begin(bounds, options, start)
    end = bounds.end if bounds.end >= begin else log.bounds(begin).end
    if end < begin:
        tell_loss(options, f"it ends at {end}, before the {begin} that was read already")
    if target is not None:
        end = min(end, max(target, begin))
    if rows_max is not None and end - begin > rows_max:
        end = log.find_end(begin, end, rows_max)
    if end == begin and start.identity == bounds.identity and (start.offset is None or start.offset == end):
        return start
    return Position(bounds.identity, end)


def planned_range(log: Log[R], options: ReadOptions, start: Position, end: Position) -> R:
    """Return the range between two positions; refuse one that names another log or goes backwards."""
    bounds = log.bounds()
    if end.identity != bounds.identity or end.offset is None:
        tell_loss(options, "it was made again: the batch was planned on another one")
        return log.range(options.offset_min, options.offset_min)
    begin = _begin(bounds, options, start)
    if begin > end.offset:
        tell_loss(options, f"the batch that ends at {end.offset} would have to begin at {begin}")
        begin = end.offset
    return log.range(begin, end.offset)


def _begin(bounds: Bounds, options: ReadOptions, start: Position) -> int:
    """Return the first offset to read after a position."""
    if start.identity != bounds.identity:
        tell_loss(options, f"it was made again and begins at {bounds.first}; the query read {'/'.join(start.identity)}")
        return bounds.first
    if start.offset is None:
        return bounds.first
    if start.offset < bounds.first:
        tell_loss(options, _removed(options, start.offset, bounds.first))
        return bounds.first
    return start.offset


def _removed(options: ReadOptions, start: int, stop: int) -> str:
    return f"{options.offset_word}s [{start}, {stop}) were removed"


def _resolve(log: Log[Range], bounds: Bounds, options: ReadOptions, place: Place) -> int:
    match place:
        case "earliest":
            return bounds.first
        case "latest":
            return bounds.end
        case At(time_ns):
            return log.find_time(time_ns)
        case int():
            return max(place, options.offset_min)
