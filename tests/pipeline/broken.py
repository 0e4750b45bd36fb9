"""Stores that each break a promise, as a hasty implementation might; the contract has to catch every one.

A broken store derives from its twin in memory, and `caught_by` names the checks that have to catch it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from strandline.errors import StrandlineError
from strandline.pipeline import ledger as rules
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, KeyMismatch
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.memory import MemoryFindings, MemoryLedger, MemoryTables
from strandline.pipeline.memory_reads import MemoryReads
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import MemoryState
from strandline.testing import CheckedPersistence
from tests.pipeline.backends import memory_stores
from tests.waiting import PATIENCE_S

Store = TypeVar("Store", bound=type)
Batch = TypeVar("Batch")

CAUGHT: list[tuple[type, str]] = []
"""Which check has to catch which store; together they are all checks."""


def caught_by(*checks: str) -> Callable[[Store], Store]:
    """Say which checks have to catch a store."""

    def listed(store: Store) -> Store:
        CAUGHT.extend((store, check) for check in checks)
        return store

    return listed


WRITERS = 4
"""How many write at once where a check lets several of them do so."""


class Crossing(Generic[Batch]):
    """Lets writers that have read wait until all have, and then writes what they bring in an order of its own."""

    def __init__(self, writers: int, write: Callable[[list[Batch]], None]) -> None:
        self._brought: list[Batch] = []
        self._write = write
        self._all = threading.Barrier(writers, self._cross)

    def wait(self, batch: Batch) -> None:
        """Bring something, and return when all of it is written."""
        self._brought.append(batch)
        self._all.wait(PATIENCE_S)

    def _cross(self) -> None:
        brought, self._brought = self._brought, []
        self._write(brought)


def stores_with(store: type[Any]) -> CheckedPersistence:
    """Return stores in memory of which one is broken."""
    whole = memory_stores()
    assert isinstance(whole.ledger, MemoryLedger)
    tables = whole.ledger.tables
    if issubclass(store, MemoryState):
        return replace(whole, state=store(tables.fence_of))
    if issubclass(store, MemoryTables):
        own = store(tables.clock, tables.fence_of)
        findings = MemoryFindings(own)
        parts = MemoryLedger(own), findings, findings, findings, MemoryReads(own)
        return CheckedPersistence(*parts, whole.state, whole.clock, whole.set_fence)
    if issubclass(store, MemoryLedger):
        return replace(whole, ledger=store(tables))
    if issubclass(store, MemoryReads):
        return replace(whole, reads=store(tables))
    broken = store(tables)
    return replace(whole, findings=broken, triage=broken, policies=broken)


# The ledger: merging.


class OwnMerge(MemoryLedger):
    """Merges by a rule of its own, given the row that is there and the one that comes."""

    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        return rules.merge(old, new)

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        known = dict(self.tables.ledger)
        receipt = super().batch_upsert(records, after=after)
        for row in rules.fold(records):
            old = known.get(row.key)
            self.tables.ledger[row.key] = row if old is None else self.merge(old, row)
        return receipt


@caught_by("ledger/idempotent")
class AddsBytes(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        return rules.merge(old, new)._replace(bytes_seen=old.bytes_seen + new.bytes_seen)


@caught_by("ledger/fail_then_scan")
class KeepsTheFirst(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:  # noqa: ARG002
        return old


@caught_by("ledger/scan_then_fail", "ledger/a_late_write_of_an_unknown_shard_is_harmless")
class KeepsTheLast(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:  # noqa: ARG002
        return new


@caught_by("ledger/a_late_write_of_an_unknown_shard_is_harmless")
class TheLastWriterTakesOver(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        return rules.merge(old, new)._replace(run_id=new.run_id, shard_id=new.shard_id, fence=new.fence)


@caught_by("ledger/gaps_are_those_of_one_look")
class TakesTheSmallestOfEveryGap(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        members, decodes, dropped = map(min, old.gaps, new.gaps)
        merged = rules.merge(old, new)
        return merged._replace(members_skipped=members, decodes_skipped=decodes, findings_dropped=dropped)


@caught_by("ledger/every_pair_of_statuses_gives_the_larger")
class PrefersSkippedToPartial(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        by_status = {row.status: row for row in (old, new)}
        if set(by_status) == {DoneStatus.SKIPPED, DoneStatus.SCANNED_PARTIAL}:
            return by_status[DoneStatus.SKIPPED]
        return rules.merge(old, new)


@caught_by("ledger/rows_in_every_order_end_as_their_fold")
class LetsTheFirstWinTies(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        merged = rules.merge(old, new)
        if (old.status, old.finished_at, old.started_at) == (new.status, new.finished_at, new.started_at):
            return merged._replace(run_id=old.run_id, shard_id=old.shard_id, fence=old.fence)
        return merged


@caught_by("ledger/rows_in_every_order_end_as_their_fold")
class ComparesCodesLikeADictionary(OwnMerge):
    def merge(self, old: LedgerRecord, new: LedgerRecord) -> LedgerRecord:
        merged = rules.merge(old, new)
        codes = [code for code in (old.error_code, new.error_code) if code]
        if old.status == new.status and old[10:15] == new[10:15]:
            return merged._replace(error_code=max(codes, key=str.lower, default=None))
        return merged


@caught_by("ledger/weak_and_strong_rows_of_one_key_are_not_merged")
class MergesWeakWithStrong(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        try:
            return super().batch_upsert(records, after=after)
        except KeyMismatch:
            strong = [row._replace(weak=False) for row in records]
            return super().batch_upsert(strong, after=after)


@caught_by("ledger/what_was_seen_in_part_is_not_clean", "reads/what_an_item_hides_is_not_clean")
class TakesPartialForClean(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        return super().batch_upsert([_cleaned(row) for row in records], after=after)


def _cleaned(row: LedgerRecord) -> LedgerRecord:
    if row.status != DoneStatus.SCANNED_PARTIAL or not any(row.gaps):
        return row
    none: dict[str, Any] = dict.fromkeys(("members_skipped", "decodes_skipped", "findings_dropped"), 0)
    return row._replace(status=DoneStatus.SCANNED_CLEAN, **none)


@caught_by("ledger/rows_of_one_key_in_one_batch_are_merged")
class TakesTheLastOfABatch(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        return super().batch_upsert(list({row.key: row for row in records}.values()), after=after)


@caught_by("ledger/writers_at_once_lose_no_row")
class ReadsThenWrites(MemoryLedger):
    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self._all_have_read = Crossing(WRITERS, self._write)

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        known = dict(self.tables.ledger)
        self._all_have_read.wait([(known.get(row.key), row) for row in rules.fold(records)])
        return rules.receipt(rules.fold(records), after)

    def _write(self, batches: list[list[tuple[LedgerRecord | None, LedgerRecord]]]) -> None:
        for batch in sorted(batches, key=lambda batch: -batch[0][1].status):  # what should win is written first
            for old, row in batch:
                self.tables.ledger[row.key] = row if old is None else rules.merge(old, row)


@caught_by("ledger/numbers_at_their_limits_come_back")
class KeepsThirtyTwoBits(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        receipt = super().batch_upsert(records, after=after)
        for key, row in self.tables.ledger.items():
            self.tables.ledger[key] = row._replace(bytes_seen=row.bytes_seen % 2**32)
        return receipt


# The ledger: reading.


@caught_by("ledger/batch_get_positional")
class LeavesOutWhatIsMissing(MemoryLedger):
    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        return [row for row in super().batch_get(tenant, policy, ovids) if row]


@caught_by("ledger/batch_get_positional")
class AnswersInItsOwnOrder(MemoryLedger):
    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        return super().batch_get(tenant, policy, sorted(ovids))


@caught_by("ledger/a_row_is_its_tenants_and_its_policys_alone")
class LooksEverywhere(MemoryLedger):
    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        anybodys = {key[2]: row for key, row in self.tables.ledger.items()}
        found = super().batch_get(tenant, policy, ovids)
        return [row or anybodys.get(ovid) for row, ovid in zip(found, ovids, strict=True)]


@caught_by("ledger/keys_that_begin_alike_are_different")
class LooksAtSixteenBytes(MemoryLedger):
    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        known = {key[2][:16]: row for key, row in self.tables.ledger.items() if key[:2] == (tenant, policy)}
        return [known.get(ovid[:16]) for ovid in ovids]


@caught_by("ledger/list_done_hashes", "ledger/what_may_be_retried_is_listed_once_it_is_done")
class ListsWhatMayBeRetried(MemoryLedger):
    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        return sorted(key[2] for key in self.tables.ledger if key[:2] == (tenant, policy))


@caught_by("ledger/list_done_hashes")
class ListsEverybodys(MemoryLedger):
    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        return sorted(row.ovid for row in self.tables.ledger.values() if row.suppresses and policy and tenant)


@caught_by("ledger/what_may_be_retried_is_listed_once_it_is_done")
class ListsWhatWasDoneAtFirst(MemoryLedger):
    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        listed = super().list_done_hashes(tenant, policy)
        return [ovid for ovid in listed if DoneStatus.FAILED_RETRYABLE not in self._times(tenant, policy, ovid)]

    def _times(self, *key: Any) -> dict[DoneStatus, int]:  # noqa: ANN401
        return self.tables.ledger_ns[key]


@caught_by("ledger/a_weak_version_never_suppresses")
class TrustsWeakVersions(MemoryLedger):
    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        rows = [row for key, row in self.tables.ledger.items() if key[:2] == (tenant, policy)]
        return sorted(row.ovid for row in rows if row.status.is_terminal)


# The ledger: refusing.


@caught_by("ledger/a_receipt_counts_distinct_rows", "ledger/rows_of_one_key_in_one_batch_are_merged")
class CountsEveryRow(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        return replace(super().batch_upsert(records, after=after), record_count=len(records))


@caught_by(
    "ledger/rows_of_another_page_are_refused",
    "ledger/other_keys_than_the_pages_are_refused",
    "ledger/numbers_beyond_their_limits_are_refused",
    "ledger/a_rank_that_is_not_in_the_lattice_is_refused",
    "ledger/rows_that_contradict_themselves_are_refused",
    "ledger/error_codes_are_short_plain_words",
    "ledger/ids_of_another_length_are_refused",
    "ledger/a_stale_fence_is_refused",
    "ledger/weak_and_strong_rows_of_one_key_are_not_merged",
)
class GoesOnAfterAnError(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        try:
            return super().batch_upsert(records, after=after)
        except StrandlineError:
            return rules.receipt([], after)


@caught_by(
    "ledger/rows_of_another_page_are_refused",
    "ledger/other_keys_than_the_pages_are_refused",
    "ledger/numbers_beyond_their_limits_are_refused",
    "ledger/a_rank_that_is_not_in_the_lattice_is_refused",
    "ledger/rows_that_contradict_themselves_are_refused",
    "ledger/error_codes_are_short_plain_words",
    "ledger/a_stale_fence_is_refused",
    "ledger/weak_and_strong_rows_of_one_key_are_not_merged",
    "ledger/ten_thousand_rows_are_a_batch_and_one_more_is_not",
)
class WritesTheFirstRowsAnyway(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        try:
            return super().batch_upsert(records, after=after)
        except StrandlineError:
            for row in records[:1]:
                self.tables.ledger.setdefault(row.key, row)
            raise


@caught_by("ledger/ten_thousand_rows_are_a_batch_and_one_more_is_not")
class SplitsLargeBatches(MemoryLedger):
    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        first, rest = ovids[:BATCH_ROWS_MAX], ovids[BATCH_ROWS_MAX:]
        return super().batch_get(tenant, policy, first) + (self.batch_get(tenant, policy, rest) if rest else [])


@caught_by("ledger/ten_thousand_rows_are_a_batch_and_one_more_is_not")
class RefusesTenThousand(MemoryLedger):
    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        if len(records) >= BATCH_ROWS_MAX:
            raise BatchTooLarge(len(records))
        return super().batch_upsert(records, after=after)


@caught_by("ledger/a_stale_fence_is_refused", "findings/a_stale_fence_is_refused")
class IgnoresFences(MemoryTables):
    def check_fence(self, context: WriteContext) -> None:
        pass


@caught_by("ledger/a_stale_fence_is_refused", "findings/a_stale_fence_is_refused")
class KnowsOneFenceForAll(MemoryTables):
    def check_fence(self, context: WriteContext) -> None:
        super().check_fence(context._replace(run_id=7, shard_id=-3))
