"""Inventories: the items that the last scan of some sources listed, for reports by path and for the next plan.

    inventories                                 digests of sources, 32 bytes each, the latest first
    inventory/<digest of the sources>           head: JSON, see `Inventory`
    inventory/<digest of the sources>/<u64 stamp><u32 n>    chunk n: an Arrow IPC stream (zstd) of `ITEMS`, but `item`

An item's id follows from its source and locator, and a path that is the locator is null: both are made again when a
chunk is read. Chunks of older versions have them.

Invariants: the chunks of a head exist: they are written before it, under a new stamp, and the old ones are deleted
after; an item of unknown version (it was not scanned) has no ovid. Two scans that end at once may
leave one of them out of the list until it is done again; its head is there.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.lazy_imports import deferred
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import (
    DIGEST_BYTES,
    ConnectorInstanceId,
    PolicyHash,
    TenantId,
    stable_item_ids,
)
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Delete, Put, ScannerState
from strandline.scan.arrow_chunks import format_table, parse_table, rechunked
from strandline.scan.errors import ManifestBroken
from strandline.scan.plan.ledger_facts import FACTS
from strandline.scan.plan.versions import DIGEST, LISTED
from strandline.scan.sources import Source
from strandline.scan.sources.row_index import Chunk

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:  # it takes a tenth of the time of a report
    pc = deferred("pyarrow.compute")

ITEMS = pa.schema(
    [
        ("item", DIGEST),
        ("ovid", DIGEST),
        pa.field("path", pa.binary(), nullable=False),
        *(LISTED.field(name) for name in ("source", "locator", "version", "size", "stat", "extra", "problem", "weak")),
        *FACTS,
    ]
)
"""An item as it was listed, with its columns of the ledger under the policy; see `LISTED` and `FACTS`.

