"""Where a shard is cut when others are idle: in the middle of what is left, by weight."""

from collections.abc import Sequence
from itertools import accumulate

from strandline.scan.fetching import Row
from strandline.scan.manifest import ITEM_BYTES, Manifest

SPLIT_WEIGHT_MIN = 4 << 20


def weight_of(row: Row) -> int:
    """Return what a row weighs."""
    return (row.size or 0) + ITEM_BYTES


def middle(manifest: Manifest, start: int, end: int, first: int, rows: Sequence[Row]) -> int | None:
    """Return the row at which the rest `[start, end)` is cut; None if it is too little.

    `rows` are those of the manifest from `first` on that are at hand; others weigh as much as their chunk on average.
    """
    pieces = list(_pieces(manifest, start, end, first, rows))
    sums = list(accumulate(weight for _, weight in pieces))
    if len(pieces) < 2 or sums[-1] < SPLIT_WEIGHT_MIN:  # noqa: PLR2004 - one piece cannot be cut
        return None
    half = sums[-1] / 2
    at = next(number for number, total in enumerate(sums) if total >= half)
    cut = pieces[max(at, 1)][0]
    return cut if start < cut < end else None


def _pieces(manifest: Manifest, start: int, end: int, first: int, rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return pieces of the rest: the first row of each, and what it weighs."""
    at_hand = rows[start - first : end - first] if first <= start else ()
    pieces = [(start + number, weight_of(row)) for number, row in enumerate(at_hand)]
    row = start + len(at_hand)
    while row < end:
        chunk = manifest.chunk_of(row)
        begin = manifest.starts[chunk]
        after = manifest.starts[chunk + 1] if chunk + 1 < len(manifest.starts) else manifest.rows
        each = manifest.weights[chunk] / (after - begin)
        stop = min(after, end)
        step = max(1, (stop - row) // 64)
        pieces += [(at, int(each * (min(at + step, stop) - at))) for at in range(row, stop, step)]
        row = stop
    return pieces
