"""The manifest: the items of one run, in order, kept in the scanner's state until the run is over.

    manifest/<u64 id, big-endian>             head: JSON, see `Manifest`
    manifest/<u64 id, big-endian>/<u32 n>     chunk n: an Arrow IPC stream (zstd) of `ROWS`, at most 4,096 rows
    manifest/<u64 id, big-endian>/<u64 id>    a chunk of a large scan, under an id that its task drew

Keys of shards and cursors are (manifest, row), as `protocol.keyspace` writes them; a shard is a range of rows.

Invariants: chunks are written before the head, and the head before the run has shards, so that the holder of a shard
finds its rows; a manifest never changes; it is deleted after the end of its run, when no reader is left.
"""

import json
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import DIGEST_BYTES, OvidHash, PolicyHash, StableItemId, TenantId
from strandline.pipeline.state import Delete, GatheredPuts, Put, ScannerState
from strandline.protocol.keyspace import (
    ManifestHint,
    ManifestRowKey,
    Metadata,
    format_manifest_row,
    format_metadata,
    parse_metadata,
)
from strandline.protocol.shards import ShardSpec
from strandline.scan.arrow_chunks import format_table, parse_table, rechunked
from strandline.scan.errors import ManifestBroken

ROWS = pa.schema(
    [
        pa.field("source", pa.int16(), nullable=False),
        pa.field("locator", pa.binary(), nullable=False),
        ("version", pa.binary()),
        ("size", pa.int64()),
        ("stat", pa.binary()),
        ("extra", pa.binary()),
        ("problem", pa.string()),
        pa.field("base", pa.int8(), nullable=False),
        ("item", pa.binary(DIGEST_BYTES)),
        ("ovid", pa.binary(DIGEST_BYTES)),
    ]
)
"""As listed; `version` as far as it is known without reading; `base` is the index of an older policy, or -1; `item` is
the item's id, and `ovid` its ledger key at that version. Chunks of older versions lack the last two: they are null."""
_OLDER_ROWS = pa.schema(list(ROWS)[:-2])

CHUNK_ROWS = 4_096
CHUNK_BYTES_MAX = 8 << 20
ITEM_BYTES = 4_096
"""The weight of an item beside its bytes."""
_FORMAT, _FORMAT_OF_TASKS = 3, 4
_FORMATS = frozenset({1, 2, _FORMAT, _FORMAT_OF_TASKS})
"""Those of chunks that are counted and of chunks that tasks wrote; 1 and 2 are without identities."""


class Row(NamedTuple):
    """A row of the manifest, in the order of its columns."""

    source: int
    locator: bytes
    version: bytes | None
    size: int | None
    stat: bytes | None
    extra: bytes | None
    problem: str | None
    base: int
    item: StableItemId | None = None
    ovid: OvidHash | None = None


@dataclass(frozen=True)
class Manifest:
    """The head of a manifest: the first row and the weight of each chunk."""

    number: int
    rows: int
    bytes_listed: int
    starts: tuple[int, ...]
    weights: tuple[int, ...]
    bases: tuple[PolicyHash, ...] = ()
    ids: tuple[int, ...] = ()
    """The ids of chunks that tasks wrote (u64), in order; other chunks are counted from 0."""

    def chunk_key(self, at: int) -> bytes:
        """Return the key of a chunk."""
        return format_chunk_key(self.number, self.ids[at]) if self.ids else _chunk_key(self.number, at)

    def chunk_of(self, row: int) -> int:
        """Return the chunk that holds a row."""
        return bisect_right(self.starts, row) - 1

    def spec(self, start: int, end: int) -> ShardSpec:
        """Return the shard of the rows `[start, end)`."""
        hint = ManifestHint(self.number, start, end)
        return ShardSpec(self.key(start), self.key(end), format_metadata(Metadata(hint)))

    def key(self, row: int) -> bytes:
        """Return the key of a row."""
        return format_manifest_row(ManifestRowKey(self.number, row))


def rows_of(spec: ShardSpec) -> ManifestHint:
    """Return the rows of a shard, and their manifest."""
    hint = parse_metadata(spec.metadata).hint
    if not isinstance(hint, ManifestHint):
        raise ManifestBroken("a shard of it does not name its rows")
    return hint


def weights(sizes: pa.Array) -> pa.Array:
    """Return the weights of rows with some sizes."""
    return pc.add(pc.fill_null(sizes, 0), ITEM_BYTES)


def write_manifest(
    state: ScannerState, tenant: TenantId, number: int, rows: Iterable[pa.RecordBatch], bases: Sequence[PolicyHash]
) -> Manifest:
    """Store rows as a manifest, chunks first; return its head."""
    starts, heavy = [0], list[int]()
    total = 0
    for at, chunk in enumerate(_chunks(rows)):
        state.apply_batch(tenant, [Put(_chunk_key(number, at), format_table(chunk))])
        starts.append(starts[-1] + len(chunk))
        heavy.append(pc.sum(weights(chunk["size"])).as_py())
        total += pc.sum(chunk["size"]).as_py() or 0
    manifest = Manifest(number, starts[-1], total, tuple(starts[:-1]), tuple(heavy), tuple(bases))
    write_head(state, tenant, manifest)
    return manifest


def write_head(state: ScannerState, tenant: TenantId, manifest: Manifest) -> None:
    """Store the head of a manifest whose chunks are durable."""
    state.apply_batch(tenant, [Put(_head_key(manifest.number), _format_head(manifest))])


class WrittenChunk(NamedTuple):
    """A chunk that a task wrote."""

    id: int
    rows: int
    weight: int
    bytes: int


