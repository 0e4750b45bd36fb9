"""The prefilter over many values at once: it selects the values that need a scan of their own.

Small values are joined to one text, a line each, and the prefilter runs over it once; to a rule a line break counts as
the edge of a text. A large value is looked at alone, and the matches in it are kept for its scan. A keyword alone makes
no window where the check of its rule finds nothing. Values without a window, binaries too, are decoded, and their views
are looked at together in the same way, and so are the views in those. Percent escapes of a very small value are
unescaped all at once. Archives are selected by their bytes alone.

Invariants: a value that is not selected has no window, no view with a window and no member, so a scan of it finds
nothing and skips nothing; work is linear in the bytes. Values may be selected that a scan finds nothing in.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from strandline.detect.archives.members import MAGIC, MAGIC_BEGINS, kind_of
from strandline.detect.archives.tars import BLOCK
from strandline.detect.limits import KIB, Limits
from strandline.detect.matching.prefilter import (
    CHUNK_BYTES,
    PERCENT,
    RUN,
    STRING,
    Matches,
    Prefilter,
)
from strandline.detect.views.decoders import ESCAPE, RUN_MIN, DecodeBudget, hints, unescaped_words, views
from strandline.detect.views.escapes import escape_ends
from strandline.detect.views.tables import table_mark_ends

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
    named = _large_suspects(cells, large, prefilter, limits)
    numbers: Sequence[int] = range(len(cells))
    if large:
        numbers = [number for number, size in enumerate(sizes) if size < ALONE_BYTES_MIN]
        cells = [cells[number] for number in numbers]
    for first, last in groups(cells):
        found = _named(Lines(cells[first:last]), _Views(prefilter, limits))
        named.update(dict.fromkeys(numbers[first + at] for at in found))
    return dict(sorted(named.items()))


def _large_suspects(
    cells: Sequence[bytes], large: Sequence[int], prefilter: Prefilter, limits: Limits
) -> dict[int, Matches | None]:
    """Return large values that need a scan, with their matches; those of more than one chunk unread."""
    inside = _Views(prefilter, limits)
    named: set[int] = set()
    known: dict[int, Matches | None] = {}
    for number in large:
        cell = cells[number]
        if len(cell) > CHUNK_BYTES:
            named.add(number)
            continue
        matches = prefilter.matches(cell)
        own, words, marks = prefilter.split(matches)
        if own or kind_of(cell) is not None or (words and prefilter.has_window(cell, words)):
            named.add(number)
        elif marks or b"\0" in cell:
            inside.add(number, cell, marks, inside.new_budget())
        if len(matches) * _BYTES_PER_MATCH <= len(cell):
            known[number] = matches
    return {number: known.get(number) for number in named | inside.named()}


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
        return (number for number, _ in self.firsts(ends))

    def firsts(self, ends: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the positions of the values that contain the given ends, each with the first end in it."""
        after = 0
        for end in ends:
            if end > after:
                number = bisect_left(self._starts, end) - 1
                after = self._starts[number + 1]
                yield number, end - self._starts[number]

    def grouped(self, matches: Matches) -> Iterator[tuple[int, Matches]]:
        """Yield the positions of the values with matches, each with those in it as they are in the value alone."""
        at = 0
        while at < len(matches):
            number = bisect_left(self._starts, matches[at][0]) - 1
            start, after = self._starts[number], bisect_left(matches, (self._starts[number + 1] + 1, 0), at)
            yield number, [(end - start, expression) for end, expression in matches[at:after]]
            at = after


