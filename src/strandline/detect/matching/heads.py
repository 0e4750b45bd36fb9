"""The head of an expression: its first part, which tells where a match can begin.

A window is wide, because what stands between a name and its value may be; and trying a large expression at each of its
bytes is most of what confirming costs. If the first part is a choice of words, hyperscan finds the ends of all of them
in one pass, and a match can only begin so far before one of those ends as the part is wide.

Invariants: every match in a window begins at one of `starts`; work is linear in the window.
"""

from collections.abc import Iterator

from strandline.detect.expressions.nodes import Alt, Node, Seq, first, literal, members, to_hyperscan, width
from strandline.detect.matching.databases import Database
from strandline.detect.matching.prefilter import size, stripped, unbounded

WINDOWS_MIN = 16
"""Windows of a rule that are looked at without its head."""
_WIDTH_MAX = 64
_SIZE_MIN, _SIZE_MAX = 32, 400
"""Approximate states of parts that are worth a database of their own, and can be compiled in a moment."""


class Head:
    """The first part of an expression, compiled once its rule has had some windows: few do not pay for it."""

    def __init__(self, part: Node) -> None:
        self.windows_left = WINDOWS_MIN
        self._part = part
        self._least, most = width(part)
        self._most = most or 0
        self._begins = frozenset(members(first(part)))
        self._database: Database | None = None
        self._is_compiled = False

    def starts(self, data: bytes, start: int, end: int) -> Iterator[int] | None:
        """Yield the positions in a window at which a match can begin, in order; None if they are not known."""
        if self.windows_left:
            self.windows_left -= 1
            return None
        if not self._is_compiled:
            self._database = Database.compiled([to_hyperscan(unbounded(self._part))], [0])
            self._is_compiled = True
        if self._database is None:
            return None
        begin = max(0, start - 1)  # one byte more, for what an assertion asks of it
        # Hyperscan 5.4.12 misses a word of two bytes at the end of a short text: what may end there is always tried.
        ends = [*(begin + at for at, _ in self._database.found(memoryview(data)[begin:end])), end]
        return self._before(data, ends, start)

    def _before(self, data: bytes, ends: list[int], after: int) -> Iterator[int]:
        for end in ends:
            for at in range(max(after, end - self._most), end - self._least + 1):
                if data[at] in self._begins:
                    yield at
            after = max(after, end - self._least + 1)


def head_of(tree: Node) -> Head | None:
    """Return the head of an expression, if it is a choice that is narrow and worth it."""
    part = stripped(tree)
    part = part.items[0] if isinstance(part, Seq) and part.items else part
    least, most = width(part)
    is_narrow = least > 0 and most is not None and most <= _WIDTH_MAX
    if not (isinstance(part, Alt) and is_narrow and literal(part) > 1 and _SIZE_MIN <= size(part) <= _SIZE_MAX):
        return None
    return Head(part)
