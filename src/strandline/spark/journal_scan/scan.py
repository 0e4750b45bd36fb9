"""A durable scan of a journal as it grows: the stream's cursor is a shard's cursor, and lives nowhere else.

    readStream      records from the cursor on, through the format `strandline`
    tasks           scan parts of blocks (`parts`); only hashes and places leave them
    foreachBatch    the inventory (`stream_inventory`), then one page: findings, ledger, then the cursor, under the
                    shard's fence

A scan of one journal under one policy has one run with one shard at a time. The key of the cursor is the offset after
the last record that is done. A scan that ends completes its run, and the next begins another where that one ended; a
scan that was killed leaves its run, and the next takes the shard once the lease is over.

Invariants: Spark's checkpoint is thrown away: every start makes a new one and begins at the cursor, so that batches
which Spark repeats or forgets change nothing; a driver that lost its lease commits nothing more.
"""

import os
import secrets
import threading
import time
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strandline.clock import SystemClock
from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.journal import JournalReader
from strandline.pipeline.commit import commit_page
from strandline.pipeline.coordination import NoneAvailable, Throttled
from strandline.pipeline.held_shard import HeldShard, claim
from strandline.pipeline.pages import PageBuilder
from strandline.pipeline.scope import Boundary, BoundaryKind
from strandline.pipeline.state import Put
from strandline.pipeline.stores import Stores
from strandline.protocol.canonical import derive, derive_64
from strandline.protocol.canonical import u64 as little
from strandline.protocol.errors import OpIdConflict, RunExists, RunNotFound, RunNotInitializing, RunTerminal
from strandline.protocol.operations import op_id
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, OpKind, RunKey, ShardSpec
from strandline.scan.policies import remember_policy
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.run.totals import Totals, format_totals, parse_totals
from strandline.scan.sources import JournalSource
from strandline.scan.sources.journals import BLOCK_OFFSETS
from strandline.spark.ephemeral_query import EphemeralQuery
from strandline.spark.error_transport import transported_batches
from strandline.spark.journal_scan.blocks import ROWS_DDL, BlockPart, BlockScanner, merge_block_parts, scan_blocks
from strandline.spark.journal_scan.inventory import StreamInventory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_PER_TRIGGER = 48 * BLOCK_OFFSETS
"""Whole blocks, so that a stream that catches up names the same versions as a bounded scan."""
_KEY_BYTES = 8
_CLAIM_PAUSE_S = 0.1


class JournalTaken(Unavailable):
    """Another scan of the same journal, under the same policy, is at work."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another scan of {name} is at work", hint="wait for it; after a crash, for its lease to be over"
        )
        self.name = name


def format_position(offset: int) -> bytes:
    """Return the key of a cursor: everything below the offset is done. Keys sort as offsets do."""
    return offset.to_bytes(_KEY_BYTES, "big")


def parse_position(key: bytes) -> int:
    """Return the offset of a cursor's key."""
    if len(key) != _KEY_BYTES:
        raise InvalidInput(f"a position has {_KEY_BYTES} bytes, and this one {len(key)}")
    return int.from_bytes(key, "big")


def scan_journal(
    spark: "SparkSession",
    request: ScanRequest,
    *,
    follow: bool = False,
    records_per_trigger: int = RECORDS_PER_TRIGGER,
    refuse_loss: bool = True,
) -> "JournalScan":
    """Start a scan of the request's one journal from where the last one came to; with `follow`, until it is stopped.

    Use it in a `with` statement, and `wait` for it. `JournalTaken` where another scan holds it for longer than a lease.
    """
    (source, *others) = request.sources
    if others or not isinstance(source, JournalSource):
        raise InvalidInput("a streaming scan takes one journal", hint="JournalSource.at(folder)")
    if ".connect." in type(spark).__module__:
        raise InvalidInput(
            "a streaming scan commits in this process, and with Spark Connect a batch is applied in another",
            hint="use a session of strandline.spark.session(), or any that is not remote",
        )
    stores = request.open_stores()
    try:
        remember_policy(stores, request.tenant, request.policy.record)
        chain = RunChain(stores, request, source)
        scan = JournalScan(stores, request, source, chain, chain.take())
    except BaseException:
        stores.close()
        raise
    options = {
        "maxRecordsPerTrigger": str(records_per_trigger),
        "startingOffset": str(scan.offset),
        "failOnDataLoss": str(refuse_loss).lower(),
    }
    try:
        scan.start(spark, options, follow=follow)
    except BaseException:
        scan.stop()
        raise
    return scan


