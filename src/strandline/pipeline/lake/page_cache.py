"""Pages of a lake: written once, listed at each question, and read once.

Invariants: a page that `write` returned for is durable, and every later question of any process sees it; a page is
absorbed at most once, and absorbing it again would change nothing; rows whose parents are not there are never answered
with: the pages are listed again, and then it is `Damaged`.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.clock import Clock
from strandline.errors import Damaged
from strandline.objects import ObjectConflict, ObjectStore, WriteUnknown
from strandline.pipeline import findings as findings_rules
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.lake import columns
from strandline.pipeline.lake.columns import (
    SCHEMAS,
    finding_row,
    format_parquet,
    observation_row,
    occurrence_row,
    parse_parquet,
    triage_row,
)
from strandline.pipeline.lake.layout import ID_BYTES, PageName, PageTable, format_page, format_pages_prefix, parse_page
from strandline.pipeline.lake.ledger_fold import LedgerFold
from strandline.pipeline.memory import MemoryTables

_THREADS = 16
_FEW = 4
_ATTEMPTS = 3


@dataclass
class _Ledger:
    fold: LedgerFold
    seen: set[str] = field(default_factory=set)
    is_loaded: bool = False


class PageCache:
    """The rows of a lake's pages, as far as questions needed them."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._tables = MemoryTables(clock)
        self._seen: set[str] = set()
        self._orphans: set[tuple[str, TenantId, bytes]] = set()
        self._ledgers: dict[tuple[TenantId, PolicyHash], _Ledger] = defaultdict(
            lambda: _Ledger(LedgerFold(store.address))
        )
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
            known = self._ledgers[tenant, policy]
            if (known.is_loaded or known.fold.is_small) and format_page(name) not in known.seen:
                known.seen.add(format_page(name))
                known.fold.add(table)

    def known_ledger(self, tenant: TenantId, policy: PolicyHash) -> LedgerFold:
        """Return what is in memory of a ledger, without asking the store."""
        with self._lock:
            return self._ledgers[tenant, policy].fold

    def ledger(self, tenant: TenantId, policy: PolicyHash) -> LedgerFold:
        """Return the ledger of a tenant and policy with every page that was written before the call."""
        with self._lock:
            known = self._ledgers[tenant, policy]
            wanted = tenant[:ID_BYTES], policy[:ID_BYTES]
            new = self._listed("ledger", known.seen)
            for key, table in self._read("ledger", [key for key, name in new if (name.tenant, name.policy) == wanted]):
                mine = table.filter(_is_of(table, tenant, policy))
                known.seen.add(key)
                known.fold.add(mine)
            known.is_loaded = True
            return known.fold

    def scopes(self) -> list[tuple[TenantId, PolicyHash]]:
        """Return the tenants and policies that have rows in the ledger."""
        first = {(name.tenant, name.policy): key for key, name in self._listed("ledger")}
        found = set[tuple[TenantId, PolicyHash]]()
        for _, table in self._read("ledger", first.values()):
            found |= set(zip(table["tenant"].to_pylist(), table["policy"].to_pylist(), strict=True))
        return sorted(found)

    def findings(self) -> MemoryTables:
        """Return findings and decisions with every page that was written before the call."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                self._refresh()
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
        for key, table in self._read("findings", findings):
            self._absorb_findings(table.to_pylist())
            self._seen.add(key)
        for key, table in self._read("triage", triage):
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

    def _read(self, table: PageTable, keys: Iterable[str]) -> Iterator[tuple[str, pa.Table]]:
        wanted = list(keys)

        def fetched(key: str) -> pa.Table:
            found = self.store.get(key)
            where = f"{self.store.address}: {key}"
            if found is None:
                raise Damaged(where, "a page was deleted while it was read", safe="ask again")
            return parse_parquet(found.body, SCHEMAS[table], where)

        if len(wanted) <= _FEW:
            yield from ((key, fetched(key)) for key in wanted)
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            yield from zip(wanted, pool.map(fetched, wanted), strict=True)

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


def _is_of(table: pa.Table, tenant: TenantId, policy: PolicyHash) -> pa.ChunkedArray:
    return pc.and_(pc.equal(table["tenant"], tenant), pc.equal(table["policy"], policy))
