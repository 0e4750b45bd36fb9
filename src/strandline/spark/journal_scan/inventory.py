"""The inventory of streaming scans of a journal, by which results are shown as of any scan.

A bounded scan writes its inventory when it ends. A stream need not end: each batch adds the parts that it is about
to commit to the last chunk, or begins another, and then the page is committed. Rows beyond the cursor were never
committed, and go when the next scan begins. All is written under the fence of the stream's shard.

Invariants: committed parts are in the inventory; an inventory is listed once the stream has reached where the journal
ended when it was first begun, so that a policy that is still catching up hides nothing of what an older one found.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from strandline.pipeline.identity import VersionKind
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Delete, Put, ScannerState
from strandline.protocol.canonical import derive
from strandline.scan.inventory import (
    ITEMS,
    Inventory,
    SourceFacts,
    find_inventory,
    format_items,
    keep_head,
    touch_inventory,
)
from strandline.scan.plan.versions import ovids_of
from strandline.scan.request import ScanRequest
from strandline.scan.sources import JournalSource
from strandline.scan.sources.journals import BLOCK_OFFSETS, format_block
from strandline.spark.journal_scan.blocks import BlockPart

CHUNK_ROWS = 1_000


def inventory_digest(request: ScanRequest) -> bytes:
    """Return the name of the inventory of the streaming scans of a request."""
    return derive("strandline/stream-inventory/v1", request.digest)


class StreamInventory:
    """The inventory of one stream of a journal."""

    def __init__(
        self,
        state: ScannerState,
        request: ScanRequest,
        source: JournalSource,
        writer: WriteContext,
        *,
        begin: int,
        done: int,
        end: int,
    ) -> None:
        """Take up what the last scan left, of a journal that has the offsets [begin, end): those below `done` are."""
        self._state = state
        self._tenant = request.tenant
        self._writer = writer
        self._source = source
        inputs = inventory_digest(request)
        facts = SourceFacts(source.tag, source.name, source.instance.hex(), is_part=True)
        new = Inventory(inputs.hex(), request.policy_hash, 0, None, (facts,), 0, 0, 0, time.time_ns())
        known = find_inventory(state, request.tenant, inputs) or new
        self._listed_from = begin if known.finished_ns else end
        self._head = replace(known, stamp=secrets.randbits(63), rows=0, chunks=0)
        self._last = ITEMS.empty_table()
        self._take_over(known, begin, done)

    def add(self, parts: Sequence[BlockPart]) -> None:
        """Keep parts that are about to be committed."""
        self._append(_rows(self._source, parts))
        self._keep_head(parts[-1].next)

    def _take_over(self, known: Inventory, begin: int, done: int) -> None:
        """Drop parts that were never committed or that retention removed; write the rest into new chunks."""
        for rows in known.items(self._state, self._tenant):
            is_kept = [begin < next_ <= done for next_ in map(_next_of, rows["version"].to_pylist())]
            self._append(rows.filter(pa.array(is_kept, pa.bool_())))
        self._keep_head(done)
        self._state.apply_batch(self._tenant, [Delete(key) for key in known.chunk_keys()], writer=self._writer)

    def _append(self, rows: pa.Table) -> None:
        """Put rows behind those of the last chunk, and into new ones where it is full."""
        whole = pa.concat_tables([self._last, rows])
        before = self._head.chunks - bool(len(self._last))
        parts = [whole.slice(at, CHUNK_ROWS) for at in range(0, len(whole), CHUNK_ROWS)]
        self._head = replace(self._head, rows=self._head.rows + len(rows), chunks=before + len(parts))
        for key, part in zip(self._head.chunk_keys()[before:], parts, strict=True):
            put = Put(key, format_items(part.combine_chunks()))
            self._state.apply_batch(self._tenant, [put], writer=self._writer)
        self._last = parts[-1] if parts else self._last

    def _keep_head(self, offset: int) -> None:
        """Write the head, whose chunks are there; list it once everything that was there at the beginning is done."""
        if offset < self._listed_from:
            keep_head(self._state, self._tenant, self._head, writer=self._writer)
            return
        self._head = replace(self._head, finished_ns=time.time_ns())
        touch_inventory(self._state, self._tenant, self._head, writer=self._writer)


def _rows(source: JournalSource, parts: Sequence[BlockPart]) -> pa.Table:
    """Return parts as rows of an inventory."""
    locators = [format_block(part.first // BLOCK_OFFSETS) for part in parts]
    versions = [source.version(part.first, part.next) for part in parts]
    items = [part.item(source).item for part in parts]
    columns = {
        "item": items,
        "ovid": ovids_of(items, versions, VersionKind.STRONG),
        "path": [source.display(locator, None).encode(errors="surrogateescape") for locator in locators],
        "source": [0] * len(parts),
        "locator": locators,
        "version": versions,
        "size": [part.sums["bytes"] for part in parts],
        "weak": [False] * len(parts),
    }
    nothing = [None] * len(parts)
    arrays = [pa.array(columns.get(field.name, nothing), field.type) for field in ITEMS]
    return pa.Table.from_arrays(arrays, schema=ITEMS)


def _next_of(version: bytes) -> int:
    """Return the offset after the last of a part, from its version."""
    return int(version.split(b":")[2])
