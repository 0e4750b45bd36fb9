"""The paths of rules for named files in one database: most files are of none of them, and one look tells so.

The edges of a path count as those of a line, so that many paths may be looked at as the lines of one text.

Invariants: every file that a rule is for is named; a few that no rule is for may be named too.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from strandline.detect.expressions.nodes import to_hyperscan, width
from strandline.detect.matching.databases import Database
from strandline.detect.matching.prefilter import SIZE_MAX, joinable, size, stripped
from strandline.detect.rules.rule import parse_regex


class NamedFiles:
    """The database of some paths; `saved` spares compiling it again."""

    def __init__(self, paths: Sequence[str], saved: bytes = b"") -> None:
        self._all = tuple(range(len(paths)))
        self._database = Database.loaded(saved) if saved else None
        self.is_from_saved = self._database is not None or not paths
        if not self.is_from_saved:
            trees = [joinable(stripped(parse_regex("path", path))) for path in paths]
            is_fit = all(width(tree)[0] and size(tree) <= SIZE_MAX for tree in trees)
            self._database = Database.compiled(list(map(to_hyperscan, trees)), [0] * len(trees)) if is_fit else None

    def dumped(self) -> bytes:
        """Return the database as bytes that another process can load; none if there is no database."""
        return b"" if self._database is None else self._database.dumped()

    def numbers(self, path: str) -> Sequence[int]:
        """Return the positions of the rules that a file may be for, in order; all if hyperscan refuses one of them."""
        if not self._all or self._database is None:
            return self._all
        return sorted({number for _, number in self._database.found(_encoded(path))})

    def positions(self, paths: Sequence[str]) -> Sequence[int]:
        """Return the positions of the files that a rule may be for, in order, by one look at all of them."""
        if not self._all:
            return ()
        if self._database is None:
            return range(len(paths))
        lines = list(map(_encoded, paths))
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        found = self._database.found(b"\n".join((*lines, b"")))
        return sorted({bisect_left(starts, end) - 1 for end, _ in found})


def _encoded(path: str) -> bytes:
    return path.encode(errors="surrogateescape")
