"""Where a streaming query goes next: decisions over positions, without Spark.

Invariants: a position never goes backwards and never leaves its journal, unless the user allowed data loss, and then
it is said; the first position is a constant of the query; with a target nothing beyond it is planned.
"""

from strandline.journal import JournalReader
from strandline.spark.errors import invalid_input
from strandline.spark.journals.offsets import StreamOffset
from strandline.spark.journals.options import At, ReadOptions
from strandline.spark.journals.ranges import Range, find_time, next_offset_from, tell_loss


def first_position(reader: JournalReader, options: ReadOptions) -> StreamOffset:
    """Return where the query begins: the same each time it is asked, whatever the journal grew or lost meanwhile."""
    match options.starting:
        case int():
            return StreamOffset(reader.identity, options.starting)
        case At(time_ns):
            offset = find_time(reader, time_ns)
            if offset == reader.next_offset:
                raise invalid_input(
                    f"{options.path}: no record was appended at startingTimestamp or later, so it names no offset yet",
                    "give the offset: JournalReader.open(path).next_offset",
                )
            return StreamOffset(reader.identity, None if offset == reader.first_offset else offset)
        case _:
            return StreamOffset(reader.identity, None)


def next_position(
    reader: JournalReader, options: ReadOptions, start: StreamOffset, rows_max: int | None, target: int | None
) -> StreamOffset:
    """Return the end of the next batch, at most `rows_max` records on; `start` itself where there is nothing new."""
    begin = _begin(reader, options, start)
    end = _end(reader, options, begin)
    if target is not None:
        end = min(end, max(target, begin))
    if rows_max is not None:
        end = min(end, begin + rows_max)
    if end == begin and start.identity == reader.identity and (start.offset is None or start.offset == end):
        return start
    return StreamOffset(reader.identity, end)


def planned_range(reader: JournalReader, options: ReadOptions, start: StreamOffset, end: StreamOffset) -> Range:
    """Return the range between two positions; refuse one that names another journal or goes backwards."""
    if end.identity != reader.identity or end.offset is None:
        tell_loss(options, "the journal is another one than the batch was planned on")
        return Range(reader.identity, 0, 0)
    begin = _begin(reader, options, start)
    if begin > end.offset:
        tell_loss(options, f"the batch that ends at {end.offset} would have to begin at {begin}")
        begin = end.offset
    return Range(reader.identity, begin, end.offset)


def _begin(reader: JournalReader, options: ReadOptions, start: StreamOffset) -> int:
    """Return the first offset to read after a position."""
    first = reader.first_offset
    if start.identity != reader.identity:
        tell_loss(options, f"the journal was replaced by another, which begins at {first}")
        return first
    if start.offset is None:
        return first
    if start.offset < first:
        tell_loss(options, f"offsets [{start.offset}, {first}) were removed by retention")
        return first
    return start.offset


def _end(reader: JournalReader, options: ReadOptions, begin: int) -> int:
    """Return how far the journal goes; that it goes less far than the query has read is told."""
    end = next_offset_from(reader, begin)
    if end < begin:
        tell_loss(options, f"the journal ends at {end}, before the {begin} that was read already")
    return end
