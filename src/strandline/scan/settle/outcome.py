"""The outcome of a scan: the ledger rows and the findings of every listed item.

Invariants: only durable rows count, never messages of workers; an item without a row counts as not scanned, never as
clean. Settling again gives the same outcome.
"""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import ObservationId, OvidHash, PolicyHash
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.pages import Gaps
from strandline.pipeline.reads import Observed
from strandline.pipeline.stores import Stores
from strandline.scan.commit_facts import keep_commit_facts
from strandline.scan.inventory import (
    ITEMS,
    Inventory,
    find_inventory,
    previous_finish,
    source_facts,
    touch_inventory,
    write_inventory,
)
from strandline.scan.owner_rules import keep_owner_rules
from strandline.scan.plan.ledger_facts import FACTS
from strandline.scan.plan.planner import IsNew, Plan, Reason
from strandline.scan.plan.read_versions import delete_read_versions, inventory_index, load_read_versions, stat_cache
from strandline.scan.plan.versions import LISTED
from strandline.scan.request import ScanRequest
from strandline.scan.run.progress import Progress
from strandline.scan.run.totals import Totals
from strandline.scan.settle.recheck import Rechecked, recheck
from strandline.scan.source_visibility import Unread
from strandline.scan.sources import FileSource, GitSource, StatCache
from strandline.scan.sources.git_revisions import authors

PROBLEMS_MAX = 1_000
_GAPS = ("members_skipped", "decodes_skipped", "findings_dropped")


