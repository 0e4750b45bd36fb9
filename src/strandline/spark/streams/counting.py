"""Questions about a stream that only a consumer can answer: what comes at a time, and how many messages lie between.

Invariants: a consumer made here is deleted at once and receives nothing. A count between two sequences may be too high
where messages are added meanwhile, and never too low.
"""

from datetime import UTC, datetime

from strandline.nats.streams import StreamState
from strandline.spark.streams.fetching import Consumer, Session

_NS = 1_000_000_000
_NEAR = 0.75
"""A search ends with an end that has so much of the messages that are allowed."""


def find_time(session: Session, state: StreamState, time_ns: int) -> int:
    """Return the sequence of the first message that was stored at a time or later; the one to come if there is none."""
    seconds, rest = divmod(time_ns, _NS)
    moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    consumer = Consumer(session, None)
    sequence = consumer.first(moment)
    consumer.delete()
    return min(max(sequence, state.first), state.last + 1)


def count_between(session: Session, start: int, stop: int, filters: tuple[str, ...] = ()) -> int:
    """Return how many messages lie in [start, stop)."""
    behind = _count_from(session, stop, filters)
    return _count_from(session, start, filters) - behind


def find_end(session: Session, start: int, stop: int, rows_max: int, filters: tuple[str, ...] = ()) -> int:
    """Return the end of a range from `start` on that has at most `rows_max` messages, or nearly, and ends by `stop`."""
    if stop - start <= rows_max or count_between(session, start, stop, filters) <= rows_max:
        return stop
    low, high = start + rows_max, stop
    while high - low > rows_max:
        middle = (low + high) // 2
        count = count_between(session, start, middle, filters)
        if count > rows_max:
            high = middle
            continue
        low = middle
        if count >= rows_max * _NEAR:
            break
    return low


def _count_from(session: Session, start: int, filters: tuple[str, ...]) -> int:
    consumer = Consumer(session, start, filters)
    count = consumer.create()
    consumer.delete()
    return count
