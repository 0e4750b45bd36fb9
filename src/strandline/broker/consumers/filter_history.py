"""Which filters decided about which messages: a consumer with other filters now did not have what those let through.

Invariants: spans rise and end where the consumer looks next, or before; what comes after them is decided by the filters
that the consumer has now. Of a span without filters nothing counts as the consumer's. What was removed from the stream
may come back by a crash, so spans are forgotten only when a stream that was just opened begins after them.
"""

from typing import NamedTuple

import numpy as np

from strandline.broker.streams.arrays import Words
from strandline.broker.streams.stream import Stream

SPANS_MAX = 32
"""Of what lies further back nothing counts as the consumer's: it stays in the stream."""


class Span(NamedTuple):
    """Sequences up to one, after the span before, and the filters that decided; None where nothing was decided."""

    through: int
    filters: tuple[str, ...] | None


History = tuple[Span, ...]


def turned(history: History, through: int, filters: tuple[str, ...] | None) -> History:
    """Return the history after some filters decided up to a sequence and others follow; None: nothing was decided."""
    if through > (history[-1].through if history else 0):
        history = (*history, Span(through, filters))
    if len(history) > SPANS_MAX:
        history = (Span(history[-SPANS_MAX].through, None), *history[1 - SPANS_MAX :])
    return history


def cut(history: History, delivered: int, first_seq: int = 0) -> History:
    """Return the history of a consumer that a crash has put back to a sequence, of a stream that begins at another."""
    found: list[Span] = []
    for span in history:
        end = min(span.through, delivered)
        if end > (found[-1].through if found else 0):
            found.append(Span(end, span.filters))
    return tuple(span for span in found if span.through >= first_seq)


def skipped(history: History, decided: int, filters: tuple[str, ...], position: int) -> History:
    """Return the history of a consumer that begins anew at a position; only what is decided by now stays so."""
    before = cut(turned(history, decided, filters), min(decided, position - 1))
    return turned(before, position - 1, None)


def passed(stream: Stream, history: History, first: int, last: int) -> Words:
    """Return what is still there of the messages between two sequences that were the consumer's to deliver."""
    found = [np.zeros(0, np.uint64)]
    for span in history:
        end = min(span.through, last)
        if span.filters is not None and first <= end:
            matching = stream.filter(span.filters)
            found.append(stream.next_sequences(matching, first, stream.pending(matching, first, end)))
        first = max(first, end + 1)
    return np.concatenate(found)
