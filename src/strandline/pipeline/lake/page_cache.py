"""Pages of a lake: written once, listed at each question, and read once.

A worker asks for an advisory answer (`AdvisoryLedger`), which lists now and then, and reads no pages of its own run.

Invariants: a page that `write` returned for is durable, and every later question of any process sees it; a page is
absorbed at most once, and absorbing it again would change nothing; rows whose parents are not there are never answered
with: the pages are listed again, and then it is `Damaged`.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from strandline.clock import Clock
from strandline.errors import Damaged
from strandline.objects import ObjectConflict, ObjectStore, WriteUnknown
from strandline.pipeline import findings as findings_rules
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.lake import columns
from strandline.pipeline.lake.bounded_reads import read_each
from strandline.pipeline.lake.columns import (
    FINDINGS,
    LEDGER,
    TRIAGE,
    finding_row,
    format_parquet,
    observation_row,
    occurrence_row,
    parse_batches,
    parse_parquet,
    triage_row,
    with_layer,
)
from strandline.pipeline.lake.compaction_records import read_records
from strandline.pipeline.lake.delta_log import DeltaLog, format_data_key
from strandline.pipeline.lake.layout import (
    ID_BYTES,
    PageName,
    PageTable,
    format_page,
    format_pages_prefix,
    format_scope,
    parse_page,
)
from strandline.pipeline.lake.ledger_fold import LedgerFold
from strandline.pipeline.memory import MemoryTables

_ATTEMPTS = 3
_SCOPE = pa.schema([LEDGER.field("tenant"), LEDGER.field("policy")])
_ADVISORY_NS = 30_000_000_000
_ADVISORY_SHARE = 20
"""An advisory answer lists pages again after half a minute, or after twenty times as long as the last listing took."""
T = TypeVar("T")


class _Gone(Damaged):
    """An object that was listed is gone: it was folded meanwhile, or deleted."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "an object was deleted while it was read", safe="restore it, or ask again")


@dataclass
class _Ledger:
    fold: LedgerFold
    seen: set[str] = field(default_factory=set)
    is_loaded: bool = False
    moment: object = None
    """What was loaded last is as of this moment (`PageCache.hold`)."""
    listed_again_ns: int = 0
    """When an advisory answer lists pages again, on the monotonic clock."""