def write_chunks(puts: GatheredPuts, number: int, rows: Iterable[pa.RecordBatch]) -> Iterator[WrittenChunk]:
    """Give rows to be stored as chunks under ids that no other task has, also if it does the same again."""
    for chunk in _chunks(rows):
        named = secrets.randbits(63)
        puts.add(Put(format_chunk_key(number, named), format_table(chunk)))
        weight = pc.sum(weights(chunk["size"])).as_py()
        yield WrittenChunk(named, len(chunk), weight, pc.sum(chunk["size"]).as_py() or 0)


def manifest_of(number: int, chunks: Sequence[WrittenChunk], bases: Sequence[PolicyHash]) -> Manifest:
    """Return the head of a manifest from its chunks, in order."""
    starts = [0, *accumulate(chunk.rows for chunk in chunks)]
    heavy, ids = tuple(chunk.weight for chunk in chunks), tuple(chunk.id for chunk in chunks)
    size = sum(chunk.bytes for chunk in chunks)
    return Manifest(number, starts[-1], size, tuple(starts[:-1]), heavy, tuple(bases), ids)


def read_manifest(state: ScannerState, tenant: TenantId, number: int) -> Manifest | None:
    """Return a manifest's head, or None if there is none."""
    (found,) = state.multi_get(tenant, [_head_key(number)])
    return None if found is None else _parse_head(number, found)


def delete_manifest(state: ScannerState, tenant: TenantId, manifest: Manifest) -> None:
    """Delete a manifest: the head first, so that no reader finds one without rows."""
    state.apply_batch(tenant, [Delete(_head_key(manifest.number))])
    keys = [Delete(manifest.chunk_key(at)) for at in range(len(manifest.starts))]
    for begin in range(0, len(keys), 1_000):
        state.apply_batch(tenant, keys[begin : begin + 1_000])
    if manifest.ids:
        delete_numbered(state, tenant, manifest.number)


def delete_numbered(state: ScannerState, tenant: TenantId, number: int) -> None:
    """Delete every key below the number of a manifest, those of tasks that were repeated included."""
    for key in manifest_keys(state, tenant, number):
        state.apply_batch(tenant, [Delete(key)])


def manifest_keys(state: ScannerState, tenant: TenantId, number: int) -> Iterator[bytes]:
    """Yield the keys of a manifest, the head first, whether or not it was written to its end."""
    first, end = _head_key(number), _head_key(number) + b"0"  # the byte after the slash before a chunk's number
    while found := state.list_range(tenant, first, end, 1):
        yield found[0][0]
        first = found[0][0] + b"\0"


def read_rows(
    state: ScannerState, tenant: TenantId, manifest: Manifest, start: int, end: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows `[start, end)`, chunk by chunk, each with the number of its first row."""
    while start < end:
        at = manifest.chunk_of(start)
        (data,) = state.multi_get(tenant, [manifest.chunk_key(at)])
        if data is None:
            raise ManifestBroken(f"chunk {at} is gone")
        first = manifest.starts[at]
        chunk = _parse_chunk(data)
        part = chunk.slice(start - first, min(len(chunk), end - first) - (start - first))
        if not len(part):
            raise ManifestBroken(f"chunk {at} has fewer rows than the head says")
        yield start, part
        start += len(part)


def _parse_chunk(data: bytes) -> pa.Table:
    """Return the rows of a chunk, also of one that an older version wrote."""
    try:
        return parse_table(data, ROWS)
    except ManifestBroken:
        older = parse_table(data, _OLDER_ROWS)
    missing = (pa.nulls(len(older), kind) for kind in ROWS.types[len(_OLDER_ROWS) :])
    return pa.table([*older.columns, *missing], schema=ROWS)


def _chunks(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in order, in chunks that fit a value of the state."""
    for table in rechunked(rows, ROWS, CHUNK_ROWS):
        yield from _halved(table)


def _halved(table: pa.Table) -> Iterator[pa.Table]:
    if len(table) > 1 and table.nbytes > CHUNK_BYTES_MAX:
        middle = len(table) // 2
        yield from _halved(table.slice(0, middle))
        yield from _halved(table.slice(middle))
    else:
        yield table


def _head_key(number: int) -> bytes:
    return b"manifest/" + number.to_bytes(8, "big")


def _chunk_key(number: int, at: int) -> bytes:
    return _head_key(number) + b"/" + at.to_bytes(4, "big")


def format_chunk_key(number: int, named: int) -> bytes:
    """Return the key of a chunk that a task wrote: its id has eight bytes, and a counted chunk's number four."""
    return _head_key(number) + b"/" + named.to_bytes(8, "big")


def _format_head(manifest: Manifest) -> bytes:
    head = {
        "format": _FORMAT_OF_TASKS if manifest.ids else _FORMAT,
        "rows": manifest.rows,
        "bytes": manifest.bytes_listed,
        "starts": manifest.starts,
        "weights": manifest.weights,
        "bases": [base.hex() for base in manifest.bases],
    }
    return json.dumps({**head, "ids": manifest.ids} if manifest.ids else head).encode()


def _parse_head(number: int, data: bytes) -> Manifest:
    head = json.loads(data)
    if head.get("format") not in _FORMATS:
        raise ManifestBroken("it is of a later version")
    bases = tuple(PolicyHash(bytes.fromhex(base)) for base in head["bases"])
    return Manifest(
        number,
        head["rows"],
        head["bytes"],
        tuple(head["starts"]),
        tuple(head["weights"]),
        bases,
        tuple(head.get("ids", ())),
    )