class _Views:
    """The views of some values, which are looked at together; `depth` counts the decoders around the values."""

    def __init__(self, prefilter: Prefilter, limits: Limits, depth: int = 0) -> None:
        self.prefilter = prefilter
        self.limits = limits
        self._depth = depth
        self._named: set[int] = set()
        self._owners: list[int] = []
        self._cells: list[bytes] = []
        self._budgets: list[DecodeBudget] = []
        self._size = 0

    def new_budget(self) -> DecodeBudget:
        """Return the budget of a value with all views in it."""
        return DecodeBudget(self.limits, self.limits.views_total_max)

    def add(self, number: int, data: bytes, marks: Mapping[int, int], budget: DecodeBudget) -> None:
        """Decode a value; one of which a bound leaves something out needs a scan."""
        for view in views(data, marks, budget, is_too_deep=self._depth >= self.limits.decode_depth):
            self._owners.append(number)
            self._cells.append(view.data)
            self._budgets.append(budget)
            self._size += len(view.data)
        if budget.skipped:
            self._named.add(number)
        if self._size >= JOINED_BYTES_MAX:
            self._look()

    def named(self) -> set[int]:
        """Return the values that need a scan because of their views."""
        self._look()
        return self._named

    def _look(self) -> None:
        owners, cells, budgets = self._owners, self._cells, self._budgets
        self._owners, self._cells, self._budgets, self._size = [], [], [], 0
        for first, last in groups(cells):
            inside = _Views(self.prefilter, self.limits, self._depth + 1)
            found = _named(Lines(cells[first:last]), inside, budgets[first:last])
            self._named.update(owners[first + at] for at in found)


def _named(lines: Lines, inside: _Views, budgets: Sequence[DecodeBudget] = ()) -> set[int]:
    """Return the positions of the values in one group that need a scan; `inside` takes their views.

    Values that are views themselves come with their budgets.
    """
    cells, limits = lines.cells, inside.limits
    named, marked = _seen(lines, lines.text(), inside.prefilter)
    if max(lines.sizes) >= BLOCK or not MAGIC_BEGINS.isdisjoint([cell[:2] for cell in cells]):
        named.update(number for number, cell in enumerate(cells) if kind_of(cell) is not None)
    escaped = []
    bytes_max = min(limits.view_bytes_max, limits.views_total_max, BLOCK - 1) if limits.decode_depth else -1
    for number, marks in marked.items():
        if number in named:
            continue
        cell = cells[number]
        is_quick = not budgets and marks.keys() == {PERCENT} and len(cell) <= bytes_max
        if is_quick and cell.count(b"%") <= limits.view_spans_max:
            escaped.append(number)
        else:
            inside.add(number, cell, marks, budgets[number] if budgets else inside.new_budget())
    return named | inside.named() | set(_named_unescaped(lines, escaped, inside.prefilter))


def _seen(lines: Lines, text: bytes, prefilter: Prefilter) -> tuple[set[int], dict[int, dict[int, int]]]:
    """Return the values with a window, and the marks of those that may have views; a NUL has no mark of its own."""
    own, words, marks = prefilter.split(prefilter.matches(text))
    named = set(lines.numbers(own))
    for number, some in lines.grouped(words):
        if number not in named and prefilter.has_window(lines.cells[number], some):
            named.add(number)
    marked: dict[int, dict[int, int]] = {}
    if b"\0" in text:
        marked = {number: {} for number, cell in enumerate(lines.cells) if b"\0" in cell}
    for mark, found in _mark_ends(text, marks):
        for number, end in lines.firsts(found):
            # A hint tells nothing of where its run begins.
            marked.setdefault(number, {})[mark] = RUN_MIN if mark == RUN else end
    return named, marked


def _mark_ends(text: bytes, marks: Container[int]) -> Iterator[tuple[int, Iterable[int]]]:
    """Yield the marks of a text, each with the ends of all places that may make a view."""
    if RUN in marks:
        yield RUN, (end for end, _ in hints(text))
    if PERCENT in marks:
        yield PERCENT, (found.end() for found in ESCAPE.finditer(text))
    if STRING in marks:
        yield STRING, escape_ends(text)
    yield from table_mark_ends(text, marks)


def _named_unescaped(lines: Lines, escaped: Sequence[int], prefilter: Prefilter) -> Iterator[int]:
    """Yield the values whose unescaped words need a scan; the values are too small for a tar in one."""
    if not escaped:
        return
    words = Lines([unescaped_words(lines.cells[number]) for number in escaped])
    text = words.text()
    named, marked = _seen(words, text, prefilter)
    named.update(marked, words.numbers(found.end() for found in MAGIC.finditer(text)))
    yield from (escaped[at] for at in named)
