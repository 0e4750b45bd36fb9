"""Versions that workers read, stored with each page until the inventory of the scan holds them.

    vouched/<inputs digest><u64 run><u64 row><u64 fence><u16 part>    an Arrow IPC stream (zstd) of `VOUCHED`

A page leaves one note (more, if it is large) of the files it read whose stat data vouch for their versions, and an
empty one where it read only others; `row` is the row of the manifest after its last. The end of a scan gathers the
versions from the notes, keeps them in the inventory, and forgets the notes then. A scan that was stopped before finds
them when it plans.

Invariants: a note is durable before its page is committed; notes are read before the inventory, and forgotten after it
is written, so that a reader of both finds one; an unreadable note is ignored.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import DIGEST_BYTES, TenantId
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Delete, Put, ScannerState
from strandline.pipeline.stores import Stores
from strandline.protocol.errors import RunNotFound
from strandline.protocol.shards import RunKey
from strandline.scan.arrow_chunks import format_table, parse_table
from strandline.scan.errors import ManifestBroken
from strandline.scan.inventory import ITEMS, Inventory
from strandline.scan.request import ScanRequest
from strandline.scan.sources import VOUCHED, StatCache
from strandline.scan.sources.row_index import Chunk, RowIndex
from strandline.scan.sources.stat_cache import Lookup

PART_ROWS_MAX = 2_000
PAGE_ROWS_MAX = 8_000
"""The rows of a page: a note stands at the end of its page, which may be so far behind its first row."""
_NOTES_AT_ONCE = 32
_PREFIX = b"vouched/"
_RUN_AT = len(_PREFIX) + DIGEST_BYTES


class ReadVersions(NamedTuple):
    """The notes of some sources: their keys, and their rows in compressed chunks."""

    keys: Sequence[bytes]
    chunks: Sequence[Chunk]


def read_version_puts(inputs: bytes, writer: WriteContext, row: int, files: pa.Table) -> list[Put]:
    """Return the writes that store the notes of a page that ends before a row."""
    begin = _begin(inputs) + b"".join(number.to_bytes(8, "big") for number in (writer.run_id, row, writer.fence))
    parts = range(0, max(len(files), 1), PART_ROWS_MAX)
    return [
        Put(begin + number.to_bytes(2, "big"), format_table(files.slice(at, PART_ROWS_MAX)))
        for number, at in enumerate(parts)
    ]


class NoteRows(NamedTuple):
    """Rows of the manifest of a run."""

    run_id: int
    start: int
    end: int


def load_read_versions(
    state: ScannerState, tenant: TenantId, inputs: bytes, rows: NoteRows | None = None
) -> ReadVersions:
    """Return all notes of some sources; with `rows`, those of pages of some rows of a run."""
    first, end = _begin(inputs), _begin(inputs) + b"\xff" * 27
    if rows is not None:
        begin = first + rows.run_id.to_bytes(8, "big")
        first = begin + (rows.start + 1).to_bytes(8, "big")
        end = begin + (rows.end + PAGE_ROWS_MAX + 1).to_bytes(8, "big")
    keys: list[bytes] = []
    chunks: list[Chunk] = []
    while page := state.list_range(tenant, first, end, _NOTES_AT_ONCE):
        keys += [key for key, _ in page]
        for _, value in page:
            with suppress(ManifestBroken):
                chunks.append(Chunk(len(parse_table(value, VOUCHED)), partial(parse_table, value, VOUCHED)))
        first = keys[-1] + b"\0"
    return ReadVersions(keys, chunks)


def read_version_keys(state: ScannerState, tenant: TenantId, inputs: bytes) -> list[bytes]:
    """Return the keys of all notes of some sources."""
    first, end = _begin(inputs), _begin(inputs) + b"\xff" * 27
    keys: list[bytes] = []
    while page := state.list_range(tenant, first, end, _NOTES_AT_ONCE):
        keys += [key for key, _ in page]
        first = keys[-1] + b"\0"
    return keys


def delete_read_versions(stores: Stores, request: ScanRequest, keys: Iterable[bytes]) -> None:
    """Delete the notes of runs that are over; other runs still need theirs."""
    over: dict[int, bool] = {}
    gone: list[Delete] = []
    for key in keys:
        run = int.from_bytes(key[_RUN_AT : _RUN_AT + 8], "big")
        if run not in over:
            over[run] = _is_over(stores, RunKey(request.tenant, run))
        if over[run]:
            gone.append(Delete(key))
    for begin in range(0, len(gone), 1_000):
        stores.state.apply_batch(request.tenant, gone[begin : begin + 1_000])


def stat_cache(notes: ReadVersions, inventory: RowIndex) -> StatCache:
    """Return a cache of versions by stat data, from notes and an inventory."""
    lookups: list[Lookup] = [] if not len(inventory) else [partial(_of_inventory, inventory)]
    if notes.chunks:
        lookups.append(RowIndex(VOUCHED, notes.chunks).rows)
    return StatCache(lookups)


def _of_inventory(inventory: RowIndex, number: int, locators: pa.Array) -> pa.Table:
    items = inventory.rows(number, locators)
    vouches = pc.and_(pc.and_(pc.is_valid(items["stat"]), pc.is_valid(items["version"])), pc.invert(items["weak"]))
    columns = [pc.if_else(vouches, items[name], pa.scalar(None, items[name].type)) for name in VOUCHED.names]
    return pa.table(columns, VOUCHED.names)


def inventory_index(inventory: Inventory | None, state: ScannerState, tenant: TenantId) -> RowIndex:
    """Return the rows of an inventory; chunks that another scan replaced meanwhile are missing."""
    chunks = [] if inventory is None else inventory.chunked(state, tenant)
    return RowIndex(ITEMS, chunks, is_unique=True)


def _is_over(stores: Stores, run: RunKey) -> bool:
    """Return whether a run is over; a run with only parked shards left counts as over."""
    try:
        return stores.coordinator.get_run(run).over or not stores.coordinator.progress(run).active
    except RunNotFound:
        return True


def _begin(inputs: bytes) -> bytes:
    return _PREFIX + inputs
