"""The last write of each key, by columns; and rows cut by a hash of their key, so that each cut can be merged alone.

    key binary, revision uint64, kind uint8 (put, delete or purge), value binary (empty unless it is put),
    expires uint64 (ns since 1970; of a put with a time to live of its own, else 0)

Invariants: rows go in by revision, and of the rows of a key the last is kept, whatever it does; deletes are kept too
until everything is merged, since an earlier part may hold what they delete. Rows of one key are always in one cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from strandline.kv import UpdateKind
from strandline.kv.nats.bucket_reader import kinds_of
from strandline.nats.deliveries import Delivered
from strandline.spark.streams.columns import deadlines_of, keys_of
from strandline.wire import binary_spans

ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("revision", pa.uint64()),
        ("kind", pa.uint8()),
        ("value", pa.binary()),
        ("expires", pa.uint64()),
    ]
)
CHUNK_BYTES = 32 * 1024 * 1024
_WORD = 8
_STEPS = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)


def rows_of(delivered: Delivered, prefix: str, *, is_bucket: bool) -> pa.RecordBatch:
    """Return messages as rows: of a bucket as it means them, of another stream each a put of its subject."""
    count = len(delivered)
    kinds = kinds_of(delivered.headers, count) if is_bucket else np.zeros(count, np.uint8)
    deadlines = deadlines_of(delivered) if is_bucket else np.zeros(count, np.uint64)
    columns = [keys_of(delivered, len(prefix)), delivered.sequences, kinds, delivered.payloads, deadlines]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def last_writes(rows: pa.Table) -> pa.Table:
    """Return the last row of each key, in the order of the rows."""
    numbered = pa.table({"key": rows["key"], "row": np.arange(rows.num_rows)})
    last = numbered.group_by("key").aggregate([("row", "max")])["row_max"].to_numpy()
    return rows if len(last) == rows.num_rows else rows.take(pa.array(np.sort(last)))


def puts_of(rows: pa.Table) -> pa.Table:
    """Return the rows that put."""
    return rows.filter(pa.array(rows["kind"].to_numpy() == UpdateKind.PUT))


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows in tables of some size, which fold better than small batches do."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(held, ROWS)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, ROWS)


def write_cuts(folder: Path, part: int, tables: Iterable[pa.Table], cuts: int) -> int:
    """Write the last rows of a part's keys into a file for each cut; return the number of rows before."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(ipc.new_file(_file(folder, part, cut), ROWS)) for cut in range(cuts)]
        for table in tables:
            rows += table.num_rows
            left = last_writes(table).combine_chunks()
            for cut, piece in enumerate(_cut(left, cuts)):
                writers[cut].write_table(piece)
    return rows


def read_cut(folder: Path, parts: Sequence[int], cut: int) -> pa.Table:
    """Return the last row of each key of a cut, over all parts, which are in the order of their revisions."""
    tables = []
    for part in parts:
        with pa.memory_map(str(_file(folder, part, cut))) as source, ipc.open_file(source) as reader:
            tables.append(reader.read_all())
    return last_writes(pa.concat_tables(tables) if tables else ROWS.empty_table())


def _cut(rows: pa.Table, cuts: int) -> Iterator[pa.Table]:
    if cuts == 1 or not rows.num_rows:
        yield from [rows] + [rows.slice(0, 0)] * (cuts - 1)
        return
    (keys,) = rows["key"].chunks
    numbers = cut_numbers(keys, cuts)
    order = np.argsort(numbers, kind="stable")
    edges = np.searchsorted(numbers[order], np.arange(cuts + 1))
    for cut in range(cuts):
        yield rows.take(pa.array(order[edges[cut] : edges[cut + 1]]))


def cut_numbers(keys: pa.BinaryArray, cuts: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return the cut of each key: the same for a key whatever its neighbours, so that parts agree.

    Eight words spread over a key decide, which is all of it up to 64 bytes; keys that differ elsewhere share a cut.
    """
    data, edges = binary_spans(keys)
    text = b"".join((data[edges[0] : edges[-1]], bytes(_WORD)))
    words: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.ndarray((len(text) - _WORD + 1,), "<u8", text, 0, (1,))
    starts, lengths = edges[:-1].astype(np.int64) - int(edges[0]), np.diff(edges).astype(np.int64)
    room, masks = np.maximum(lengths - _WORD, 0), _MASKS[np.minimum(lengths, _WORD)]
    mixed = lengths.astype(np.uint64)
    for step in range(_STEPS):
        mixed = (mixed ^ (words[starts + room * step // (_STEPS - 1)] & masks)) * _FACTOR
        mixed ^= mixed >> np.uint64(32)
    return mixed % np.uint64(cuts)


def _file(folder: Path, part: int, cut: int) -> Path:
    return folder / f"{part:06d}-{cut:04d}.arrow"