`path` is the display path, in UTF-8 with bytes that are not as they are; `source` counts from 0. `stat` is kept only
where it vouches for the version. `item` is null in what a plan reads.
"""
_WRITTEN = pa.schema([("path", pa.binary()) if one.name == "path" else one for one in ITEMS if one.name != "item"])
_WITH_ITEMS = ITEMS.set(0, pa.field("item", DIGEST, nullable=False))
"""The columns of chunks: those that are written, and those of older versions."""

INVENTORIES_MAX = 4096
CHUNK_ROWS = 50_000
_INDEX = b"inventories"


@dataclass(frozen=True)
class SourceFacts:
    """A source of an inventory; one that `is_part` listed only some items of its instance.

    A repository has two views, `tree` and `history`, and paths below a `root`, if it has a work tree.
    """

    tag: str
    name: str
    instance: str
    is_part: bool = False
    view: str = ""
    root: str = ""


@dataclass(frozen=True)
class InventoryPart:
    """A part of a listing, by source and bounds (hex digits, None at the end), and where its rows are.

    A part of source None has the rows of all.
    """

    source: int | None
    start: str
    end: str | None
    rows: int
    stamp: int
    first: int
    chunks: int


@dataclass(frozen=True)
class Inventory:
    """The head of an inventory; `items` reads the rows."""

    inputs: str
    policy: PolicyHash
    finished_ns: int
    run_id: int | None
    sources: tuple[SourceFacts, ...]
    rows: int
    stamp: int
    chunks: int
    started_ns: int = 0
    previous_ns: int | None = None
    """The end of the scan before, 0 if this was the first; None in the head of an older version."""
    parts: tuple[InventoryPart, ...] = ()
    """The parts of a listing that tasks wrote, in order; `stamp` and `chunks` then say nothing."""

    def items(self, state: ScannerState, tenant: TenantId) -> Iterator[pa.Table]:
        """Yield the rows of `ITEMS`, chunk by chunk."""
        for key in self.chunk_keys():
            table = _read_chunk(state, tenant, key)
            if table is None:
                raise ManifestBroken("a chunk of an inventory is gone")
            yield self._with_items(table)

    def _with_items(self, table: pa.Table) -> pa.Table:
        """Return rows of `ITEMS` with the ids that their sources and locators have."""
        if not table["item"].null_count:
            return table
        numbers, items = table["source"].combine_chunks(), pa.nulls(len(table), DIGEST)
        for number in pc.unique(numbers).to_pylist():
            source, mine = self.sources[number], pc.equal(numbers, number)
            instance = ConnectorInstanceId(bytes.fromhex(source.instance))
            ids = stable_item_ids(source.tag, instance, table["locator"].filter(mine).combine_chunks())
            items = pc.replace_with_mask(items, mine, ids)
        return table.set_column(0, ITEMS.field("item"), items)

    def chunked(self, state: ScannerState, tenant: TenantId) -> list[Chunk]:
        """Return the rows of `ITEMS` as chunks that are read at first use, and may be gone by then."""
        return [chunk for part in self.stored_parts for chunk in self.chunks_of(part, state, tenant)]

    def chunks_of(self, part: InventoryPart, state: ScannerState, tenant: TenantId) -> list[Chunk]:
        """Return the rows of a part as chunks that are read at first use."""
        return [
            Chunk(max(0, min(CHUNK_ROWS, part.rows - at * CHUNK_ROWS)), partial(_read_chunk, state, tenant, key))
            for at, key in enumerate(self.keys_of(part))
        ]

    def chunk_keys(self) -> list[bytes]:
        """Return the keys of the chunks."""
        return [key for part in self.stored_parts for key in self.keys_of(part)]

    def keys_of(self, part: InventoryPart) -> list[bytes]:
        """Return the keys of the chunks of a part."""
        return [format_part_key(bytes.fromhex(self.inputs), part, at) for at in range(part.chunks)]

    @property
    def stored_parts(self) -> tuple[InventoryPart, ...]:
        """Return the parts; one with all rows where the driver wrote them."""
        return self.parts or (InventoryPart(None, "", None, self.rows, self.stamp, 0, self.chunks),)


def read_inventories(state: ScannerState, tenant: TenantId) -> list[Inventory]:
    """Return the inventory of each set of sources that was scanned, the latest first."""
    heads = state.multi_get(tenant, [_head_key(digest) for digest in _listed(state, tenant)])
    return [_parse_head(head) for head in heads if head is not None]


def find_inventory(state: ScannerState, tenant: TenantId, inputs: bytes) -> Inventory | None:
    """Return the inventory of some sources, or None."""
    (head,) = state.multi_get(tenant, [_head_key(inputs)])
    return None if head is None else _parse_head(head)


def previous_finish(state: ScannerState, tenant: TenantId, inputs: bytes, sources: Sequence[SourceFacts]) -> int:
    """Return when these sources were last scanned to the end, by themselves or as parts of whole ones; 0 for never."""
    views = {(one.instance, one.view) for one in sources}
    known = [
        one.finished_ns
        for one in read_inventories(state, tenant)
        if one.inputs == inputs.hex()
        or views <= {(each.instance, each.view) for each in one.sources if not each.is_part}
    ]
    return max(known, default=0)


def write_inventory(
    state: ScannerState, tenant: TenantId, head: Inventory, items: Iterable[pa.RecordBatch]
) -> Inventory:
    """Store the items of a scan in place of the last inventory of its sources."""
    before = find_inventory(state, tenant, bytes.fromhex(head.inputs))
    new = replace(head, stamp=secrets.randbits(63), chunks=0, rows=0, parts=())
    for chunk in rechunked(items, ITEMS, CHUNK_ROWS):
        new = replace(new, chunks=new.chunks + 1, rows=new.rows + len(chunk))
        state.apply_batch(tenant, [Put(new.chunk_keys()[-1], format_items(chunk))])
    touch_inventory(state, tenant, new)
    if before is not None:
        delete_chunks(state, tenant, before.chunk_keys())
    return new


def delete_chunks(state: ScannerState, tenant: TenantId, keys: Sequence[bytes]) -> None:
    """Delete chunks that no head has."""
    for begin in range(0, len(keys), BATCH_ROWS_MAX):
        state.apply_batch(tenant, [Delete(key) for key in keys[begin : begin + BATCH_ROWS_MAX]])


def keep_head(state: ScannerState, tenant: TenantId, head: Inventory, *, writer: WriteContext | None = None) -> None:
    """Store a head, after its chunks, without listing it."""
    state.apply_batch(tenant, [Put(_head_key(bytes.fromhex(head.inputs)), _format_head(head))], writer=writer)


def touch_inventory(
    state: ScannerState, tenant: TenantId, head: Inventory, *, writer: WriteContext | None = None
) -> None:
    """Store a head, after its chunks, and list it first."""
    inputs = bytes.fromhex(head.inputs)
    latest = [inputs, *(one for one in _listed(state, tenant) if one != inputs)]
    kept, dropped = latest[:INVENTORIES_MAX], latest[INVENTORIES_MAX:]
    puts = [Put(_head_key(inputs), _format_head(head)), Put(_INDEX, b"".join(kept))]
    state.apply_batch(tenant, puts, writer=writer)
    for old in (find_inventory(state, tenant, one) for one in dropped):
        if old is not None:
            gone = [_head_key(bytes.fromhex(old.inputs)), *old.chunk_keys()]
            delete_chunks(state, tenant, gone)


def source_facts(sources: Sequence[Source]) -> tuple[SourceFacts, ...]:
    """Return sources as an inventory names them."""
    return tuple(
        SourceFacts(
            *(one.tag, one.name, one.instance.hex(), one.is_part),
            *(getattr(one, "view", ""), getattr(one, "report_root", "")),
        )
        for one in sources
    )


def format_items(table: pa.Table) -> bytes:
    """Return rows of `ITEMS` as one chunk."""
    path = pc.if_else(pc.equal(table["path"], table["locator"]), pa.scalar(None, pa.binary()), table["path"])
    columns = {name: table[name] for name in _WRITTEN.names} | {"path": path}
    return format_table(pa.table([columns[name] for name in _WRITTEN.names], schema=_WRITTEN))


def parse_items(data: bytes) -> pa.Table:
    """Return the rows of a chunk, as `ITEMS`; `item` is null, but in chunks of older versions."""
    table = parse_table(data, _WRITTEN, _WITH_ITEMS)
    if table.schema == _WITH_ITEMS:
        return table.cast(ITEMS)
    columns = {name: table[name] for name in _WRITTEN.names}
    columns |= {"item": pa.nulls(len(table), DIGEST), "path": pc.coalesce(table["path"], table["locator"])}
    return pa.table([columns[name] for name in ITEMS.names], schema=ITEMS)


def _read_chunk(state: ScannerState, tenant: TenantId, key: bytes) -> pa.Table | None:
    (value,) = state.multi_get(tenant, [key])
    return None if value is None else parse_items(value)


def _listed(state: ScannerState, tenant: TenantId) -> list[bytes]:
    (value,) = state.multi_get(tenant, [_INDEX])
    data = value or b""
    return [data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES)]


def _head_key(inputs: bytes) -> bytes:
    return b"inventory/" + inputs


def format_part_key(inputs: bytes, part: InventoryPart, at: int) -> bytes:
    """Return the key of a chunk of a part."""
    return _head_key(inputs) + b"/" + part.stamp.to_bytes(8, "big") + (part.first + at).to_bytes(4, "big")


def _format_head(head: Inventory) -> bytes:
    sources = [vars(one) for one in head.sources]
    fields = {**vars(head), "policy": head.policy.hex(), "sources": sources}
    parts = {"parts": [list(vars(one).values()) for one in head.parts]} if head.parts else {}
    return json.dumps({**{name: value for name, value in fields.items() if name != "parts"}, **parts}).encode()


@lru_cache(maxsize=2)  # each part of a large scan reads the head, which names all parts
def _parse_head(data: bytes) -> Inventory:
    head = json.loads(data)
    sources = tuple(SourceFacts(**one) for one in head["sources"])
    parts = tuple(InventoryPart(*one) for one in head.pop("parts", ()))
    return Inventory(
        **{**head, "parts": parts, "policy": PolicyHash(bytes.fromhex(head["policy"])), "sources": sources}
    )