@dataclass(frozen=True)
class ItemNote:
    """An incomplete item, and the reason."""

    path: str
    code: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a scan: `unseen` items were listed and not scanned; `incomplete` ones have gaps."""

    policy: PolicyHash = field(repr=False)
    items: int
    statuses: Mapping[DoneStatus, int]
    codes: Mapping[str, int]
    unseen: int
    incomplete: int
    bytes_seen: int
    gaps: Gaps
    left_out: Mapping[str, int]
    reasons: Mapping[Reason, int]
    notes: Sequence[ItemNote] = field(repr=False)
    read_findings: Callable[[], Sequence[Observed]] = field(repr=False)
    parked_shards: int = 0
    progress: Progress | None = None
    """Progress of the last run, of all its workers."""
    worked: Totals = field(default_factory=Totals)
    """Counts and times of the runs of this scan, from their cursors."""
    new_items: int = 0
    new_bytes: int = 0
    """Items and bytes in the ledger that runs of this scan wrote since it began."""
    unread: Mapping[int, Unread] = field(default_factory=dict, repr=False)

    @cached_property
    def findings(self) -> Sequence[Observed]:
        """Findings in all listed items; read at first use."""
        return self.read_findings()

    @property
    def is_whole(self) -> bool:
        """Return whether every listed item was scanned completely."""
        seen = sum(count for status, count in self.statuses.items() if status.is_scanned)
        return seen == self.items and not self.incomplete


def settle(
    stores: Stores,
    request: ScanRequest,
    plan: Plan,
    *,
    run_id: int | None,
    started_ns: int,
    is_new: IsNew,
) -> Outcome:
    """Ask the ledger about every listed item, store the inventory, and return the outcome."""
    notes = load_read_versions(stores.state, request.tenant, request.inputs_digest)
    before = find_inventory(stores.state, request.tenant, request.inputs_digest)
    cache = stat_cache(notes, inventory_index(before, stores.state, request.tenant))
    sums = _Sums(stores, request, cache, is_new)
    keep_owner_rules(stores.state, request.tenant, request.sources)
    _keep_inventory(stores, request, plan, sums.added(plan), run_id, started_ns)
    delete_read_versions(stores, request, notes.keys)
    return Outcome(
        policy=request.policy_hash,
        items=plan.items,
        statuses={DoneStatus(status): count for status, count in sorted(sums.statuses.items())},
        codes=sums.codes,
        unseen=sums.unseen,
        incomplete=sums.incomplete,
        bytes_seen=sums.bytes_seen,
        gaps=Gaps(*sums.gaps),
        left_out=plan.left_out,
        reasons=plan.counts,
        notes=sums.notes,
        read_findings=partial(_read_findings, request, sums.found),
        new_items=sums.new_items,
        new_bytes=sums.new_bytes,
        unread=sums.unread,
    )


class _Sums:
    """Sums over the batches of a plan."""

    def __init__(self, stores: Stores, request: ScanRequest, cache: StatCache, is_new: IsNew) -> None:
        self._stores = stores
        self._request = request
        self._cache = cache
        self._is_new = is_new
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[str] = Counter()
        self.unseen = self.incomplete = self.bytes_seen = self.new_items = self.new_bytes = 0
        self.gaps = [0] * len(_GAPS)
        self.notes: list[ItemNote] = []
        self.found: list[pa.Array] = []
        self.unread: defaultdict[int, Unread] = defaultdict(Unread)

    def added(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        """Yield what the inventory keeps of a plan, batch by batch, each added up."""
        for batch in plan.planned:
            rechecked = recheck(self._stores, self._request, batch, self._cache, self._is_new)
            self._add(batch, rechecked)
            yield _inventory_rows(self._request, rechecked)

    def _add(self, batch: pa.RecordBatch, rechecked: Rechecked) -> None:
        listed, facts, is_new = rechecked
        for entry in pc.value_counts(facts["status"].drop_null()).to_pylist():
            self.statuses[entry["values"]] += entry["counts"]
        for entry in pc.value_counts(facts["code"].drop_null()).to_pylist():
            self.codes[entry["values"]] += entry["counts"]
        with_gaps = _with_gaps(facts)
        self.unseen += facts["status"].null_count
        self.incomplete += with_gaps.true_count
        self.bytes_seen += pc.sum(facts["bytes_seen"]).as_py() or 0
        self.gaps = [total + (pc.sum(facts[name]).as_py() or 0) for total, name in zip(self.gaps, _GAPS, strict=True)]
        self.new_items += is_new.true_count
        self.new_bytes += pc.sum(facts["bytes_seen"].filter(is_new)).as_py() or 0
        has_findings = pc.equal(facts["status"], int(DoneStatus.SCANNED_WITH_FINDINGS))
        if pc.any(has_findings).as_py():
            self.found.append(listed["ovid"].filter(has_findings))
            source = self._request.sources[listed["source"][0].as_py()]
            if isinstance(source, GitSource):
                extras = listed["extra"].filter(has_findings).to_pylist()
                find = partial(authors, source.git)
                keep_commit_facts(self._stores.state, self._request.tenant, source.instance, extras, find)
        if len(self.notes) < PROBLEMS_MAX:
            self.notes += _notes(self._request, listed, facts, with_gaps, PROBLEMS_MAX - len(self.notes))
        tried = pc.and_(batch["pending"], pc.is_null(batch["problem"]))
        if tried.true_count:
            self.unread[listed["source"][0].as_py()].add(listed.filter(tried), facts["code"].filter(tried))


def _with_gaps(facts: pa.RecordBatch) -> pa.Array:
    scanned = pc.greater_equal(facts["status"], int(DoneStatus.SCANNED_PARTIAL))
    gaps = pc.add(pc.add(facts[_GAPS[0]], facts[_GAPS[1]]), facts[_GAPS[2]])
    return pc.coalesce(pc.and_(scanned, pc.greater(gaps, 0)), pa.scalar(value=False))


def _read_findings(request: ScanRequest, ovids: Sequence[pa.Array]) -> list[Observed]:
    """Return the observations in object versions."""
    if not ovids:
        return []
    found: list[Observed] = []
    with request.open_stores() as stores:
        for some in ovids:
            for begin in range(0, len(some), BATCH_ROWS_MAX):
                found += _observed(stores, request, some.slice(begin, BATCH_ROWS_MAX).to_pylist())
    return found


def _observed(stores: Stores, request: ScanRequest, ovids: list[OvidHash]) -> Iterator[Observed]:
    after: ObservationId | None = None
    while page := stores.reads.observed(request.tenant, request.policy_hash, ovids, after=after):
        yield from page
        after = page[-1].observation.observation_id
        if len(page) < BATCH_ROWS_MAX:
            break


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


def _keep_inventory(
    stores: Stores,
    request: ScanRequest,
    plan: Plan,
    items: Iterator[pa.RecordBatch],
    run_id: int | None,
    started_ns: int,
) -> None:
    """Store the listing and the outcome of each item; consumes `items`."""
    state, tenant = stores.state, request.tenant
    known = find_inventory(state, tenant, request.inputs_digest)
    sources = source_facts(request.sources)
    head = Inventory(
        request.inputs_digest.hex(),
        request.policy_hash,
        time.time_ns(),
        run_id,
        sources,
        plan.items,
        known.stamp if known else 0,
        known.chunks if known else 0,
        started_ns,
        previous_finish(state, tenant, request.inputs_digest, sources),
    )
    if plan.is_same and known is not None and known.policy == head.policy:  # no scan ran under another one meanwhile
        deque(items, maxlen=0)
        touch_inventory(state, tenant, head)
        return
    write_inventory(state, tenant, head, items)


def _inventory_rows(request: ScanRequest, rechecked: Rechecked) -> pa.RecordBatch:
    listed, facts, _ = rechecked
    columns = {name: listed[name] for name in LISTED.names} | {name: facts[name] for name in FACTS.names}
    columns["stat"] = pc.if_else(listed["is_sure"], listed["stat"], pa.scalar(None, pa.binary()))
    columns["path"] = _paths(request, listed)
    return pa.record_batch([columns[name] for name in ITEMS.names], ITEMS)


def _paths(request: ScanRequest, listed: pa.RecordBatch) -> pa.Array:
    """Return the display paths of items of one source; those of files are their locators."""
    source = request.sources[listed["source"][0].as_py()]
    if isinstance(source, FileSource) and source.repository is None:
        return listed["locator"]
    names = zip(listed["locator"].to_pylist(), listed["extra"].to_pylist(), strict=True)
    paths = [source.display(locator, extra).encode(errors="surrogateescape") for locator, extra in names]
    return pa.array(paths, pa.binary())
