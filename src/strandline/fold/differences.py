"""Two folds side by side: what is in one and not, or not the same, in the other; streamed, whatever their backends.

Invariants: each side is one moment of its fold. Keys come in their order, and memory holds two pages, however large the
folds are. Where the sides are the same they are compared as columns, not row by row.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from strandline.fold.batches import PutColumns
from strandline.fold.records import FoldEntry, split_version
from strandline.fold.store import FoldReader
from strandline.wire import binary_list


class Difference(NamedTuple):
    """A key that is not the same on both sides; None where it is missing."""

    key: bytes
    left: FoldEntry | None
    right: FoldEntry | None


def diff(left: FoldReader, right: FoldReader, prefix: bytes = b"") -> Iterator[Difference]:
    """Yield the keys below a prefix that differ in value or version between two folds, in the order of their keys."""
    with closing(left.pages(prefix).columns) as ours, closing(right.pages(prefix).columns) as theirs:
        for rows in side_by_side(ours, theirs):
            if not isinstance(rows, PutColumns):
                yield from (row for row in rows if row.left != row.right)


def side_by_side(left: Iterable[PutColumns], right: Iterable[PutColumns]) -> Iterator[PutColumns | list[Difference]]:
    """Yield columns where both sides are the same, else the rows of both, in the order of their keys."""
    ours, theirs = _Side(left), _Side(right)
    while ours.rows is not None or theirs.rows is not None:
        if ours.rows is None or theirs.rows is None:
            yield _merged(ours.take_all(), theirs.take_all())
            continue
        count = min(len(ours.rows.keys), len(theirs.rows.keys))
        one, other = _slice(ours.rows, 0, count), _slice(theirs.rows, 0, count)
        if all(column.equals(twin) for column, twin in zip(one, other, strict=True)):
            ours.drop(count)
            theirs.drop(count)
            yield one
        else:
            last = min(ours.last_key(), theirs.last_key())
            yield _merged(ours.take_until(last), theirs.take_until(last))


class _Side:
    """The pages of one side; `rows` is what is left of the current one, None after the last."""

    def __init__(self, pages: Iterable[PutColumns]) -> None:
        self._pages = iter(pages)
        self.rows = next(self._pages, None)

    def drop(self, count: int) -> None:
        assert self.rows is not None  # noqa: S101 - rows are dropped after they were seen
        left = len(self.rows.keys) - count
        self.rows = _slice(self.rows, count, left) if left else next(self._pages, None)

    def last_key(self) -> bytes:
        assert self.rows is not None  # noqa: S101 - as above
        key: bytes = self.rows.keys[-1].as_py()
        return key

    def take_all(self) -> dict[bytes, FoldEntry]:
        return {} if self.rows is None else self.take_until(self.last_key())

    def take_until(self, last: bytes) -> dict[bytes, FoldEntry]:
        assert self.rows is not None  # noqa: S101 - as above
        keys = binary_list(self.rows.keys)
        count = bisect_right(keys, last)
        if not count:
            return {}
        _, values, versions = (binary_list(column) for column in _slice(self.rows, 0, count))
        self.drop(count)
        rows = zip(keys, values, map(split_version, versions), strict=False)
        return {key: FoldEntry(key, value, *version) for key, value, version in rows}


def _slice(rows: PutColumns, start: int, count: int) -> PutColumns:
    return PutColumns(*(column.slice(start, count) for column in rows))


def _merged(left: dict[bytes, FoldEntry], right: dict[bytes, FoldEntry]) -> list[Difference]:
    return [Difference(key, left.get(key), right.get(key)) for key in sorted(left.keys() | right.keys())]
