"""Compaction: pages are folded into sorted Delta tables, and deleted after a grace period.

    plan        the pages that no table has yet, and the tables as they are
    fold        the rows of tables and pages are merged, and written as data files under the digests of their bytes
    check       the files are read back
    commit      one conditional put for each table: the new files in place of the old
    record      compaction/<number>: the pages that were folded, and the files that were replaced
    retain      after the grace period, what records name is deleted (`retention`)

Invariants: a step may be repeated, and the same command goes on wherever it was killed: merging is idempotent, so that
a page that is folded twice changes nothing. Two compactors never mix: the second finds the version taken, or a page
gone, and plans again. Readers list pages, then records, then tables, so they see each row in one or both.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from strandline.errors import Conflict, Damaged
from strandline.objects import ObjectConflict, ObjectStore
from strandline.pipeline import findings as findings_rules
from strandline.pipeline.findings import ObservationRecord
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.lake.bounded_reads import read_each
from strandline.pipeline.lake.columns import (
    FINDINGS,
    LEDGER,
    TABLES,
    TRIAGE,
    format_files,
    layer_table,
    observation_row,
    parse_batches,
    parse_parquet,
)
from strandline.pipeline.lake.compaction_records import format_record, read_records
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.delta_log import DataFile, DeltaLog, format_data_key
from strandline.pipeline.lake.layout import COMPACTION, parse_page
from strandline.pipeline.lake.ledger_fold import LedgerFold
from strandline.pipeline.lake.retention import ORPHAN_GRACE_S, ObjectGone, Retention

GRACE_S = 86_400.0
FILE_ROWS = 1 << 20
ATTEMPTS = 5
_PAGE_TABLES = ("ledger", "findings", "triage")
_ID = {"findings": "finding_id", "occurrences": "occurrence_id", "observations": "observation_id", "triage": "event_id"}


class CompactionContended(Conflict):
    """Other compactors committed each time first."""

    def __init__(self, table: str) -> None:
        super().__init__(f"{table}: other compactions were first {ATTEMPTS} times", hint="run one compaction at a time")


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
        self._database = database
        self._store: ObjectStore = database.store
        self._retention = Retention(self._store, grace_s=grace_s)
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
            except ObjectGone:
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
        done.deleted = self._retention.run()
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

    def _folded(self, table: str, old: Sequence[str], pages: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of data files and pages, folded and in order: a ledger some ten thousand at a time."""
        files = [format_data_key(table, path) for path in old]
        where = f"{self._store.address}/tables/{table}"
        if table == "ledger":
            folds: dict[tuple[TenantId, PolicyHash], LedgerFold] = {}
            for part in chain(self._batches(files, LEDGER), self._pages(pages, LEDGER)):
                for scope, rows in by_scope(part):
                    folds.setdefault(scope, LedgerFold(*scope, where)).add(rows)
            for scope in sorted(folds):
                yield from folds.pop(scope).tables()
            return
        parts = list(self._batches(files, TABLES[table]))
        if table == "triage":
            yield fold_by_id([*parts, *self._pages(pages, TRIAGE)], table)
        else:
            rows_of = (layer_table(page, table) for page in self._pages(pages, FINDINGS))
            yield fold_by_id([*parts, *rows_of], table)

    def _pages(self, keys: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
        def read(key: str) -> pa.Table:
            return parse_parquet(self._body(key), schema, f"{self._store.address}: {key}")

        return (page for _, page in read_each(read, keys))

    def _batches(self, keys: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
        for key in keys:
            yield from parse_batches(self._body(key), schema, f"{self._store.address}: {key}")

    def _body(self, key: str) -> bytes:
        found = self._store.get(key)
        if found is None:
            raise ObjectGone(f"{self._store.address}: {key}")
        return found.body

    def _write(self, table: str, group: str, parts: Iterable[pa.Table], old: Container[str]) -> Iterator[DataFile]:
        """Write data files, each under the digest of its bytes, and read them back; those the table has stay."""
        for body, rows in format_files(parts, TABLES[table], FILE_ROWS):
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
            yield DataFile(path, len(body), rows)

    def _check_time(self) -> None:
        if time.monotonic() - self._began_s > ORPHAN_GRACE_S / 2:
            raise Conflict("this compaction took too long to be committed", hint="run the command again")


def by_scope(table: pa.Table) -> Iterator[tuple[tuple[TenantId, PolicyHash], pa.Table]]:
    """Yield the rows of each tenant and policy."""
    scopes = table.group_by(["tenant", "policy"]).aggregate([]).to_pylist()
    for scope in scopes:
        is_one = len(scopes) == 1
        mask = pc.and_(pc.equal(table["tenant"], scope["tenant"]), pc.equal(table["policy"], scope["policy"]))
        yield (scope["tenant"], scope["policy"]), table if is_one else table.filter(mask)


def fold_by_id(tables: Sequence[pa.Table], name: str) -> pa.Table:
    """Return rows once for each tenant and id, sorted: observations merged, of equal rows the first commit."""
    table = pa.concat_tables(tables).combine_chunks()
    keys = ["tenant", _ID[name]]
    order = [(key, "ascending") for key in (*keys, "committed_ns")]
    table = table.take(pc.sort_indices(table, order)).combine_chunks()
    again = np.ones(max(0, len(table) - 1), np.bool_)
    for key in keys:
        column = table[key].combine_chunks()
        again &= pc.equal(column.slice(1), column.slice(0, max(0, len(column) - 1))).to_numpy(zero_copy_only=False)
    if not again.any():
        return table
    starts = np.concatenate([[True], ~again])
    group = np.cumsum(starts) - 1
    several = np.bincount(group)[group] > 1
    firsts = table.filter(pa.array(starts))
    if name != "observations":
        return firsts
    merged = _merged_observations(table.filter(pa.array(several)))
    together = pa.concat_tables([table.filter(pa.array(~several)), merged]).combine_chunks()
    return together.take(pc.sort_indices(together, order)).combine_chunks()


def _merged_observations(table: pa.Table) -> pa.Table:
    found: dict[tuple[bytes, bytes], tuple[ObservationRecord, int]] = {}
    for row in table.to_pylist():
        seen = observation_row(row)
        known, first_ns = found.get(seen[:2], (seen, row["committed_ns"]))
        found[seen[:2]] = findings_rules.merge(known, seen), min(first_ns, row["committed_ns"])
    rows = [(*seen, first_ns) for seen, first_ns in found.values()]
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