class RunChain:
    """The runs of the streaming scans of a journal under a policy, one after another."""

    def __init__(self, stores: Stores, request: ScanRequest, source: JournalSource) -> None:
        self._stores = stores
        self._request = request
        self._source = source
        self._digest = derive("strandline/stream-scan/v1", request.tenant + request.digest)
        self._ordinal = self._hint()

    def take(self) -> HeldShard:
        """Return the shard of the current run, beginning one where there is none."""
        worker = secrets.randbits(63)
        give_up_s = time.monotonic() + 2 * self._request.lease_ttl_s
        while True:
            self._begin()
            try:
                held = claim(self._stores.coordinator, self._key(), worker, SystemClock())
            except RunTerminal:
                continue
            if not isinstance(held, NoneAvailable | Throttled):
                return held
            if not self._stores.coordinator.progress(self._key()).active:
                self._complete()  # its holder died after the shard was done, and before the run was
                continue
            if time.monotonic() >= give_up_s:
                raise JournalTaken(self._source.name)
            time.sleep(_CLAIM_PAUSE_S)

    def end(self, shard: HeldShard) -> None:
        """Complete the run at the shard's cursor, so that the next scan need not wait for a lease."""
        shard.complete()
        self._complete()
        self._stores.state.apply_batch(self._request.tenant, [Put(self._hint_key(), little(self._ordinal))])

    def _complete(self) -> None:
        key = self._key()
        with suppress(RunTerminal):
            self._stores.coordinator.complete_run(time.time_ns(), key, op_id(key.run, 0, 0, OpKind.COMPLETE_RUN))

    def _begin(self) -> None:
        """Go to the first run that is not over, and give it its shard if it has none."""
        coordinator = self._stores.coordinator
        while True:
            try:
                record = coordinator.get_run(self._key())
            except RunNotFound:
                break
            if not record.over:
                break
            self._ordinal += 1
        key, start = self._key(), self._start()
        op = op_id(key.run, secrets.randbits(63), 0, OpKind.REGISTER_SHARDS)
        shards = [InitialShard(0, ShardSpec(format_position(start)))]
        with suppress(RunExists):
            coordinator.create_run(time.time_ns(), key, op_id(key.run, 0, 0, OpKind.CREATE_RUN))
        with suppress(RunNotInitializing, RunTerminal, OpIdConflict):  # it has one
            coordinator.register_shards(time.time_ns(), key, shards, op)

    def _start(self) -> int:
        """Return where a new run begins: at the end of the one before, or with the first record there is."""
        if self._ordinal:
            before = self._key(self._ordinal - 1)
            (shard,) = self._stores.coordinator.list_shards(before)
            return parse_position(shard.cursor.key or shard.spec.start)
        with JournalReader.open(os.fsdecode(self._source.folder)) as reader:
            return reader.first_offset

    def _key(self, ordinal: int | None = None) -> RunKey:
        number = little(self._ordinal if ordinal is None else ordinal)
        return RunKey(self._request.tenant, derive_64("strandline/stream-run/v1", self._digest + number) >> 1)

    def _hint_key(self) -> bytes:
        return b"stream/" + self._digest

    def _hint(self) -> int:
        (value,) = self._stores.state.multi_get(self._request.tenant, [self._hint_key()])
        return 0 if value is None else int.from_bytes(value, "little")


class JournalScan:
    """A running scan; `offset` is its position, and `totals` are the counts of its run."""

    def __init__(
        self, stores: Stores, request: ScanRequest, source: JournalSource, chain: RunChain, shard: HeldShard
    ) -> None:
        """Use `scan_journal`."""
        self._stores = stores
        self._request = request
        self._source = source
        self._chain = chain
        self._shard = shard
        writer = shard.context(request.policy_hash)
        self._builder = PageBuilder(writer)
        self._lock = threading.Lock()
        """A shard is used by one thread at a time: that of a batch, or the one that renews."""
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="strandline-renew", daemon=True)
        self.offset = parse_position(shard.cursor.key or shard.spec.start)
        self.totals: Totals = parse_totals(shard.cursor.token)
        with JournalReader.open(os.fsdecode(source.folder)) as reader:
            begin, end = reader.first_offset, reader.next_offset
        self._inventory = StreamInventory(stores.state, request, source, writer, begin=begin, done=self.offset, end=end)
        self._query = EphemeralQuery()

    def start(self, spark: "SparkSession", options: dict[str, str], *, follow: bool) -> None:
        """Start the query."""
        self._renewing.start()
        folder = os.fsdecode(self._source.folder)
        stream = spark.readStream.format("strandline").options(**options).load(folder)
        self._query.start(stream, self._apply, follow=follow)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the scan has ended; one that follows ends only by `stop`. Raises the error that ended it."""
        return self._query.wait(timeout_s)

    def stop(self) -> None:
        """End the query, the run and the lease; twice is harmless."""
        if self._ended.is_set():
            return
        self._ended.set()
        try:
            self._query.stop()
            with self._lock:
                if self._shard.is_held:
                    self._chain.end(self._shard)
        finally:
            self._stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _apply(self, batch: "DataFrame", _number: int) -> None:
        """Scan a batch in tasks and commit it as a page; a batch that is not beyond the cursor was committed before."""
        request = self._request
        scanner = BlockScanner(self._source, request.rules, request.limits, request.key)
        rows = batch.mapInArrow(partial(transported_batches, scan_blocks, scanner), ROWS_DDL).toArrow().to_pylist()
        parts = [part for part in merge_block_parts(rows) if part.next > self.offset]
        if parts:
            self._commit(parts)

    def _commit(self, parts: list[BlockPart]) -> None:
        seen = Totals(items=len(parts))
        for part in parts:
            self._builder.add(part.item(self._source), part.scanned())
            counts = Totals(bytes=part.sums["bytes"], findings=len(part.found), allowed=part.sums["allowed"])
            seen = seen.plus(counts)
        after = self.totals.plus(seen)._replace(moved_at=self._shard.lease.fence)
        cursor = Cursor(format_position(parts[-1].next), format_totals(after))
        page = self._builder.page(Boundary(BoundaryKind.ORDERED_CONTENT, cursor))
        retried(lambda: self._inventory.add(parts))
        with self._lock:
            retried(lambda: commit_page(page, self._stores.findings, self._stores.ledger, self._shard))
        self.offset, self.totals = parts[-1].next, after

    def _renew(self) -> None:
        """Keep the lease while the scan is at work, also when no records arrive."""
        while not self._ended.wait(self._request.lease_ttl_s / 3):
            with self._lock:
                if not self._shard.is_held:
                    return
                try:
                    self._shard.renew()
                except StrandlineError as error:
                    if not error.retryable:
                        return  # the next commit tells
