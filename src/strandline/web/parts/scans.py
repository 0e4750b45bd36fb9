"""The state of scans: an index of its findings, its coverage, and its runs.

Invariants: an index is built anew when the stores changed, and the old one answers until then; before the first one
is built, the first findings come from the stores (`first_page`), and a page says that the rest is being read; nothing
is written but by the functions that `strandline.findings` and the coordinator have for it. Whether a process works on
a run is told by what moves in it, never by comparing the clocks of two machines.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from strandline.findings.coverage import coverage_of
from strandline.findings.first_findings import FirstFindings
from strandline.findings.index import FindingIndex, IndexedFinding, build_index
from strandline.findings.index_query import FindingQuery
from strandline.findings.listed_sources import current_sources, unfinished_scans
from strandline.findings.reports.values import ReportCoverage, SourceFacts, Status, UnfinishedFacts
from strandline.pipeline.change_tokens import change_token
from strandline.pipeline.identity import FindingId
from strandline.protocol.operations import op_id
from strandline.protocol.runs import RunRecord, RunStatus
from strandline.protocol.shards import OpKind, RunKey, ShardKey, ShardRecord, ShardStatus
from strandline.scan.run.manifest import read_manifest
from strandline.scan.run.scan_run import all_shards
from strandline.scan.run.totals import Totals, parse_totals
from strandline.scan.state import State
from strandline.scan.unfinished import read_unfinished
from strandline.web.polling import Need, Polled, Series

RUNS_SHOWN = 200
STILL_S = 60.0
"""A run in which nothing moved for so long has no process: leases are renewed several times in it."""


class _Stillness(NamedTuple):
    """Since when a run is as it is, on the clock of this process; `has_moved` is whether it ever was otherwise."""

    pulse: int
    since_s: float
    has_moved: bool = False


@dataclass(frozen=True)
class RunFacts:
    """A run: its shards by state and what they have done; the rest is known while its manifest is there."""

    run: int
    status: RunStatus
    created_ns: int
    ended_ns: int | None
    active: int
    leased: int
    done: int
    split: int
    parked: int
    totals: Totals
    items_todo: int | None = None
    bytes_todo: int | None = None
    name: str = ""
    is_started: bool = False
    """Whether a worker ever took a shard."""
    pulse: int = field(default=0, compare=False)
    """A number that changes with every lease that is taken or renewed, and every page that is committed."""

    @property
    def shards(self) -> int:
        """Return the number of its shards."""
        return self.active + self.done + self.split + self.parked

    @property
    def needs_workers(self) -> bool:
        """Return whether it is the run of an unfinished scan, and has shards to do."""
        return self.status == RunStatus.ACTIVE and bool(self.name) and self.active > 0


@dataclass(frozen=True)
class ScanFacts:
    """What pages show of scans, besides the findings themselves."""

    version: int
    findings: int = 0
    open: int = 0
    new: int = 0
    sources: tuple[SourceFacts, ...] = ()
    finished_ns: int = 0
    policy: str = ""
    unfinished: tuple[UnfinishedFacts, ...] = ()
    runs: tuple[RunFacts, ...] = ()
    left: tuple[int, ...] = ()
    """The runs that a worker began and none goes on with."""
    waiting: tuple[int, ...] = ()
    """The runs that no worker began to work on."""
    is_sure: bool = field(default=True, compare=False)
    """Whether each other run was seen to move: one that is not left may not have been watched for long enough."""

    coverage: ReportCoverage = field(default_factory=ReportCoverage, compare=False)


class ScanPart(Polled[ScanFacts]):
    """The state of scans at an address."""

    def __init__(self, state: State, *, every_s: float = 1.0, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__("scans", state.stores.database.describe(), self._look, every_s=every_s)
        self.state = state
        self._index: FindingIndex | None = None
        self._token: object = None
        self._version = 0
        self._building = threading.Lock()
        self._deciding = threading.Lock()
        self._decided = list[FindingId]()
        """Findings that were decided about here since the build of the last index began."""
        self._ready = threading.Event()
        self._first: FirstFindings | None = None
        self._first_ready = threading.Event()
        self._changed: Callable[[str], None] = lambda _kind: None
        self._rates: dict[int, tuple[Series, Series]] = {}
        self._over: dict[int, RunFacts] = {}
        self._now_s = now_s
        self._still: dict[int, _Stillness] = {}

    @property
    def index(self) -> FindingIndex:
        """Return the index, built at first use."""
        if self._index is None:
            with self._building:
                if self._index is None:
                    self._read_first()
                    self._replace_index(change_token(self.state.stores.database))
                    self._changed(self.kind)  # at once: coverage takes as long again
        assert self._index is not None  # noqa: S101 - it was built
        return self._index

    def index_soon(self, within_s: float) -> FindingIndex | None:
        """Return the index; None if its first build is under way and takes longer than that."""
        if self._ready.wait(within_s):
            return self.index
        return None if self._building.locked() else self.index

    def first_page(
        self, query: FindingQuery, within_s: float, *, first: int, limit: int
    ) -> list[IndexedFinding] | None:
        """Return a page out of the stores, while the first index is being built; None if that takes longer."""
        if not self._first_ready.wait(within_s):
            return None
        known = self._first
        return None if known is None else known.page(query, first=first, limit=limit)

    def run(self, ending: threading.Event, changed: Callable[[str], None]) -> None:
        """Read until the end, and tell of changes; also of the first index, before anything else is read."""
        self._changed = changed
        super().run(ending, changed)

    def _read_first(self) -> None:
        """Read what the first page shows, before the index: both at once would take as long as the slower one."""
        self._first = FirstFindings(self.state)
        try:
            self._first.page(FindingQuery())
        finally:
            self._first_ready.set()

    def _replace_index(self, token: object) -> None:
        with self._deciding:
            self._decided.clear()
        fresh = build_index(self.state)
        with self._deciding:
            fresh.refresh(self.state, self._decided)  # it may have been read before they were made
            self._index, self._token = fresh, token
            self._version += 1
        self._ready.set()
        self._first = None  # its findings are in the index
        self._give_memory_back()

    def _give_memory_back(self) -> None:
        """Give what only the building took back to the system: half of all memory, with many findings."""
        database = self.state.stores.database
        if database.dialect == "sqlite":  # pages of tables that were read once
            database.read(lambda connection: connection.execute("PRAGMA shrink_memory").fetchall())
        pa.default_memory_pool().release_unused()

    def decided(self, findings: Sequence[FindingId]) -> None:
        """Show decisions about findings, which were made here, from now on."""
        index = self.index
        with self._deciding:
            self._decided.extend(findings)
            if self._index is not None:  # it may have been replaced meanwhile
                index = self._index
            index.refresh(self.state, findings)
            self._version += 1

    def shards(self, run: int) -> list[ShardRecord]:
        """Return the shards of a run, in the order of their keys."""
        found = all_shards(self.state.stores.coordinator, RunKey(self.state.tenant, run))
        return sorted(found, key=lambda shard: (shard.spec.start, shard.parent is not None, shard.shard))

    def unpark(self, run: int, shard: int) -> None:
        """Make a parked shard active again."""
        key = ShardKey(self.state.tenant, run, shard)
        record = self.state.stores.coordinator.get_shard(key)
        op = op_id(run, shard, record.fence, OpKind.UNPARK)
        self.state.stores.coordinator.unpark_shard(time.time_ns(), key, op)

    def rates(self, run: int) -> tuple[float | None, float | None]:
        """Return the items and bytes that a run commits in a second, of late."""
        series = self._rates.get(run)
        return (None, None) if series is None else (series[0].rate(), series[1].rate())

    def history(self, run: int) -> list[tuple[float, float]]:
        """Return the items of a run over time."""
        series = self._rates.get(run)
        return [] if series is None else series[0].points()

    def needs(self) -> list[Need]:
        """Return what needs a person."""
        facts = self.value
        if facts is None:
            return []
        found = []
        if facts.open:
            new = f", {facts.new:,} of them new since the scan before" if facts.new else ""
            found.append(
                Need(f"{facts.open:,} findings are open{new}", "/findings?state=open", is_urgent=facts.new > 0)
            )
        found += [
            Need(f"{run.parked:,} shards of run {run.name or run.run} are parked", f"/runs/{run.run}", is_urgent=True)
            for run in facts.runs
            if run.parked and run.status == RunStatus.ACTIVE
        ]
        found += [
            Need(
                f"the scan of {run.name} is not finished, and no worker has continued it for a minute: "
                "if its command was killed, the same command resumes it",
                f"/runs/{run.run}",
                is_urgent=True,
            )
            for run in facts.runs
            if run.run in facts.left
        ]
        found += [
            Need(
                f"no worker has started the scan of {run.name}: it waits for machines, or its command was killed",
                f"/runs/{run.run}",
            )
            for run in facts.runs
            if run.run in facts.waiting
        ]
        missed = facts.coverage.items(Status.FAILED, Status.SKIPPED, Status.PARTIAL)
        if missed:
            found.append(Need(f"{missed:,} items were not scanned in full", "/coverage"))
        return found

    def _look(self) -> ScanFacts:
        token = change_token(self.state.stores.database)
        known = self.value
        if known is not None and token == self._token and self._index is not None:
            runs = self._runs() if any(run.status == RunStatus.ACTIVE for run in known.runs) else known.runs
            return self._counted(known, runs)
        if self._index is None:  # a page may have begun: it is built once
            fresh = self.index
        else:
            self._replace_index(token)
            fresh = self.index
        open_scans = unfinished_scans(self.state)  # before inventories: a scan writes its own, then deletes its mark
        listed = current_sources(self.state)
        return self._counted(
            ScanFacts(
                version=self._version,
                sources=tuple(one.source for one in listed),
                finished_ns=max((one.finished_ns for one in listed), default=0),
                policy=fresh.facts.policy,
                unfinished=tuple(scan.facts for scan in open_scans),
                coverage=coverage_of(self.state, listed, open_scans),
            ),
            self._runs(),
        )

    def _counted(self, facts: ScanFacts, runs: tuple[RunFacts, ...]) -> ScanFacts:
        counts = self.index.counts()
        still = self._watch(runs)
        known = {run.run for run in still} | {run for run, one in self._still.items() if one.has_moved}
        return ScanFacts(
            version=self._version,
            findings=counts.matching,
            open=counts.states.get("open", 0),
            new=counts.new,
            sources=facts.sources,
            finished_ns=facts.finished_ns,
            policy=facts.policy,
            unfinished=facts.unfinished,
            runs=runs,
            left=tuple(run.run for run in still if run.is_started),
            waiting=tuple(run.run for run in still if not run.is_started),
            is_sure=known == self._still.keys(),
            coverage=facts.coverage,
        )

    def _watch(self, runs: tuple[RunFacts, ...]) -> list[RunFacts]:
        """Note which unfinished runs moved since the last look; return those that did not for long enough."""
        now = self._now_s()
        before = {} if self.problem is not None else self._still  # workers may not reach the stores either
        self._still = {}
        for run in runs:
            if run.needs_workers:
                known = before.get(run.run, _Stillness(run.pulse, now))
                self._still[run.run] = known if known.pulse == run.pulse else _Stillness(run.pulse, now, has_moved=True)
        return [run for run in runs if run.run in self._still and now - self._still[run.run].since_s >= STILL_S]

    def _runs(self) -> tuple[RunFacts, ...]:
        coordinator, tenant = self.state.stores.coordinator, self.state.tenant
        records: list[RunRecord] = []
        while page := coordinator.list_runs(tenant, records[-1].run if records else None):
            records += page
        records.sort(key=lambda run: -run.created_at)
        marks = {mark.run_id: mark for mark in read_unfinished(self.state.stores.state, tenant)}
        names = {run: (mark.name, mark.manifest) for run, mark in marks.items() if run is not None}
        return tuple(self._run(record, names) for record in records[:RUNS_SHOWN])

    def _run(self, record: RunRecord, names: Mapping[int, tuple[str, int | None]]) -> RunFacts:
        if record.run in self._over:
            return self._over[record.run]
        now = time.time_ns()
        shards = self.shards(record.run) if record.status != RunStatus.INITIALIZING else []
        states = [shard.status for shard in shards]
        totals = Totals()
        for shard in shards:
            totals = totals.plus(parse_totals(shard.cursor.token))
        name, number = names.get(record.run, ("", None))
        manifest = None
        if number is not None:
            manifest = read_manifest(self.state.stores.state, self.state.tenant, number)
        facts = RunFacts(
            run=record.run,
            status=record.status,
            created_ns=record.created_at,
            ended_ns=record.completed_at,
            active=states.count(ShardStatus.ACTIVE),
            leased=sum(shard.leased(now) for shard in shards),
            done=states.count(ShardStatus.DONE),
            split=states.count(ShardStatus.SPLIT),
            parked=states.count(ShardStatus.PARKED),
            totals=totals,
            items_todo=None if manifest is None else manifest.rows,
            bytes_todo=None if manifest is None else manifest.bytes_listed,
            name=name,
            is_started=any(shard.fence for shard in shards),
            pulse=hash(tuple((one.shard, one.status, one.fence, one.deadline, one.cursor) for one in shards)),
        )
        if record.over:
            self._over[record.run] = facts
        else:
            items, size = self._rates.setdefault(record.run, (Series(), Series()))
            items.add(time.monotonic(), totals.items)
            size.add(time.monotonic(), totals.bytes)
        return facts