class PageCache:
    """The rows of a lake's pages, as far as questions needed them."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._tables = MemoryTables(clock)
        self._seen: set[str] = set()
        self._records: dict[str, frozenset[str]] = {}
        self.triage_ns: dict[bytes, int] = {}
        """When each decision was first committed."""
        self._logs = {name: DeltaLog(store, name) for name in columns.TABLES}
        self._orphans: set[tuple[str, TenantId, bytes]] = set()
        self._ledgers: dict[tuple[TenantId, PolicyHash], _Ledger] = {}
        self._moment: object = None
        self._lock = self._tables.lock

    def write(self, name: PageName, table: pa.Table) -> None:
        """Write a page, once; the same page that is there already is left as it is."""
        key = format_page(name)
        body = format_parquet(table)
        for attempt in range(_ATTEMPTS):
            try:
                self.store.put(key, body, if_absent=True)
            except ObjectConflict:
                return  # the same rows of the same writer, under an earlier time
            except WriteUnknown:
                if self.store.head(key) is not None:
                    return
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def remember_ledger(self, tenant: TenantId, policy: PolicyHash, name: PageName, table: pa.Table) -> None:
        """Keep a page that was just written, if the ledger is in memory or small."""
        with self._lock:
            known = self._ledger_of(tenant, policy)
            if (known.is_loaded or known.fold.is_small) and format_page(name) not in known.seen:
                known.seen.add(format_page(name))
                known.fold.add(table)

    def known_ledger(self, tenant: TenantId, policy: PolicyHash) -> LedgerFold:
        """Return what is in memory of a ledger, without asking the store."""
        with self._lock:
            return self._ledger_of(tenant, policy).fold

    def ledger(self, tenant: TenantId, policy: PolicyHash) -> LedgerFold:
        """Return the ledger of a tenant and policy with every page that was written before the call."""
        with self._lock:
            known = self._ledger_of(tenant, policy)
            if self._moment is None or known.moment != self._moment:
                _again(lambda: self._load_ledger(known, tenant, policy))
                known.is_loaded, known.moment = True, self._moment
            return known.fold

    def hold(self, moment: object) -> None:
        """Let ledgers have the pages that were there when each was first asked for in a moment; None is always now."""
        with self._lock:
            self._moment = moment

    def advisory_ledger(self, tenant: TenantId, policy: PolicyHash, run_id: int) -> LedgerFold:
        """Return the ledger as it was a while ago, without pages of a run that others wrote.

        Its cost does not grow with the number of times that it is asked for, nor with the pages of the run.
        """
        with self._lock:
            known = self._ledger_of(tenant, policy)
            began_ns = monotonic_ns()
            if began_ns >= known.listed_again_ns:
                _again(lambda: self._load_ledger(known, tenant, policy, but_run=run_id))
                took_ns = monotonic_ns() - began_ns
                known.listed_again_ns = began_ns + took_ns + max(_ADVISORY_NS, _ADVISORY_SHARE * took_ns)
            return known.fold

    def _ledger_of(self, tenant: TenantId, policy: PolicyHash) -> _Ledger:
        if (tenant, policy) not in self._ledgers:
            self._ledgers[tenant, policy] = _Ledger(LedgerFold(tenant, policy, self.store.address))
        return self._ledgers[tenant, policy]

    def _load_ledger(self, known: _Ledger, tenant: TenantId, policy: PolicyHash, but_run: int | None = None) -> None:
        wanted = tenant[:ID_BYTES], policy[:ID_BYTES]
        listed = [
            key
            for key, name in self._listed("ledger", known.seen)
            if (name.tenant, name.policy) == wanted and (but_run is None or name.run_id != but_run)
        ]
        # Records after pages, and tables after both: a page that is recorded, or gone by now, is in a table.
        recorded = self._folded_pages() if listed else frozenset[str]()
        new = [key for key in listed if key not in recorded]
        folded = [key for key in self.data_files("ledger") if format_scope(tenant, policy) in key]
        for key in (key for key in folded if key not in known.seen):
            for table in self._batches(LEDGER, key):
                known.fold.add(table.filter(_is_of(table, tenant, policy)))
            known.seen.add(key)
        for key, table in self._read(LEDGER, new):
            known.fold.add(table.filter(_is_of(table, tenant, policy)))
            known.seen.add(key)

    def scopes(self) -> list[tuple[TenantId, PolicyHash]]:
        """Return the tenants and policies that have rows in the ledger."""
        return _again(self._scopes)

    def _scopes(self) -> list[tuple[TenantId, PolicyHash]]:
        first = {(name.tenant + name.policy).hex(): key for key, name in self._listed("ledger")}
        first |= {key.rsplit("/", 1)[1][: 4 * ID_BYTES]: key for key in self.data_files("ledger")}
        found = set[tuple[TenantId, PolicyHash]]()
        for key in first.values():
            for table in self._batches(_SCOPE, key):
                pairs = table.group_by(_SCOPE.names).aggregate([])
                found.update(zip(pairs["tenant"].to_pylist(), pairs["policy"].to_pylist(), strict=True))
        return sorted(found)

    def findings(self) -> MemoryTables:
        """Return findings and decisions with every page that was written before the call."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                _again(self._refresh)
                if not self._orphans:
                    return self._tables
        layer = next(iter(self._orphans))[0]
        raise Damaged(
            self.store.address,
            f"{len(self._orphans):,} {layer} name rows that are gone: objects below pages/ were deleted",
            safe="restore the deleted objects, or scan again into a new prefix; nothing was changed",
        )

    # Implementation.

    def _refresh(self) -> None:
        triage = [key for key, _ in self._listed("triage", self._seen)]  # before the findings that they are about
        findings = [key for key, _ in self._listed("findings", self._seen)]
        recorded = self._folded_pages() if triage or findings else frozenset[str]()
        triage = [key for key in triage if key not in recorded]
        for key, table in self._read(FINDINGS, [key for key in findings if key not in recorded]):
            self._absorb_findings(table.to_pylist())
            self._seen.add(key)
        for name in ("triage", "observations", "occurrences", "findings"):  # children first, for their parents
            folded = [key for key in self.data_files(name) if key not in self._seen]
            if name == "triage":
                triage += folded
                continue
            for key, table in self._read(columns.TABLES[name], folded):
                self._absorb_findings(with_layer(table, name))
                self._seen.add(key)
        for key, table in self._read(TRIAGE, triage):
            self._absorb_triage(table.to_pylist())
            self._seen.add(key)
        self._orphans = {orphan for orphan in self._orphans if not self._has_parent(orphan)}

    def _listed(self, table: PageTable, seen: Container[str] = ()) -> Iterator[tuple[str, PageName]]:
        """Yield the pages of a table that were not seen yet."""
        for info in self.store.list(format_pages_prefix(table)):
            if info.key in seen:
                continue
            name = parse_page(info.key)
            if name is None:
                raise Damaged(
                    f"{self.store.address}: {info.key}",
                    "an object below pages/ is not a page",
                    safe="move it elsewhere if another tool put it there; nothing was changed",
                )
            yield info.key, name

    def _folded_pages(self) -> frozenset[str]:
        """Return the pages that a table has, as records of compactions tell."""
        new = read_records(self.store, self._records)
        self._records |= {key: frozenset(record["pages"]) for key, record in new.items()}
        return frozenset[str]().union(*self._records.values())

    def data_files(self, table: str) -> list[str]:
        """Return the keys of the data files of a folded table, as it is now."""
        return [format_data_key(table, path) for path in self._logs[table].latest().files]

    def _read(self, schema: pa.Schema, keys: Iterable[str]) -> Iterator[tuple[str, pa.Table]]:
        def fetched(key: str) -> pa.Table:
            return parse_parquet(self._body(key), schema, f"{self.store.address}: {key}")

        yield from read_each(fetched, keys)

    def _batches(self, schema: pa.Schema, key: str) -> Iterator[pa.Table]:
        """Yield the rows of a data file, which may have more than memory should hold."""
        yield from parse_batches(self._body(key), schema, f"{self.store.address}: {key}")

    def _body(self, key: str) -> bytes:
        found = self.store.get(key)
        if found is None:
            raise _Gone(f"{self.store.address}: {key}")
        return found.body

    def _absorb_findings(self, rows: list[dict[str, Any]]) -> None:
        tables = self._tables
        for row in rows:
            match row["layer"]:
                case columns.FINDING:
                    finding = finding_row(row)
                    self._same(tables.findings.setdefault(finding[:2], finding), finding, "findings")
                    tables.named[finding[0], *finding[2:]] = finding.finding_id
                    self._first(finding.tenant, finding.finding_id, row["committed_ns"])
                case columns.OCCURRENCE:
                    occurrence = occurrence_row(row)
                    self._same(tables.occurrences.setdefault(occurrence[:2], occurrence), occurrence, "occurrences")
                    tables.named[occurrence[0], *occurrence[2:]] = occurrence.occurrence_id
                    self._first(occurrence.tenant, occurrence.occurrence_id, row["committed_ns"])
                    self._orphans.add(("occurrences", occurrence.tenant, occurrence.finding_id))
                case _:
                    seen = observation_row(row)
                    known = tables.observations.get(seen[:2], seen)
                    self._same(known[:5], seen[:5], "observations")
                    tables.observations[seen[:2]] = findings_rules.merge(known, seen)
                    self._first(seen.tenant, seen.observation_id, row["committed_ns"])
                    self._orphans.add(("observations", seen.tenant, seen.occurrence_id))

    def _absorb_triage(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            event = triage_row(row)
            self._tables.triage[event[:2]][row["event_id"]] = event
            first = self.triage_ns.get(row["event_id"], row["committed_ns"])
            self.triage_ns[row["event_id"]] = min(first, row["committed_ns"])
            self._orphans.add(("decisions", event.tenant, event.finding_id))

    def _has_parent(self, orphan: tuple[str, TenantId, bytes]) -> bool:
        layer, tenant, parent = orphan
        table: dict[Any, Any] = self._tables.occurrences if layer == "observations" else self._tables.findings
        return (tenant, parent) in table

    def _first(self, tenant: TenantId, row_id: bytes, ns: int) -> None:
        first = self._tables.first_ns
        first[tenant, row_id] = min(first.get((tenant, row_id), ns), ns)

    def _same(self, known: object, new: object, layer: str) -> None:
        if known != new:
            raise Damaged(
                self.store.address,
                f"one of the {layer} has an id that another page has with other content",
                safe="find the writer whose ids are not derived; nothing was changed",
            )


def _again(load: Callable[[], T]) -> T:
    """Load again if an object went while it was loaded: what was folded is in a table by then."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return load()
        except _Gone:
            continue
    return load()


def _is_of(table: pa.Table, tenant: TenantId, policy: PolicyHash) -> pa.ChunkedArray:
    return pc.and_(pc.equal(table["tenant"], tenant), pc.equal(table["policy"], policy))
