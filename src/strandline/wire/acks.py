"""Ack subjects: the sequences of a delivered message in its stream and its consumer.

    $JS.ACK.<stream>.<consumer>.<numbers>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<numbers>[.<more>]

The numbers are those of `Ack`, in its order. The first form has nine tokens; the second has eleven or more, and
tokens after the eleventh are ignored. Ten tokens are neither.

Invariants: `parse_acks` returns for every row what `parse_ack` returns for its bytes. An invalid subject, or a number
of more than 19 digits, is unknown: no field is guessed.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from strandline.wire.columns import DIGITS_MAX, Flags, Ints, Words, decimals, gather, gathered_bytes, words_at

PREFIX = b"$JS.ACK."
SHORT_TOKENS = 9
LONG_TOKENS = 11
_DOT = 46


class Ack(NamedTuple):
    """The numbers of one ack subject."""

    delivered: int
    stream_sequence: int
    consumer_sequence: int
    timestamp_ns: int
    pending: int


TIMESTAMP = Ack._fields.index("timestamp_ns")


class Times(Enum):
    """Of which messages the times are read, a third of the work: of none, of passes with headers, or of all."""

    NONE = "none"
    OF_HEADERS = "of headers"
    ALL = "all"

    def wanted(self, has_headers: bool) -> bool:  # noqa: FBT001 - it is what is asked about
        """Tell whether the times of messages are read, some of which have headers or none."""
        return self is Times.ALL or (self is Times.OF_HEADERS and has_headers)


class AckColumns(NamedTuple):
    """The numbers of many ack subjects; rows where `known` is false are 0 in every column."""

    known: Flags
    delivered: Words
    stream_sequence: Words
    consumer_sequence: Words
    timestamp_ns: Words
    pending: Words


def format_ack(stream: str, consumer: str, ack: Ack) -> str:
    """Return the ack subject of nine tokens."""
    return f"$JS.ACK.{stream}.{consumer}." + ".".join(map(str, ack))


def parse_ack(subject: bytes) -> Ack | None:
    """Return the numbers of an ack subject of either form, None for anything else."""
    tokens = subject.split(b".")
    if not subject.startswith(PREFIX) or not (len(tokens) == SHORT_TOKENS or len(tokens) >= LONG_TOKENS):
        return None
    first = 4 if len(tokens) == SHORT_TOKENS else 6
    numbers = tokens[first : first + len(Ack._fields)]
    if not all(number.isdigit() and len(number) <= DIGITS_MAX for number in numbers):
        return None
    return Ack(*map(int, numbers))


def parse_acks(data: bytes, starts: Ints, ends: Ints, *, times: bool = True) -> AckColumns:
    """Return the numbers of the ack subjects at ascending spans of a buffer; an empty span is unknown.

    Timestamps are a third of the work: without `times` they are neither read nor looked at, and are 0.
    """
    chosen = np.flatnonzero(ends - starts >= len(PREFIX))
    if len(chosen) == len(starts) > 0:
        return _parse(data, starts, ends, times=times)
    whole = AckColumns(np.zeros(len(starts), np.bool_), *(np.zeros(len(starts), np.uint64) for _ in Ack._fields))
    if len(chosen):
        for column, part in zip(whole, _parse(data, starts[chosen], ends[chosen], times=times), strict=True):
            column[chosen] = part
    return whole


def _parse(data: bytes, starts: Ints, ends: Ints, *, times: bool) -> AckColumns:
    known = words_at(data, "<u8", starts) == int.from_bytes(PREFIX, "little")
    text = gathered_bytes(gather(data, starts, ends))
    lengths = ends - starts
    row_ends = np.cumsum(lengths)
    dots = np.flatnonzero(np.frombuffer(text, np.uint8) == _DOT)
    if len(dots) == len(starts) * (SHORT_TOKENS - 1):
        table = dots.reshape(len(starts), -1)
        if (table[:, 0] >= row_ends - lengths).all() and (table[:, -1] < row_ends).all():
            edges = np.concatenate((table.T[3:], row_ends[None]))
            return AckColumns(known, *_numbers(text, edges, known, times=times))
    first = np.searchsorted(dots, row_ends - lengths)
    counts = np.diff(first, append=len(dots))
    short = counts == SHORT_TOKENS - 1
    known &= short | (counts >= LONG_TOKENS - 1)
    # Rows with other counts read the dots of their neighbours; they are not known, so the values are not used.
    stops = np.append(dots, len(text))
    at = np.minimum(first + np.where(short, 3, 5) + np.arange(len(Ack._fields) + 1)[:, None], len(dots))
    edges = stops[at]
    edges[-1] = np.minimum(edges[-1], row_ends)
    return AckColumns(known, *_numbers(text, edges, known, times=times))


def _numbers(text: bytes, edges: Ints, known: Flags, *, times: bool) -> Iterator[Words]:
    """Yield the number between each edge and the next; afterwards `known` and the numbers agree."""
    lengths = edges[1:] - edges[:-1] - 1
    # Timestamps have many more digits than the others, which are read together.
    others = [number for number in range(len(Ack._fields)) if number != TIMESTAMP]
    small, digits = decimals(text, edges[1:][others], lengths[others])
    known &= digits.all(axis=0)
    columns = dict(zip(others, small, strict=True)) | {TIMESTAMP: np.zeros(len(known), np.uint64)}
    if times:
        columns[TIMESTAMP], digits = decimals(text, edges[1:][TIMESTAMP], lengths[TIMESTAMP])
        known &= digits
    return (columns[number] * known for number in range(len(Ack._fields)))
