"""Compaction: pages are folded into sorted Delta tables, and deleted after a grace period.

    plan        the pages that no table has yet, and the tables as they are
    fold        the rows of tables and pages are merged, and written as data files under the digests of their bytes
    check       the files are read back
    commit      one conditional put for each table: the new files in place of the old
    record      compaction/<number>: the pages that were folded, and the files that were replaced
    retain      after the grace period, what records name is deleted, then the records; old batches of state as well

Invariants: a step may be repeated, and the same command goes on wherever it was killed: merging is idempotent, so that
a page that is folded twice changes nothing, and a page is deleted only after every table that has its rows was
committed and recorded. Two compactors never mix: the second finds the version taken, or a page gone, and plans again.
Readers list pages, then records, then tables, so they see each row in one or both. Times are those of the store.
"""

import re
import secrets
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from strandline.errors import Conflict, Damaged, InvalidInput
from strandline.objects import ObjectConflict, ObjectInfo, ObjectStore
from strandline.pipeline import findings as findings_rules
from strandline.pipeline.findings import ObservationRecord
from strandline.pipeline.identity import TenantId
from strandline.pipeline.lake.columns import (
    FINDINGS,
    LEDGER,
    TABLES,
    TRIAGE,
    format_parquet,
    layer_table,
    observation_row,
    parse_parquet,
)
from strandline.pipeline.lake.compaction_records import format_record, read_records
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.delta_log import DataFile, DeltaLog, format_data_key
from strandline.pipeline.lake.layout import (
    COMPACTION,
    STATE,
    format_log_prefix,
    format_snapshots_prefix,
    format_values_prefix,
    parse_number,
    parse_page,
    parse_tenant,
    parse_value,
)
from strandline.pipeline.lake.ledger_fold import fold_ledger
from strandline.pipeline.lake.state_log import STALE_S, StateLog, parse_batch, value_ids_of

GRACE_S = 86_400.0
FILE_ROWS = 1_000_000
ATTEMPTS = 5
_ORPHAN_GRACE_S = 86_400.0
"""Data files that no commit names may belong to a compactor at work, which gives up after half of this."""
_DATA_FILE = re.compile(r"tables/[a-z]+/(part|[0-9a-f]{32})-([0-9a-f]{16}-)?[0-9a-f]{64}\.parquet")
_PAGE_TABLES = ("ledger", "findings", "triage")
_ID = {"findings": "finding_id", "occurrences": "occurrence_id", "observations": "observation_id", "triage": "event_id"}


class CompactionContended(Conflict):
    """Other compactors committed each time first."""

    def __init__(self, table: str) -> None:
        super().__init__(f"{table}: other compactions were first {ATTEMPTS} times", hint="run one compaction at a time")


