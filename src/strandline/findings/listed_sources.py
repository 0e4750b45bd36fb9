"""The items that the last scan of each source listed.

Invariants: nothing is written; an item that several scans of a source listed counts once, as the latest of them saw it;
an item that the latest scan of the whole source did not list is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.detect.locations import Location, read_location
from strandline.findings.reports.values import SourceFacts, UnfinishedFacts
from strandline.lazy_imports import deferred
from strandline.pipeline.identity import PolicyHash, StableItemId
from strandline.pipeline.reads import Observed
from strandline.scan.inventory import ITEMS, Inventory, find_inventory, previous_finish, read_inventories
from strandline.scan.sources.git_history import Seen, parse_seen
from strandline.scan.sources.source import path_text
from strandline.scan.state import State
from strandline.scan.unfinished import UnfinishedScan, listed_items, reached, read_unfinished

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:  # it takes a tenth of the time of `strandline findings list`; a scan of one source never needs it
    pc = deferred("pyarrow.compute")

_KINDS = {"fs": "file"}
_COLUMNS = pa.schema([ITEMS.field(name) for name in ("source", "item", "ovid", "path", "extra")])


@dataclass(frozen=True)
class ListedSource:
    """A source with its items (`item`, `ovid`, `path`, `extra`) and the policy of the scan that listed them."""

    source: SourceFacts
    policy: PolicyHash
    finished_ns: int
    items: pa.Table
    previous_ns: int = 0
    """The end of the scan before: findings that became known later are new."""

    @cached_property
    def _extras(self) -> dict[bytes, bytes | None]:
        return dict(zip(self.items["ovid"].to_pylist(), self.items["extra"].to_pylist(), strict=True))

    @cached_property
    def ovids(self) -> frozenset[bytes]:
        """Return the object versions of the items."""
        return frozenset(self.items["ovid"].to_pylist()) - {None}

    def located(self, row: Observed) -> Location:
        """Return the location of a finding; a blob that was staged when it was scanned gets its later commit."""
        at = location_of(row)
        extra = self._extras.get(row.observation.ovid) if at.source == "git" and not at.commit else None
        places = [place for place in parse_seen(extra).places if place.commit] if extra else []
        same = [place for place in places if path_text(place.path) == at.path]
        return replace(at, commit=(same or places)[0].commit) if places else at


def current_sources(state: State, inventories: Sequence[Inventory] | None = None) -> list[ListedSource]:
    """Return the sources of the last scans, or of some inventories, latest first.

    A scan of a part (one file of a folder, the staged files) adds to the last scan of the whole source.
    """
    whole: set[str] = set()
    parts: set[tuple[str, str]] = set()
    later: dict[str, list[pa.Array]] = {}
    listed = []
    for inventory in inventories if inventories is not None else read_inventories(state.stores.state, state.tenant):
        new = [
            (number, facts)
            for number, facts in enumerate(inventory.sources)
            if facts.instance not in whole and not (facts.is_part and (facts.instance, facts.name) in parts)
        ]
        whole |= {facts.instance for facts in inventory.sources if not facts.is_part}
        parts |= {(facts.instance, facts.name) for facts in inventory.sources}
        if not new:
            continue
        items = pa.concat_tables(
            [_COLUMNS.empty_table()]
            + [part.select(_COLUMNS.names) for part in inventory.items(state.stores.state, state.tenant)]
        )
        for number, facts in new:
            rows = items if len(inventory.sources) == 1 else items.filter(pc.equal(items["source"], number))
            rows = rows.drop_columns("source")
            for known in later.setdefault(facts.instance, []):
                rows = rows.filter(pc.invert(pc.is_in(rows["item"], value_set=known)))
            later[facts.instance].append(rows["item"].combine_chunks())
            source = _report_source(facts.tag, facts.name)
            before = inventory.started_ns if inventory.previous_ns is None else inventory.previous_ns
            listed.append(ListedSource(source, inventory.policy, inventory.finished_ns, rows, before))
    return listed


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
                _report_source(one.tag, one.name), scan.policy, 0, _COLUMNS.empty_table().drop_columns("source"), before
            )
            for one in scan.sources
        ]
        items = {item: number for number, item in listed_items(stores, tenant, scan)}
        name = ", ".join(source.source.root or source.source.name for source in sources)
        facts = UnfinishedFacts(name, scan.started_ns, far.done, far.items)
        is_first = find_inventory(stores.state, tenant, inputs) is None
        found.append(OpenScan(facts, scan.policy, sources, items, is_first))
    return found


def git_places(state: State, item: StableItemId) -> Seen | None:
    """Return the commits and paths of a blob, from the last scan that listed it; None for any other item."""
    for inventory in read_inventories(state.stores.state, state.tenant):
        if any(source.tag == "git" for source in inventory.sources):
            for items in inventory.items(state.stores.state, state.tenant):
                extras = items.filter(pc.equal(items["item"], pa.scalar(item, pa.binary(32))))["extra"].to_pylist()
                if extras and extras[0]:
                    return parse_seen(extras[0])
    return None


def location_of(row: Observed) -> Location:
    """Return the location that an observation was stored with."""
    return read_location(row.observation.location_display, row.observation.location_url)


def _report_source(tag: str, name: str) -> SourceFacts:
    """Return a source for reports; a name that is an absolute path is also its root."""
    kind = _KINDS.get(tag, tag)
    if not name.startswith("/"):
        return SourceFacts(kind, name)
    path = Path(name)
    root = path.parent if kind == "file" and path.is_file() else path
    return SourceFacts(kind, path.name or name, str(root))
