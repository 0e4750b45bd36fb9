"""A durable scan of a DataFrame: tasks scan rows, this process commits them page by page, and keeps the inventory.

Scans of one table under one policy form a chain of runs with one shard each, as those of a journal do
(`journal_scan`): the shard's fence keeps a driver that was taken for dead from committing. The key of the cursor is the
number of items that the run committed. A row is done if the ledger has its version; so a scan that was killed goes on
behind its last page wherever Spark reads the rows from, and in whatever order.

Invariants: findings, then ledger, then cursor; a key that comes twice is refused; the inventory is written when
all rows are committed, and names every row of the table.
"""

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.detect import Limits, RuleSet, load_builtin
from strandline.errors import InvalidInput, Unavailable
from strandline.pipeline.commit import commit_page
from strandline.pipeline.held_shard import HeldShard
from strandline.pipeline.identity import (
    RuleFingerprint,
    SecretHash,
    VersionKind,
    object_version_id,
    stable_item_id,
    stable_item_ids,
)
from strandline.pipeline.pages import FoundSecret, Gaps, Item, PageBuilder, Scanned
from strandline.pipeline.scope import Boundary, BoundaryKind
from strandline.pipeline.stores import Stores
from strandline.protocol.shards import Cursor
from strandline.scan.inventory import ITEMS, Inventory, find_inventory, previous_finish, source_facts, write_inventory
from strandline.scan.plan.versions import ovids_of
from strandline.scan.policies import remember_policy
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.state import State
from strandline.spark.error_transport import transported_batches
from strandline.spark.journal_scan.scan import RunChain, format_position, parse_position
from strandline.spark.table_scan.frame import FrameSource
from strandline.spark.table_scan.rows import ROWS_DDL, scan_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE_ITEMS = 2_000
_INVENTORY_ROWS = 10_000


@dataclass(frozen=True)
class TableScanned:
    """The outcome of a scan: rows of the table, those scanned now, and findings in these."""

    rows: int
    scanned: int
    findings: int
    allowed: int


def scan_table(  # noqa: PLR0913 - each is an option of a scan
    spark: "SparkSession",  # noqa: ARG001 - every function of the library begins with it
    df: "DataFrame",
    state: State,
    *,
    name: str,
    key: str | Sequence[str],
    version: str | None = None,
    columns: Sequence[str] | None = None,
    rules: RuleSet | None = None,
    limits: Limits | None = None,
    lease_ttl_s: float = 30.0,
) -> TableScanned:
    """Scan a DataFrame into a state (`strandline.scan.open_state`), each row once by its key and version.

    `version` is a column that changes with the row (a time of change, a row version); without it rows are compared by
    their content. The same call again goes on after a crash, and scans new and changed rows. Workers open the
    state themselves: with SQLite they have to be on this machine.
    """
    source = FrameSource.named(name, key=key, version=version, columns=columns)
    source.check(df.columns)
    if df.isStreaming:
        raise InvalidInput("a stream has no end", hint="use scan_stream, or foreachBatch with scan_table")
    request = ScanRequest(
        sources=(source,),
        rules=rules or load_builtin(),
        tenant=state.tenant,
        key=state.key,
        address=state.address,
        limits=limits or Limits(),
        coordination=state.coordination,
        lease_ttl_s=lease_ttl_s,
    )
    wanted = source.read_columns()
    kept = df.select(*wanted) if wanted else df
    rows = kept.mapInArrow(partial(transported_batches, scan_rows, request), ROWS_DDL)
    return commit_rows(request, (row.asDict() for row in rows.toLocalIterator(prefetchPartitions=True)))


def commit_rows(request: ScanRequest, rows: Iterable[Mapping[str, Any]]) -> TableScanned:
    """Commit the results of tasks, and keep the inventory."""
    with request.open_stores() as stores:
        retried(lambda: remember_policy(stores, request.tenant, request.policy.record))
        chain = _TableRuns(stores, request)
        scan = _TableScan(stores, request, chain.take())
        for item in _items(rows):
            scan.add(item)
        outcome = scan.finish()
        chain.end(scan.shard)
        return outcome


class _TableRuns(RunChain):
    """The runs of a table, one after another; a new one begins with nothing done."""

    def __init__(self, stores: Stores, request: ScanRequest) -> None:
        super().__init__(stores, request, request.sources[0])  # type: ignore[arg-type]

    def _start(self) -> int:
        return 0