class _Gone(Damaged):
    """A page or data file is gone: another compaction folded it meanwhile, or it was deleted."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "it is gone", safe="restore the object, unless another compaction folded it")


@dataclass(frozen=True)
class CompactionPlan:
    """The pages that no table has yet."""

    pages: dict[str, list[str]]
    bytes: int

    @property
    def count(self) -> int:
        """Return the number of pages."""
        return sum(map(len, self.pages.values()))


@dataclass
class Compacted:
    """What a compaction did: pages and bytes folded, rows and version of each table, and objects deleted."""

    pages: int = 0
    bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    deleted: int = 0


class Compaction:
    """The compaction of one lake."""

    def __init__(self, database: LakeDatabase, *, grace_s: float = GRACE_S) -> None:
        if grace_s < 0:
            raise InvalidInput(f"a grace period is not negative, as {grace_s} s is")
        self._database = database
        self._store: ObjectStore = database.store
        self._grace = timedelta(seconds=grace_s)
        self._began_s = time.monotonic()

    def plan(self) -> CompactionPlan:
        """Return the pages to fold, without changing anything."""
        folded = {page for record in read_records(self._store).values() for page in record["pages"]}
        pages: dict[str, list[str]] = {}
        size = 0
        for table in _PAGE_TABLES:
            listed = [info for info in self._store.list(f"pages/{table}/") if info.key not in folded]
            pages[table] = [info.key for info in listed]
            size += sum(info.size for info in listed)
        return CompactionPlan(pages, size)

    def run(self) -> Compacted:
        """Fold the pages that no table has yet, and delete what was folded before the grace period."""
        for attempt in range(ATTEMPTS):
            try:
                return self._run(self.plan())
            except _Gone:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _run(self, plan: CompactionPlan) -> Compacted:
        done = Compacted(plan.count, plan.bytes)
        replaced: list[str] = []
        if plan.count:
            # Parents first: a reader that finds an observation in a table finds its finding in one, too.
            for table in ("findings", "occurrences", "observations", "triage", "ledger"):
                pages = plan.pages["findings" if table in ("findings", "occurrences", "observations") else table]
                if pages:
                    replaced += self._fold(table, pages, done)
            record = format_record([page for pages in plan.pages.values() for page in pages], replaced)
            self._store.put(f"{COMPACTION}{secrets.token_hex(16)}.json", record, if_absent=True)
        done.deleted = self._retain()
        return done

    # Folding.

    def _fold(self, table: str, pages: Sequence[str], done: Compacted) -> list[str]:
        """Fold pages into a table; return the keys of the data files that were replaced."""
        log = DeltaLog(self._store, table)
        for _ in range(ATTEMPTS):
            before = log.latest()
            groups = _groups(table, pages)
            add: list[DataFile] = []
            remove: list[str] = []
            for group, members in groups.items():
                old = [path for path in before.files if path.startswith(group)]
                remove += old
                add += self._write(table, group, self._folded(table, old, members), old)
            live = {file.path for file in add}
            kept = [path for path in remove if path not in live]
            new = [file for file in add if file.path not in before.files]
            if not new and not kept:
                version: int | None = before.version
            else:
                self._check_time()
                version = log.commit(before, new, kept, self._database.clock.now_ns())
            if version is not None:
                after = log.latest()
                done.versions[table] = version
                done.rows[table] = sum(file.rows for file in after.files.values())
                return [format_data_key(table, path) for path in kept]
        raise CompactionContended(f"{self._store.address}/tables/{table}")

    def _folded(self, table: str, old: Sequence[str], pages: Sequence[str]) -> pa.Table:
        parts = [self._read(format_data_key(table, path), TABLES[table]) for path in old]
        where = f"{self._store.address}/tables/{table}"
        if table == "ledger":
            return fold_ledger([*parts, *(self._read(page, LEDGER) for page in pages)], where)
        if table == "triage":
            return fold_by_id([*parts, *(self._read(page, TRIAGE) for page in pages)], table)
        rows = [layer_table(self._read(page, FINDINGS), table) for page in pages]
        return fold_by_id([*parts, *rows], table)

    def _read(self, key: str, schema: pa.Schema) -> pa.Table:
        found = self._store.get(key)
        if found is None:
            raise _Gone(f"{self._store.address}: {key}")
        return parse_parquet(found.body, schema, f"{self._store.address}: {key}")

    def _write(self, table: str, group: str, rows: pa.Table, old: Container[str]) -> Iterator[DataFile]:
        """Write data files, each under the digest of its bytes, and read them back; those the table has stay."""
        for first in range(0, len(rows), FILE_ROWS):
            part = rows.slice(first, FILE_ROWS)
            body = format_parquet(part)
            path = f"{group}{blake3(body).hexdigest()}.parquet"
            if path not in old:
                try:
                    self._store.put(format_data_key(table, path), body, if_absent=True)
                except ObjectConflict:
                    # The same bytes, of a compaction that was killed: another may be deleting that file just now.
                    path = f"{group}{secrets.token_hex(8)}-{blake3(body).hexdigest()}.parquet"
                    self._store.put(format_data_key(table, path), body, if_absent=True)
            key = format_data_key(table, path)
            found = self._store.get(key)
            if found is None or found.body != body:
                raise Damaged(f"{self._store.address}: {key}", "it is not what was written", safe="run it again")
            yield DataFile(path, len(body), len(part))

    def _check_time(self) -> None:
        if time.monotonic() - self._began_s > _ORPHAN_GRACE_S / 2:
            raise Conflict("this compaction took too long to be committed", hint="run the command again")

    # Retention.

    def _retain(self) -> int:
        now = self._store_now()
        deleted = 0
        tables = {table: DeltaLog(self._store, table).latest() for table in TABLES}
        live = {format_data_key(table, path) for table, version in tables.items() for path in version.files}
        records = read_records(self._store)
        for info in list(self._store.list(COMPACTION)):
            if info.key in records and info.modified + self._grace <= now:
                record = records.pop(info.key)
                for key in (*record["pages"], *(key for key in record["replaced"] if key not in live)):
                    self._store.delete(key)
                    deleted += 1
                self._store.delete(info.key)
        named = live | {key for record in records.values() for key in record["replaced"]}
        for table, version in tables.items():  # the record of a commit comes later, or never if it was killed
            named |= {format_data_key(table, path) for path, at in version.removed.items() if at + self._grace > now}
        deleted += self._delete_orphans(named, now)
        for tenant in sorted({parse_tenant(info.key) for info in self._store.list(STATE)}):
            deleted += self._trim_state(StateLog(self._store, tenant), tenant, now)
        return deleted

    def _delete_orphans(self, named: set[str], now: datetime) -> int:
        """Delete data files of compactions that were killed before their commit."""
        grace = max(self._grace, timedelta(seconds=_ORPHAN_GRACE_S))
        orphans = [
            info.key
            for table in TABLES
            for info in self._store.list(f"tables/{table}/")
            if _DATA_FILE.fullmatch(info.key) and info.key not in named and info.modified + grace <= now
        ]
        for key in orphans:
            self._store.delete(key)
        return len(orphans)

    def _trim_state(self, log: StateLog, tenant: TenantId, now: datetime) -> int:
        """Delete batches that an old snapshot has, and values that no key had since, once no reader needs them."""
        grace = max(self._grace, timedelta(seconds=2 * STALE_S))
        values = [info for info in self._store.list(format_values_prefix(tenant)) if info.modified + grace <= now]
        snapshots = sorted(self._store.list(format_snapshots_prefix(tenant)), key=lambda info: info.key)
        base = max((info.key for info in snapshots[:-1] if info.modified + grace <= now), default=None)
        covered = -1 if base is None else parse_number(base)
        batches = sorted(self._store.list(format_log_prefix(tenant)), key=lambda info: info.key)
        since = [info for info in batches if parse_number(info.key) > covered]
        # A reader that looked within the grace period may be about to read a value that a later batch has replaced.
        used = log.read(lambda fold: fold.value_ids()) | self._used_since(now - grace, base, since)
        old = [info.key for info in values if parse_value(info.key) not in used]
        old += [info.key for info in batches if parse_number(info.key) <= covered and info.modified + grace <= now]
        old += [info.key for info in snapshots if base is not None and info.key < base]
        for key in old:
            self._store.delete(key)
        return len(old)

    def _used_since(self, at: datetime, base: str | None, batches: Sequence[ObjectInfo]) -> set[bytes]:
        """Return the ids of the values that any key had since a time, given a snapshot and what follows it."""
        then: dict[bytes, bytes] = {}
        later = set[bytes]()
        steps = [] if base is None else [(base, False)]
        for key, is_later in [*steps, *((one.key, one.modified > at) for one in batches)]:
            found = self._store.get(key)
            if found is None:
                raise _Gone(f"{self._store.address}: {key}")
            batch = parse_batch(found.body, key)
            if is_later:
                later |= set(value_ids_of(batch).values())
            else:
                for operation in batch.operations:
                    then.pop(operation.key, None)
                then |= value_ids_of(batch)
        return later | set(then.values())

    def _store_now(self) -> datetime:
        """Return the time of the store, which all its clients share."""
        key = f"{COMPACTION}clock"
        self._store.put(key, secrets.token_bytes(8))
        info = self._store.head(key)
        if info is None:
            raise Conflict("another compaction deleted the object that tells the time", hint="run the command again")
        return info.modified


def fold_by_id(tables: Sequence[pa.Table], name: str) -> pa.Table:
    """Return rows once for each tenant and id, sorted: observations merged, of equal rows the first commit."""
    table = pa.concat_tables(tables).combine_chunks()
    keys = ["tenant", _ID[name]]
    if name == "observations":
        table = _merged_observations(table)
    order = [(key, "ascending") for key in (*keys, "committed_ns")]
    table = table.take(pc.sort_indices(table, order))
    first: dict[tuple[bytes, bytes], int] = {}
    for at, key in enumerate(zip(*(table[key].to_pylist() for key in keys), strict=True)):
        first.setdefault(key, at)
    return table.take(pa.array(sorted(first.values()), pa.int64()))


def _merged_observations(table: pa.Table) -> pa.Table:
    found: dict[tuple[bytes, bytes], tuple[ObservationRecord, int]] = {}
    for row in table.to_pylist():
        seen = observation_row(row)
        known, first_ns = found.get(seen[:2], (seen, row["committed_ns"]))
        found[seen[:2]] = findings_rules.merge(known, seen), min(first_ns, row["committed_ns"])
    rows = [(*seen, first_ns) for seen, first_ns in found.values()]
    if not rows:
        return table
    schema = TABLES["observations"]
    return pa.table(
        [pa.array(cells, column.type) for cells, column in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )


def _groups(table: str, pages: Sequence[str]) -> dict[str, list[str]]:
    """Return pages by the beginning of the names of their data files: only the ledger is cut, by tenant and policy."""
    if table != "ledger":
        return {"part-": list(pages)}
    groups: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        name = parse_page(page)
        if name is None:
            raise Damaged(page, "an object below pages/ is not a page", safe="move it elsewhere; nothing was changed")
        groups[f"{name.tenant.hex()}{name.policy.hex()}-"].append(page)
    return groups
