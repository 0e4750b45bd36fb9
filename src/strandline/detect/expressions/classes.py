"""Classes of characters, as ranges of code points, and the byte sequences that UTF-8 gives them.

Invariants: a class within ASCII, or one that excludes ASCII characters alone, is a set of single bytes; any other is
the alternatives of its UTF-8 sequences.
"""

from collections.abc import Iterator
from typing import TypeAlias

from strandline.detect.expressions.nodes import Alt, Chars, Node, Seq

Runes: TypeAlias = list[tuple[int, int]]
LAST = 0x10FFFF
_ASCII, _SURROGATES = 0x7F, (0xD800, 0xDFFF)
_SIZES = ((0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, LAST))

_DIGIT: Runes = [(0x30, 0x39)]
_UPPER: Runes = [(0x41, 0x5A)]
_LOWER: Runes = [(0x61, 0x7A)]
_WORD: Runes = [*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER]
ASCII_CLASSES: dict[str, Runes] = {
    "alnum": [*_DIGIT, *_UPPER, *_LOWER],
    "alpha": [*_UPPER, *_LOWER],
    "ascii": [(0, _ASCII)],
    "blank": [(0x09, 0x09), (0x20, 0x20)],
    "cntrl": [(0, 0x1F), (0x7F, 0x7F)],
    "digit": _DIGIT,
    "graph": [(0x21, 0x7E)],
    "lower": _LOWER,
    "print": [(0x20, 0x7E)],
    "punct": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    "space": [(0x09, 0x0D), (0x20, 0x20)],
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": [*_DIGIT, (0x41, 0x46), (0x61, 0x66)],
}


class Unsupported(Exception):
    """The text is no regular expression of Go, or is not supported over bytes."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


def negated(runes: Runes) -> Runes:
    """Return the complement of a class."""
    result: Runes = []
    at = 0
    for low, high in merged(runes):
        if at < low:
            result.append((at, low - 1))
        at = high + 1
    if at <= LAST:
        result.append((at, LAST))
    return result


def merged(runes: Runes) -> Runes:
    """Return a class as sorted ranges that do not touch."""
    result: Runes = []
    for low, high in sorted(runes):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def fold(runes: Runes) -> Runes:
    """Return a class with the other case of its characters; beyond ASCII, of single characters only."""
    result = list(runes)
    for low, high in runes:
        if low == high > _ASCII:
            others = {chr(low).lower(), chr(low).upper()}
            result += [(ord(char), ord(char)) for char in others if len(char) == 1]
        for (first, last), shift in ((_UPPER[0], 32), (_LOWER[0], -32)):
            if low <= last and high >= first:
                result.append((max(low, first) + shift, min(high, last) + shift))
    return result


PERL_CLASSES: dict[str, Runes] = {
    "d": _DIGIT,
    "D": negated(_DIGIT),
    "s": [(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)],
    "S": negated([(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)]),
    "w": _WORD,
    "W": negated(_WORD),
}


def to_node(runes: Runes, position: int) -> Node:
    """Return a class over bytes; `Unsupported` if it has no member."""
    ranges = merged(runes)
    if not ranges:
        raise Unsupported("a class without a member matches nothing", position)
    ascii_mask = 0
    for low, high in ranges:
        ascii_mask |= _mask(low, min(high, _ASCII))
    if ranges[-1][1] <= _ASCII:
        return Chars(ascii_mask)
    if ranges[-1][0] <= _ASCII + 1 and ranges[-1][1] == LAST:
        return Chars(ascii_mask | _mask(0x80, 0xFF))
    options: list[Node] = [Chars(ascii_mask)] if ascii_mask else []
    options += [_sequence(parts) for low, high in ranges for parts in utf8_sequences(low, high)]
    if not options:
        raise Unsupported("half of a surrogate pair is not a character", position)
    return options[0] if len(options) == 1 else Alt(tuple(options))


def _sequence(parts: list[tuple[int, int]]) -> Node:
    return Seq(tuple(Chars(_mask(low, high)) for low, high in parts))


def _mask(low: int, high: int) -> int:
    """Return the set of the bytes from `low` to `high`; empty if they are out of order."""
    return (2 << high) - (1 << low) if low <= high else 0


def utf8_sequences(low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the byte sequences of the characters beyond ASCII in a range, as a range for each byte."""
    for first, last in _SIZES:
        yield from _split(max(low, first), min(high, last))


def _split(low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    if low > high:
        return
    if low <= _SURROGATES[1] and high >= _SURROGATES[0]:
        yield from _split(low, _SURROGATES[0] - 1)
        yield from _split(_SURROGATES[1] + 1, high)
        return
    for bits in (6, 12, 18):
        tail = (1 << bits) - 1
        if low & ~tail != high & ~tail:
            if low & tail:
                yield from _split(low, low | tail)
                yield from _split((low | tail) + 1, high)
                return
            if high & tail != tail:
                yield from _split(low, (high & ~tail) - 1)
                yield from _split(high & ~tail, high)
                return
    yield list(zip(chr(low).encode(), chr(high).encode(), strict=True))
