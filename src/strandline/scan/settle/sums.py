"""Sums of a scan's outcome: over the batches of a plan, and over the parts of a large one.

Invariants: sums pickle, and those of parts, added in their order, are those of the whole; adding needs one batch in
memory at a time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.stores import Stores
from strandline.scan.commit_facts import keep_commit_facts
from strandline.scan.inventory import ITEMS
from strandline.scan.plan.ledger_facts import FACTS
from strandline.scan.plan.planner import IsNew
from strandline.scan.plan.versions import LISTED
from strandline.scan.request import ScanRequest
from strandline.scan.settle.recheck import Rechecked, recheck
from strandline.scan.source_visibility import Unread
from strandline.scan.sources import GitSource, StatCache
from strandline.scan.sources.git_revisions import authors

PROBLEMS_MAX = 1_000
_GAPS = ("members_skipped", "decodes_skipped", "findings_dropped")


@dataclass(frozen=True)
class ItemNote:
    """An incomplete item, and the reason."""

    path: str
    code: str


@dataclass
class Sums:
    """Sums over items: by status and code, of bytes and gaps; ledger keys of items with findings, and some problems."""

    statuses: Counter[int] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    unseen: int = 0
    incomplete: int = 0
    bytes_seen: int = 0
    new_items: int = 0
    new_bytes: int = 0
    gaps: list[int] = field(default_factory=lambda: [0] * len(_GAPS))
    notes: list[ItemNote] = field(default_factory=list)
    found: list[pa.Array] = field(default_factory=list)
    unread: defaultdict[int, Unread] = field(default_factory=lambda: defaultdict(Unread))

    def merge(self, other: "Sums") -> None:
        """Add the sums of other items, which come after these."""
        self.statuses.update(other.statuses)
        self.codes.update(other.codes)
        for name in ("unseen", "incomplete", "bytes_seen", "new_items", "new_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.gaps = [one + more for one, more in zip(self.gaps, other.gaps, strict=True)]
        self.notes += other.notes[: PROBLEMS_MAX - len(self.notes)]
        self.found += other.found
        for number, unread in other.unread.items():
            self.unread[number].merge(unread)


class Summing:
    """Adds up the batches of a plan after its run."""

    def __init__(self, stores: Stores, request: ScanRequest, cache: StatCache, is_new: IsNew) -> None:
        self._stores = stores
        self._request = request
        self._cache = cache
        self._is_new = is_new
        self.sums = Sums()

    def added(self, planned: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the inventory keeps of a plan, batch by batch, each added up."""
        for batch in planned:
            yield _inventory_rows(self._request, self.add(batch))

    def add(self, batch: pa.RecordBatch) -> Rechecked:
        """Add up a batch of a plan, and return it with what the run brought."""
        rechecked = recheck(self._stores, self._request, batch, self._cache, self._is_new)
        self._add(batch, rechecked)
        return rechecked

    def _add(self, batch: pa.RecordBatch, rechecked: Rechecked) -> None:
        sums, (listed, facts, is_new) = self.sums, rechecked
        for entry in pc.value_counts(facts["status"].drop_null()).to_pylist():
            sums.statuses[entry["values"]] += entry["counts"]
        for entry in pc.value_counts(facts["code"].drop_null()).to_pylist():
            sums.codes[entry["values"]] += entry["counts"]
        with_gaps = _with_gaps(facts)
        sums.unseen += facts["status"].null_count
        sums.incomplete += with_gaps.true_count
        sums.bytes_seen += pc.sum(facts["bytes_seen"]).as_py() or 0
        sums.gaps = [total + (pc.sum(facts[name]).as_py() or 0) for total, name in zip(sums.gaps, _GAPS, strict=True)]
        sums.new_items += is_new.true_count
        sums.new_bytes += pc.sum(facts["bytes_seen"].filter(is_new)).as_py() or 0
        has_findings = pc.equal(facts["status"], int(DoneStatus.SCANNED_WITH_FINDINGS))
        if pc.any(has_findings).as_py():
            sums.found.append(listed["ovid"].filter(has_findings))
            source = self._request.sources[listed["source"][0].as_py()]
            if isinstance(source, GitSource):
                extras = listed["extra"].filter(has_findings).to_pylist()
                find = partial(authors, source.git)
                keep_commit_facts(self._stores.state, self._request.tenant, source.instance, extras, find)
        if len(sums.notes) < PROBLEMS_MAX:
            sums.notes += _notes(self._request, listed, facts, with_gaps, PROBLEMS_MAX - len(sums.notes))
        tried = pc.and_(batch["pending"], pc.is_null(batch["problem"]))
        if tried.true_count:
            sums.unread[listed["source"][0].as_py()].add(listed.filter(tried), facts["code"].filter(tried))


def _with_gaps(facts: pa.RecordBatch) -> pa.Array:
    scanned = pc.greater_equal(facts["status"], int(DoneStatus.SCANNED_PARTIAL))
    gaps = pc.add(pc.add(facts[_GAPS[0]], facts[_GAPS[1]]), facts[_GAPS[2]])
    return pc.coalesce(pc.and_(scanned, pc.greater(gaps, 0)), pa.scalar(value=False))


def _notes(
    request: ScanRequest, listed: pa.RecordBatch, facts: pa.RecordBatch, with_gaps: pa.Array, most: int
) -> list[ItemNote]:
    """Return the first incomplete items."""
    troubled = pc.or_(pc.or_(pc.is_null(facts["status"]), pc.is_valid(facts["code"])), with_gaps)
    places = pc.indices_nonzero(troubled).slice(0, most)
    rows = zip(
        *(listed[name].take(places).to_pylist() for name in ("source", "locator", "extra")),
        *(facts[name].take(places).to_pylist() for name in ("status", "code")),
        strict=True,
    )
    return [
        ItemNote(request.sources[number].display(locator, extra), code or ("NOT_SEEN" if status is None else "GAPS"))
        for number, locator, extra, status, code in rows
    ]


def _inventory_rows(request: ScanRequest, rechecked: Rechecked) -> pa.RecordBatch:
    listed, facts, _ = rechecked
    columns = {name: listed[name] for name in LISTED.names} | {name: facts[name] for name in FACTS.names}
    columns["stat"] = pc.if_else(listed["is_sure"], listed["stat"], pa.scalar(None, pa.binary()))
    columns["path"] = _paths(request, listed)
    return pa.record_batch([columns[name] for name in ITEMS.names], ITEMS)


def _paths(request: ScanRequest, listed: pa.RecordBatch) -> pa.Array:
    """Return the display paths of items of one source; those of many sources are their locators."""
    source = request.sources[listed["source"][0].as_py()]
    if getattr(source, "displays_locator", False):
        return listed["locator"]
    names = zip(listed["locator"].to_pylist(), listed["extra"].to_pylist(), strict=True)
    paths = [source.display(locator, extra).encode(errors="surrogateescape") for locator, extra in names]
    return pa.array(paths, pa.binary())
