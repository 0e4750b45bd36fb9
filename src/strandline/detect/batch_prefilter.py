"""The prefilter over many values at once: it selects the values that need a scan of their own.

Small values are joined to one text, a line each, and the prefilter runs over it once; to a rule a line break counts as
the edge of a text. Values with percent escapes are filtered once more, unescaped. Archives, and values that may have
another view, are selected by their bytes alone. A large value is looked at alone, and the matches in it are kept for
its scan.

Invariants: a value that is not selected has no window, no view with a window and no member, so a scan of it finds
nothing and skips nothing; work is linear in the bytes. Values may be selected that a scan finds nothing in.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from strandline.detect.archives.members import MAGIC, MAGIC_BEGINS, kind_of
from strandline.detect.archives.tars import BLOCK
from strandline.detect.limits import KIB, Limits
from strandline.detect.matching.prefilter import (
    CHUNK_BYTES,
    PERCENT,
    RUN,
    STRING,
    TABLES,
    Matches,
    Prefilter,
    marks_of,
)
from strandline.detect.views.decoders import ESCAPE, hints, may_have_views, unescaped_words
from strandline.detect.views.escapes import has_escapes
from strandline.detect.views.tables import table_view

JOINED_BYTES_MAX = 256 * KIB
ALONE_BYTES_MIN = 16 * KIB
"""A value of so many bytes is looked at alone."""
_BYTES_PER_MATCH = 256
"""Matches that are closer together on average are not kept: memory stays a small part of the values."""


def suspects(cells: Sequence[bytes], prefilter: Prefilter, limits: Limits) -> dict[int, Matches | None]:
    """Return the positions of the values that need a scan of their own, in order, with the matches in large ones."""
    if prefilter.is_everywhere:
        return dict.fromkeys(range(len(cells)))
    sizes = list(map(len, cells))
    large = [number for number, size in enumerate(sizes) if size >= ALONE_BYTES_MIN]
    named = dict(_large_suspects(cells, large, prefilter))
    numbers: Sequence[int] = range(len(cells))
    if large:
        numbers = [number for number, size in enumerate(sizes) if size < ALONE_BYTES_MIN]
        cells = [cells[number] for number in numbers]
    for first, last in groups(cells):
        named.update(dict.fromkeys(numbers[first + at] for at in _named(Lines(cells[first:last]), prefilter, limits)))
    return dict(sorted(named.items()))


def _large_suspects(
    cells: Sequence[bytes], large: Sequence[int], prefilter: Prefilter
) -> Iterator[tuple[int, Matches | None]]:
    """Yield large values that need a scan, with their matches; those of more than one chunk unread."""
    for number in large:
        cell = cells[number]
        if len(cell) > CHUNK_BYTES:
            yield number, None
            continue
        matches = prefilter.matches(cell)
        marks = marks_of(matches)
        if marks is None or kind_of(cell) is not None or may_have_views(cell, marks):
            yield number, matches if len(matches) * _BYTES_PER_MATCH <= len(cell) else None


def groups(cells: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield spans of values that are joined into one text."""
    ends = list(accumulate(map(len, cells)))
    first = size = 0
    while first < len(cells):
        last = max(bisect_right(ends, size + JOINED_BYTES_MAX, first), first + 1)
        yield first, last
        first, size = last, ends[last - 1]


class Lines:
    """Values as the lines of one text."""

    def __init__(self, cells: Sequence[bytes]) -> None:
        self.cells = cells
        self.sizes = list(map(len, cells))
        self._starts = list(accumulate(map((1).__add__, self.sizes), initial=0))

    def text(self) -> bytes:
        """Return the text; every line of it ends with a line break."""
        return b"\n".join((*self.cells, b""))

    def numbers(self, ends: Iterable[int]) -> Iterator[int]:
        """Yield the positions of the values that contain the given ends, each once; the ends are sorted."""
        after = 0
        for end in ends:
            if end > after:
                number = bisect_left(self._starts, end) - 1
                after = self._starts[number + 1]
                yield number


def _named(lines: Lines, prefilter: Prefilter, limits: Limits) -> set[int]:
    """Return the positions of the values in one group that need a scan."""
    text = lines.text()
    named, escaped = _seen(lines, text, prefilter)
    named.update(_named_unescaped(lines, [number for number in escaped if number not in named], prefilter, limits))
    if max(lines.sizes) >= BLOCK or not MAGIC_BEGINS.isdisjoint([cell[:2] for cell in lines.cells]):
        named.update(number for number, cell in enumerate(lines.cells) if kind_of(cell) is not None)
    return named


def _seen(lines: Lines, text: bytes, prefilter: Prefilter) -> tuple[set[int], list[int]]:
    """Return the values with a window, a run that may have a view, or a NUL; and those with an escape."""
    ends, marks = prefilter.ends(text)
    named = set(lines.numbers(ends))
    if RUN in marks:
        named.update(lines.numbers(end for end, _ in hints(text)))
    if b"\0" in text:
        named.update(number for number, cell in enumerate(lines.cells) if b"\0" in cell)
    if STRING in marks:
        named.update(number for number, cell in enumerate(lines.cells) if has_escapes(cell))
    if not TABLES.isdisjoint(marks):
        every = dict.fromkeys(marks, 0)
        named.update(number for number, cell in enumerate(lines.cells) if table_view(cell, every) is not None)
    escapes = ESCAPE.finditer(text) if PERCENT in marks else ()
    return named, list(lines.numbers(found.end() for found in escapes))


def _named_unescaped(lines: Lines, escaped: Sequence[int], prefilter: Prefilter, limits: Limits) -> Iterator[int]:
    """Yield the values whose unescaped words need a scan, and those with many or large words."""
    bytes_max = min(limits.view_bytes_max, limits.views_total_max, BLOCK - 1) if limits.decode_depth else -1
    small = []
    for number in escaped:
        cell = lines.cells[number]
        if len(cell) > bytes_max or cell.count(b"%") > limits.view_spans_max:
            yield number
        else:
            small.append(number)
    if not small:
        return
    words = Lines([unescaped_words(lines.cells[number]) for number in small])
    text = words.text()
    named, still_escaped = _seen(words, text, prefilter)
    named.update(still_escaped)
    named.update(words.numbers(found.end() for found in MAGIC.finditer(text)))
    yield from (small[at] for at in named)
