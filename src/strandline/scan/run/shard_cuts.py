"""The rows at which shards are cut: into the first shards of a run, and in two when workers are idle.

Invariant: a cut divides by weight (bytes, and a constant for each item), not by rows.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from strandline.protocol.runs import InitialShard
from strandline.scan.run.manifest import ITEM_BYTES, Manifest, Row, weights

SHARD_WEIGHT_MIN = 1 << 20
SHARD_WEIGHT_MAX = 256 << 20
SHARDS_MAX = 4_096
SHARDS_PER_WORKER = 4
SPLIT_WEIGHT_MIN = 4 << 20


def initial_shards(manifest: Manifest, sizes: Iterable[pa.Array], parallelism: int) -> list[InitialShard]:
    """Return shards of about equal weight: several for each worker, more for much work, fewer for little."""
    total = np.cumsum(np.concatenate([weights(some).to_numpy() for some in sizes]))
    count = _count(int(total[-1]), len(total), parallelism)
    ends = np.searchsorted(total, total[-1] * np.arange(1, count) / count, side="left") + 1
    bounds = [0, *sorted({int(end) for end in ends if 0 < end < len(total)}), len(total)]
    return [InitialShard(number, manifest.spec(*pair)) for number, pair in enumerate(pairwise(bounds))]


def shards_of_chunks(manifest: Manifest, parallelism: int) -> list[InitialShard]:
    """Return shards of about equal weight from the chunks alone: rows of one chunk count as equally heavy."""
    ends = np.cumsum(manifest.weights)
    count = _count(int(ends[-1]), manifest.rows, parallelism)
    wanted = ends[-1] * np.arange(1, count) / count
    rows = np.interp(wanted, [0, *ends], [*manifest.starts, manifest.rows]).astype(np.int64)
    bounds = [0, *sorted({int(row) for row in rows if 0 < row < manifest.rows}), manifest.rows]
    return [InitialShard(number, manifest.spec(*pair)) for number, pair in enumerate(pairwise(bounds))]


def _count(weight: int, rows: int, parallelism: int) -> int:
    most = max(SHARDS_PER_WORKER * parallelism, weight // SHARD_WEIGHT_MAX)
    return max(1, min(most, weight // SHARD_WEIGHT_MIN, rows, SHARDS_MAX))


def weight_of(row: Row) -> int:
    """Return the weight of a row."""
    return (row.size or 0) + ITEM_BYTES


def split_row(manifest: Manifest, start: int, end: int, first: int, rows: Sequence[Row]) -> int | None:
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
    """Return pieces of the rest: the first row and the weight of each."""
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
