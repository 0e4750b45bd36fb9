"""Patterns tested against many subjects at once, in columns: the ends of their tokens, and words of eight bytes.

Invariants: pure; the same subjects match as one by one (`wire.matcher`). A subject that differs from the pattern before
its first wildcard is not tested further.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.broker.streams.arrays import Flags, Ids, Places

BLOCK_NAMES = 16_384
"""Subjects that are tested together: their columns stay in the processor's caches."""
_WORD = 8
_DOT = ord(".")
_ANY, _REST = b"*", b">"


class Pattern(NamedTuple):
    """A pattern with wildcards, taken apart."""

    head: bytes
    """The common beginning of matching subjects, up to the first wildcard."""
    tokens: int
    is_open: bool
    """Whether there may be more tokens."""
    fixed: list[tuple[int, bytes]]
    """Those tokens behind the first wildcard that are none themselves, by their place."""

    @classmethod
    def of(cls, pattern: bytes) -> "Pattern":
        """Take a pattern apart."""
        tokens = pattern.split(b".")
        is_open = tokens[-1] == _REST
        is_wild = [token == _ANY for token in tokens]
        is_wild[-1] |= is_open
        first = is_wild.index(True)
        fixed = [(at, token) for at, token in enumerate(tokens) if at > first and not is_wild[at]]
        return cls(b"".join(token + b"." for token in tokens[:first]), len(tokens), is_open, fixed)

    @property
    def is_start(self) -> bool:
        """Whether every longer subject that begins with `head` matches."""
        return self.is_open and self.tokens == self.head.count(b".") + 1


class Block:
    """Some subjects, one after the other in one text, each with a dot behind it."""

    def __init__(self, text: bytes, lengths: Ids) -> None:
        self._data = np.frombuffer(text, np.uint8)
        self._lengths = lengths.astype(np.int64)
        self._ends = np.cumsum(self._lengths + 1) - 1
        self._starts = self._ends - self._lengths
        self._words: npt.NDArray[np.uint64] = np.ndarray(
            (len(text) - _WORD + 1,), np.dtype("<u8"), buffer=text, strides=(1,)
        )

    @staticmethod
    def text(names: list[bytes]) -> bytes:
        """Return the text of some subjects; zeros at its end let the last one be read by words."""
        return b".".join(names) + b"." + bytes(_WORD)

    def match(self, pattern: Pattern) -> Places:
        """Return which subjects a pattern matches."""
        rows = np.flatnonzero(self._lengths > len(pattern.head))
        rows = rows[self._equal(self._starts[rows], pattern.head)]
        if pattern.is_start or not len(rows):
            return rows
        dots, first, counts = self._tokens
        own = counts[rows]
        rows = rows[own >= pattern.tokens if pattern.is_open else own == pattern.tokens]
        for at, token in pattern.fixed:
            places = first[rows] + at
            begins = dots[places - 1] + 1
            fits = dots[places] - begins == len(token)
            rows, begins = rows[fits], begins[fits]
            rows = rows[self._equal(begins, token)]
        return rows

    @cached_property
    def _tokens(self) -> tuple[Places, Places, Places]:
        """The end of every token, and for each subject its first token and their number."""
        dots = np.flatnonzero(self._data == _DOT)
        is_end = np.zeros(len(self._data), np.bool_)
        is_end[self._ends] = True
        last = np.flatnonzero(is_end[dots])
        first = np.concatenate([[0], last[:-1] + 1])
        return dots, first, last - first + 1

    def _equal(self, begins: Places, wanted: bytes) -> Flags:
        """Tell which texts, all at least as long as a prefix, begin with it."""
        found: Flags = np.ones(len(begins), np.bool_)
        for at in range(0, len(wanted), _WORD):
            part = wanted[at : at + _WORD]
            bits = np.uint64((1 << 8 * len(part)) - 1)
            found &= self._words[begins + at] & bits == np.uint64(int.from_bytes(part, "little"))
        return found