def _items(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows of each item: the one with its sums, and those of its findings."""
    item: list[Mapping[str, Any]] = []
    for row in rows:
        if row["rule"] is None and item:
            yield item
            item = []
        item.append(row)
    if item:
        yield item


class _TableScan:
    """One scan: pages that are committed, and the rows of the inventory."""

    def __init__(self, stores: Stores, request: ScanRequest, shard: HeldShard) -> None:
        self.shard = shard
        self._stores = stores
        self._request = request
        (self._source,) = request.sources
        self._builder = PageBuilder(shard.context(request.policy_hash))
        self._started_ns = time.time_ns()
        self._renewed_s = time.monotonic()
        self._done = parse_position(shard.cursor.key or shard.spec.start)
        self._seen: dict[bytes, bytes] = {}
        self._scanned = self._found = self._allowed = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add an item; a page that is full is committed."""
        head = rows[0]
        locator, version = bytes(head["locator"]), bytes(head["version"])
        if locator in self._seen:
            problem = f"the key of a row of {self._source.name} is there twice"
            raise InvalidInput(problem, hint="choose key columns that name each row once")
        self._seen[locator] = version
        if not head["done"]:
            item = Item(stable_item_id(self._source.tag, self._source.instance, locator), object_version_id(version))
            gaps = Gaps(head["members"], head["decodes"], head["dropped"])
            self._builder.add(item, Scanned(head["bytes"], [_found(row) for row in rows[1:]], gaps))
            self._scanned += 1
            self._found += len(rows) - 1
            self._allowed += head["allowed"]
        if len(self._builder) >= PAGE_ITEMS:
            self._flush()
        elif time.monotonic() - self._renewed_s > self._request.lease_ttl_s / 3:
            self._renew()

    def finish(self) -> TableScanned:
        """Commit the rest, and keep the inventory."""
        self._flush()
        retried(self._keep_inventory)
        return TableScanned(len(self._seen), self._scanned, self._found, self._allowed)

    def _flush(self) -> None:
        if not len(self._builder):
            return
        self._done += len(self._builder)
        page = self._builder.page(Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(format_position(self._done))))
        retried(lambda: commit_page(page, self._stores.findings, self._stores.ledger, self.shard))
        self._renew()

    def _renew(self) -> None:
        with suppress(Unavailable):  # the next commit tells
            self.shard.renew()
        self._renewed_s = time.monotonic()

    def _keep_inventory(self) -> None:
        state, request = self._stores.state, self._request
        sources = source_facts(request.sources)
        before = find_inventory(state, request.tenant, request.inputs_digest)
        head = Inventory(
            request.inputs_digest.hex(),
            request.policy_hash,
            time.time_ns(),
            None,
            sources,
            len(self._seen),
            before.stamp if before else secrets.randbits(63),
            before.chunks if before else 0,
            self._started_ns,
            previous_finish(state, request.tenant, request.inputs_digest, sources),
        )
        write_inventory(state, request.tenant, head, self._inventory_rows())

    def _inventory_rows(self) -> Iterator[pa.RecordBatch]:
        pairs = list(self._seen.items())
        for at in range(0, len(pairs), _INVENTORY_ROWS):
            locators, versions = (list(column) for column in zip(*pairs[at : at + _INVENTORY_ROWS], strict=True))
            items = stable_item_ids(self._source.tag, self._source.instance, locators).to_pylist()
            ovids = ovids_of(items, versions, VersionKind.STRONG)
            columns = {
                "item": items,
                "ovid": ovids,
                "path": [self._source.display(one, None).encode(errors="surrogateescape") for one in locators],
                "source": [0] * len(items),
                "locator": locators,
                "version": versions,
                "weak": [False] * len(items),
            }
            nothing = [None] * len(items)
            yield pa.record_batch([pa.array(columns.get(one.name, nothing), one.type) for one in ITEMS], ITEMS)


def _found(row: Mapping[str, Any]) -> FoundSecret:
    rule, secret = RuleFingerprint(bytes(row["rule"])), SecretHash(bytes(row["secret"]))
    return FoundSecret(rule, secret, row["start"], row["end"], row["display"], row["url"])
