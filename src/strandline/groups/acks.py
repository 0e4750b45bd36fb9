"""Which offsets are acknowledged: an exclusive frontier, and everything above it in pages of bits.

Invariants: every offset below `until` is in; the offset `until` is not; no page lies wholly below `until`, and bits
of the frontier's own page that lie below it mean nothing. There is no window: an offset may be any distance ahead,
and costs at most one page.

A page is a Python integer, so it never changes: `copy` shares the pages with the original, and a full page is one
object
for all.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

PAGE_BITS = 512
_SHIFT = PAGE_BITS.bit_length() - 1
_MASK = PAGE_BITS - 1
_FULL = (1 << PAGE_BITS) - 1
_PAGES_AT_ONCE = 512

Ranges = npt.NDArray[np.int64]
"""Rows of (start, end), the end exclusive."""


class Acks:
    """A set of offsets that grows only, and mostly from below."""

    __slots__ = ("_pages", "_until")

    def __init__(self, until: int = 0) -> None:
        self._until = until
        self._pages: dict[int, int] = {}

    @property
    def until(self) -> int:
        """The lowest offset that is not in."""
        return self._until

    def __contains__(self, offset: int) -> bool:
        if offset < self._until:
            return True
        return bool(self._pages.get(offset >> _SHIFT, 0) >> (offset & _MASK) & 1)

    def isdisjoint(self, offsets: Sequence[int]) -> bool:
        """Return whether none of some offsets is in; quick where all of them lie above everything that is."""
        if not offsets:
            return True
        if min(offsets) < self._until:
            return False
        return not self._pages or not any(offset in self for offset in offsets)

    def add(self, offset: int) -> bool:
        """Add an offset; return whether it is new."""
        until = self._until
        if offset > until:
            number = offset >> _SHIFT
            page = self._pages.get(number, 0)
            grown = page | 1 << (offset & _MASK)
            if grown == page:
                return False
            self._pages[number] = _FULL if grown == _FULL else grown
            return True
        if offset < until:
            return False
        self._until = until = until + 1
        if self._pages:
            if not until & _MASK:
                self._pages.pop(offset >> _SHIFT, None)
            self._advance()
        return True

    def add_range(self, start: int, end: int) -> int:
        """Add the offsets of [start, end); return the number of new ones."""
        start = max(start, self._until)
        if start >= end:
            return 0
        return self._raise_to(end) if start == self._until else self._fill(start, end)

    def copy(self) -> "Acks":
        """Return an independent copy; costs one dict of pages."""
        twin = Acks(self._until)
        twin._pages = self._pages.copy()
        return twin

    def count_above(self) -> int:
        """Return the number of offsets above the frontier."""
        frontier_page = self._pages.get(self._until >> _SHIFT, 0)
        meaningless = frontier_page & _low_bits(self._until & _MASK)
        return sum(page.bit_count() for page in self._pages.values()) - meaningless.bit_count()

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the runs above the frontier, ascending, as (start, exclusive end)."""
        yield from map(tuple, self.range_array().tolist())

    def range_array(self) -> Ranges:
        """Return the runs above the frontier, ascending, as rows of (start, exclusive end)."""
        numbers = sorted(self._pages)
        chunks = [numbers[at : at + _PAGES_AT_ONCE] for at in range(0, len(numbers), _PAGES_AT_ONCE)]
        # A run that crosses from one chunk into the next comes out in two rows that touch.
        return _join_touching(np.concatenate([_NO_RANGES, *(self._chunk_ranges(chunk) for chunk in chunks)]))

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the gaps within [start, end), ascending, as (start, exclusive end); neighbours may touch."""
        at = max(start, self._until)
        while at < end:
            if not self._pages:
                yield at, end
                return
            page_end = (at | _MASK) + 1
            page = self._pages.get(at >> _SHIFT, 0)
            rest = page >> (at & _MASK)
            if page is _FULL:
                at = page_end
            elif not rest:
                yield at, min(page_end, end)
                at = page_end
            elif rest & 1:
                at += _trailing_ones(rest)
            else:
                begin, at = at, at + _trailing_zeros(rest)
                yield begin, min(at, end)

    def _advance(self) -> None:
        """Move the frontier over the offsets that follow it."""
        pages = self._pages
        until = self._until
        while (page := pages.get(until >> _SHIFT)) is not None:
            until += _trailing_ones(page >> (until & _MASK))
            if until & _MASK or until == self._until:
                break
            del pages[(until - 1) >> _SHIFT]
            self._until = until
        self._until = until

    def _raise_to(self, end: int) -> int:
        """Move the frontier to `end`, and over the offsets that follow; return how many are new below `end`."""
        begin = self._until
        first, last = begin >> _SHIFT, end >> _SHIFT
        near = range(first, last + 1) if last - first < len(self._pages) else list(self._pages)
        already = 0
        for number in near:
            page = self._pages.get(number, 0)
            if not page or not first <= number <= last:
                continue
            if number == first:
                page &= ~_low_bits(begin & _MASK)
            if number == last:
                page &= _low_bits(end & _MASK)
            else:
                del self._pages[number]
            already += page.bit_count()
        self._until = end
        self._advance()
        return end - begin - already

    def _fill(self, start: int, end: int) -> int:
        """Put [start, end), which begins above the frontier, into the pages; return how many offsets are new."""
        new = 0
        while start < end:
            number = start >> _SHIFT
            stop = min(end, (number + 1) << _SHIFT)
            page = self._pages.get(number, 0)
            grown = page | _low_bits(stop - start) << (start & _MASK)
            new += (grown ^ page).bit_count()
            self._pages[number] = _FULL if grown == _FULL else grown
            start = stop
        return new

    def _chunk_ranges(self, numbers: list[int]) -> Ranges:
        packed = b"".join([self._pages[number].to_bytes(PAGE_BITS // 8, "little") for number in numbers])
        bits = np.flatnonzero(np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little"))
        offsets = (np.array(numbers, np.int64)[bits >> _SHIFT] << _SHIFT) + (bits & _MASK)
        return runs_of(offsets[offsets >= self._until])


_NO_RANGES = np.empty((0, 2), np.int64)


def runs_of(offsets: npt.NDArray[np.int64]) -> Ranges:
    """Return ascending distinct offsets as rows of (start, exclusive end)."""
    if not len(offsets):
        return _NO_RANGES
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts = offsets[np.concatenate(([0], breaks))]
    ends = offsets[np.concatenate((breaks - 1, [len(offsets) - 1]))] + 1
    return np.stack((starts, ends), axis=1)


def acks_but(offsets: npt.NDArray[np.int64], end: int) -> Acks:
    """Return everything below `end` but some offsets, which ascend."""
    missing = runs_of(offsets)
    acks = Acks(int(missing[0, 0]) if len(missing) else end)
    for start, stop in zip(missing[:, 1].tolist(), [*missing[1:, 0].tolist(), end], strict=False):
        acks.add_range(start, stop)
    return acks


def _join_touching(ranges: Ranges) -> Ranges:
    apart = ranges[1:, 0] != ranges[:-1, 1]
    if apart.all():
        return ranges
    starts = ranges[np.concatenate(([True], apart)), 0]
    ends = ranges[np.concatenate((apart, [True])), 1]
    return np.stack((starts, ends), axis=1)


def _low_bits(count: int) -> int:
    return (1 << count) - 1


def _trailing_ones(bits: int) -> int:
    return (bits ^ (bits + 1)).bit_length() - 1


def _trailing_zeros(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
