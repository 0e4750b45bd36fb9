"""The items that the last scan of each source listed.

Invariants: nothing is written; an item that several scans of a source listed counts once, as the latest of them saw it;
an item that the latest scan of the whole source did not list is gone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.detect.locations import Location, read_location
from strandline.findings.reports.values import SourceFacts as ReportSource
from strandline.findings.reports.values import UnfinishedFacts
from strandline.lazy_imports import deferred
from strandline.pipeline.identity import PolicyHash, StableItemId
from strandline.pipeline.reads import Observed
from strandline.scan.inventory import ITEMS, Inventory, SourceFacts, find_inventory, previous_finish, read_inventories
from strandline.scan.sources.git_repository import HISTORY, TREE
from strandline.scan.state import State
from strandline.scan.unfinished import UnfinishedScan, listed_items, reached, read_unfinished

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:  # it takes a tenth of the time of `strandline findings list`; a scan of one source never needs it
    pc = deferred("pyarrow.compute")

_KINDS = {"fs": "file"}
_IMAGE = "image"
_COLUMNS = pa.schema([ITEMS.field(name) for name in ("source", "item", "ovid", "path", "extra")])


@dataclass(frozen=True)
class ListedSource:
    """A source with its items (`item`, `ovid`, `path`, `extra`) and the policy of the scan that listed them."""

    source: ReportSource
    policy: PolicyHash
    finished_ns: int
    items: pa.Table
    previous_ns: int = 0
    """The end of the scan before: findings that became known later are new."""

    instance: bytes = b""
    view: str = ""
    is_part: bool = False

    @cached_property
    def ovids(self) -> frozenset[bytes]:
        """Return the object versions of the items."""
        return frozenset(self.items["ovid"].to_pylist()) - {None}

    def extras(self, ovids: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the data beside some object versions, of those that have any."""
        if not ovids or self.items["extra"].null_count == len(self.items):
            return {}
        rows = self.items.filter(pc.is_in(self.items["ovid"], value_set=pa.array(list(ovids), pa.binary(32))))
        pairs = zip(rows["ovid"].to_pylist(), rows["extra"].to_pylist(), strict=True)
        return {ovid: extra for ovid, extra in pairs if extra is not None}

    def without(self, others: "ListedSource") -> "ListedSource":
        """Return the source without the object versions that another one lists."""
        theirs = others.items["ovid"].combine_chunks()
        return replace(self, items=self.items.filter(pc.invert(pc.is_in(self.items["ovid"], value_set=theirs))))


def current_sources(state: State, inventories: Sequence[Inventory] | None = None) -> list[ListedSource]:
    """Return the sources of the last scans, or of some inventories, latest first.

    A scan of a part (one file of a folder, the staged files) adds to the last scan of the whole source. The work tree
    and the history of a repository are two views of it: neither hides what the other has. Nor does one image hide what
    another has at the same path.
    """
    whole: set[tuple[str, str]] = set()
    names: set[tuple[str, str]] = set()
    parts: set[tuple[str, str, str]] = set()
    later: dict[tuple[str, str], list[pa.Array]] = {}
    listed = []
    for inventory in inventories if inventories is not None else read_inventories(state.stores.state, state.tenant):
        new = [
            (number, facts)
            for number, facts in enumerate(inventory.sources)
            if (facts.instance, facts.view) not in whole
            and (facts.name, _view(facts)) not in names
            and not (facts.is_part and (facts.instance, facts.view, facts.name) in parts)
        ]
        whole |= {(facts.instance, facts.view) for facts in inventory.sources if not facts.is_part}
        names |= {(facts.name, facts.view) for facts in inventory.sources if facts.view and not facts.is_part}
        parts |= {(facts.instance, facts.view, facts.name) for facts in inventory.sources}
        if not new:
            continue
        items = pa.concat_tables(
            [_COLUMNS.empty_table()]
            + [part.select(_COLUMNS.names) for part in inventory.items(state.stores.state, state.tenant)]
        )
        for number, facts in new:
            rows = items if len(inventory.sources) == 1 else items.filter(pc.equal(items["source"], number))
            rows = rows.drop_columns("source")
            if facts.view != HISTORY:  # a path of a history has many versions, and a part has some of them
                # All images are one instance: another image hides nothing of one, and only a layer of both counts once.
                column = "ovid" if facts.tag == _IMAGE else "item"
                for known in later.setdefault((facts.instance, facts.view), []):
                    rows = rows.filter(pc.invert(pc.is_in(rows[column], value_set=known)))
                later[facts.instance, facts.view].append(rows[column].combine_chunks())
            before = inventory.started_ns if inventory.previous_ns is None else inventory.previous_ns
            listed.append(
                ListedSource(
                    *(_report_source(facts), inventory.policy, inventory.finished_ns, rows, before),
                    *(bytes.fromhex(facts.instance), facts.view, facts.is_part),
                )
            )
    return [_without_whole(one, listed) for one in listed]


def _view(facts: SourceFacts) -> str:
    """Return the view that a later scan of the same name would be; older versions stored none."""
    return facts.view or {"fs": TREE, "git": HISTORY}.get(facts.tag, "")


def _without_whole(one: ListedSource, listed: Sequence[ListedSource]) -> ListedSource:
    """Return a part of a history without the versions that the whole lists, which are judged in full."""
    if one.view == HISTORY and one.is_part:
        for other in listed:
            if (other.instance, other.view, other.policy) == (one.instance, HISTORY, one.policy) and not other.is_part:
                one = one.without(other)
    return one


@dataclass(frozen=True)
class OpenScan:
    """An unfinished scan: its sources, without items, and the items that it looks at with the numbers of those."""

    facts: UnfinishedFacts
    policy: PolicyHash
    sources: Sequence[ListedSource]
    items: Mapping[StableItemId, int]
    is_first: bool
    """Whether no scan of the same sources ever ended."""


def unfinished_scans(state: State, scans: Sequence[UnfinishedScan] | None = None) -> list[OpenScan]:
    """Return the unfinished scans of a state, or some of them."""
    stores, tenant = state.stores, state.tenant
    found = []
    for scan in read_unfinished(stores.state, tenant) if scans is None else scans:
        far = reached(stores, tenant, scan)
        inputs = bytes.fromhex(scan.inputs)
        before = previous_finish(stores.state, tenant, inputs, scan.sources)
        sources = [
            ListedSource(
                *(_report_source(one), scan.policy, 0, _COLUMNS.empty_table().drop_columns("source"), before),
                *(bytes.fromhex(one.instance), one.view, one.is_part),
            )
            for one in scan.sources
        ]
        items = {item: number for number, item in listed_items(stores, tenant, scan)}
        name = ", ".join(source.source.root or source.source.name for source in sources)
        facts = UnfinishedFacts(name, scan.started_ns, far.done, far.items)
        is_first = find_inventory(stores.state, tenant, inputs) is None
        found.append(OpenScan(facts, scan.policy, sources, items, is_first))
    return found


def location_of(row: Observed) -> Location:
    """Return the location that an observation was stored with."""
    return read_location(row.observation.location_display, row.observation.location_url)


def _report_source(facts: SourceFacts) -> ReportSource:
    """Return a source for reports; a name that is an absolute path is also its root."""
    kind = _KINDS.get(facts.tag, facts.tag)
    if not facts.name.startswith("/"):
        return ReportSource(kind, facts.name, facts.root)
    path = Path(facts.name)
    root = path.parent if kind == "file" and path.is_file() else path
    return ReportSource(kind, path.name or facts.name, facts.root or str(root))
