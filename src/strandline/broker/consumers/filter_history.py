"""The history of a consumer's filters: which filters applied to which sequences.

Invariants: spans ascend and end at the consumer's position or before; the current filters apply after the last span. In
a span without filters no message counts as the consumer's. A crash may bring removed messages back, so spans are
dropped only when a stream that was just opened begins after them.
"""

from typing import NamedTuple

import numpy as np

from strandline.broker.streams.arrays import Words
from strandline.broker.streams.stream import Stream

SPANS_MAX = 32
"""Messages before the oldest span do not count as the consumer's, and stay in the stream."""


class Span(NamedTuple):
    """The sequences after the previous span up to `through`, and their filters; None where none applied."""

    through: int
    filters: tuple[str, ...] | None


History = tuple[Span, ...]


def extend_history(history: History, through: int, filters: tuple[str, ...] | None) -> History:
    """Return the history extended by a span up to a sequence; None: no filters applied."""
    if through > (history[-1].through if history else 0):
        history = (*history, Span(through, filters))
    if len(history) > SPANS_MAX:
        history = (Span(history[-SPANS_MAX].through, None), *history[1 - SPANS_MAX :])
    return history


def truncate_history(history: History, delivered: int, first_seq: int = 0) -> History:
    """Return the history up to `delivered`, where a crash has put the consumer back, and from `first_seq` on."""
    found: list[Span] = []
    for span in history:
        end = min(span.through, delivered)
        if end > (found[-1].through if found else 0):
            found.append(Span(end, span.filters))
    return tuple(span for span in found if span.through >= first_seq)


def skip_history(history: History, decided: int, filters: tuple[str, ...], position: int) -> History:
    """Return the history of a consumer that is reset to a position; only decided sequences keep their filters."""
    before = truncate_history(extend_history(history, decided, filters), min(decided, position - 1))
    return extend_history(before, position - 1, None)


def passed(stream: Stream, history: History, first: int, last: int) -> Words:
    """Return the stored messages between two sequences that matched the consumer's filters of the time."""
    found = [np.zeros(0, np.uint64)]
    for span in history:
        end = min(span.through, last)
        if span.filters is not None and first <= end:
            matching = stream.filter(span.filters)
            found.append(stream.next_sequences(matching, first, stream.pending(matching, first, end)))
        first = max(first, end + 1)
    return np.concatenate(found)
