"""What tasks of a large scan are told, and what they answer.

Invariant: everything here pickles, and its size does not depend on the number of items of a part.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from strandline.pipeline.ledger import LedgerRecord
from strandline.scan.inventory import InventoryPart
from strandline.scan.plan.ledger_facts import RowWriter
from strandline.scan.plan.planner import Plan, Reason
from strandline.scan.plan.read_versions import NoteRows
from strandline.scan.plan.rule_deltas import Base
from strandline.scan.run.manifest import Manifest, WrittenChunk
from strandline.scan.settle.sums import Sums
from strandline.scan.sources.listing_parts import ListingPart


@dataclass(frozen=True)
class NewRows:
    """Tells which rows of the ledger a scan wrote: those of its runs above the fences that shards had before."""

    fences: Mapping[int, Mapping[int, int]]

    def __call__(self, row: LedgerRecord | RowWriter) -> bool:
        """Return whether a row is new."""
        fences = self.fences.get(row.run_id)
        return fences is not None and row.fence > fences.get(row.shard_id, -1)


@dataclass(frozen=True)
class PlanTask:
    """A part to list and plan; `known` are the parts of the last inventory that may have its items."""

    source: int
    part: ListingPart
    known: tuple[InventoryPart, ...]
    manifest: int
    plan: int
    bases: tuple[Base, ...]
    parked: frozenset[bytes]
    is_new: NewRows
    tasks: int
    """The number of parts, which share the bounds of what a plan reads."""

    @property
    def is_aligned(self) -> bool:
        """Whether the last inventory has exactly this part."""
        return len(self.known) == 1 and bounds_of(self.known[0]) == (self.source, self.part)


@dataclass(frozen=True)
class PlannedPart:
    """A part that was planned: counts, and the ids of its chunks; one that is the same has its sums instead.

    One that was too large ended sooner, as its task's `part` says; `rest` are the parts of what is left of it.
    """

    task: PlanTask
    items: int
    todo_items: int
    todo_bytes: int
    counts: Mapping[Reason, int]
    left_out: Mapping[str, int]
    manifest: tuple[WrittenChunk, ...] = ()
    planned: tuple[int, ...] = ()
    sums: Sums | None = None
    rest: tuple[ListingPart, ...] = ()


@dataclass(frozen=True)
class PartedPlan(Plan):
    """A plan whose items are in chunks that tasks wrote."""

    parts: tuple[PlannedPart, ...] = field(repr=False)
    manifest: Manifest = field(repr=False)
    number: int
    """The number of its chunks."""

    @property
    def items(self) -> int:
        """Return the number of listed items."""
        return sum(part.items for part in self.parts)


@dataclass(frozen=True)
class SettleTask:
    """A planned part to settle, and the place of its inventory; `rows` are those of the manifest, None if unknown."""

    part: PlannedPart
    target: InventoryPart
    is_new: NewRows
    rows: NoteRows | None


def bounds_of(part: InventoryPart) -> tuple[int | None, ListingPart]:
    """Return the source and the bounds of a part of an inventory."""
    return part.source, ListingPart(bytes.fromhex(part.start), None if part.end is None else bytes.fromhex(part.end))


class KnownParts:
    """The parts of an inventory by their bounds: those of a source follow one another."""

    def __init__(self, parts: Sequence[InventoryPart]) -> None:
        self._of_all = tuple(one for one in parts if one.source is None)
        self._by_source: dict[int, list[tuple[ListingPart, InventoryPart]]] = {}
        for one in parts:
            if one.source is not None:
                self._by_source.setdefault(one.source, []).append((bounds_of(one)[1], one))

    def of(self, source: int, part: ListingPart, *, are_like: bool = True) -> tuple[InventoryPart, ...]:
        """Return the parts that may have items of a part; all of the source if bounds are not alike."""
        mine = self._by_source.get(source, [])
        if are_like:
            first = max(0, bisect_left(mine, part.start, key=_start) - 1)
            end = len(mine) if part.end is None else bisect_left(mine, part.end, key=_start)
            mine = [(bounds, one) for bounds, one in mine[first:end] if bounds.overlaps(part)]
        return (*self._of_all, *(one for _, one in mine))


def _start(known: tuple[ListingPart, InventoryPart]) -> bytes:
    return known[0].start
