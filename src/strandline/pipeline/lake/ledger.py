"""The done-ledger in object storage: a page of rows is one object, and a row is the merge of all pages that have it.

Invariants: a page is written whole or not at all, under a name of its rows and its writer; writers of one shard are
fenced by its record, which is read before. A zombie that was not refused only adds rows that merge.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.commit import check_items, check_valid
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, KeyMismatch
from strandline.pipeline.identity import DIGEST_BYTES, OvidHash, PolicyHash, TenantId
from strandline.pipeline.lake.columns import digest_of, ledger_table, page_table
from strandline.pipeline.lake.layout import PageName
from strandline.pipeline.lake.page_cache import PageCache
from strandline.pipeline.ledger import LedgerRecord, fold, receipt
from strandline.pipeline.page_rows import PageRows
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import FenceOf, WriteContext, check_fence, unknown_fence


class LakeLedger:
    """The done-ledger of a lake."""

    def __init__(self, cache: PageCache, fence_of: FenceOf = unknown_fence) -> None:
        self._cache = cache
        self._fence_of = fence_of

    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        """Return a row for each key, in their order; None where there is none."""
        if len(ovids) > BATCH_ROWS_MAX:
            raise BatchTooLarge(len(ovids))
        return self._cache.ledger(tenant, policy).rows(ovids) if ovids else []

    def batch_get_advisory(
        self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash], *, run_id: int
    ) -> list[LedgerRecord | None]:
        """Return rows as `batch_get` does, but the latest ones, and those of other shards of a run, may be missing."""
        if len(ovids) > BATCH_ROWS_MAX:
            raise BatchTooLarge(len(ovids))
        return self._cache.advisory_ledger(tenant, policy, run_id).rows(ovids) if ovids else []

    def get_columns(
        self, tenant: TenantId, policy: PolicyHash, ovids: pa.Array, names: Sequence[str]
    ) -> list[pa.Array]:
        """Return some columns of the rows of keys, in their order; null where a key is null or has no row."""
        return self._cache.ledger(tenant, policy).columns(ovids, names)

    def hold(self, moment: object) -> None:
        """Answer from the pages that are there at the first question of a moment; None is each question's own."""
        self._cache.hold(moment)

    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        """Return the keys that are done under the policy, sorted."""
        return self._cache.ledger(tenant, policy).done()

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        """Write rows as one page, and return once it is durable."""
        check_valid(records)
        check_items(records, after)
        context, now_ns = after.scope.context, self._cache.clock.now_ns()
        if isinstance(records, PageRows) and len(records) == after.scope.units.count:  # each key once
            table = page_table(records, now_ns)
            done = receipt(records.others, after, clean=len(records.clean.ovids))
        else:
            rows = fold(records)
            table, done = ledger_table(rows, now_ns), receipt(rows, after)
        table = table.sort_by("ovid")
        check_fence(context, self._fence_of(context.tenant, context.run_id, context.shard_id))
        self._check_known(context, table)
        name = PageName.of("ledger", context, digest_of(table))
        self._cache.write(name, table)
        self._cache.remember_ledger(context.tenant, context.policy, name, table)
        return done

    def _check_known(self, context: WriteContext, table: pa.Table) -> None:
        """Refuse rows of strong versions whose keys are known to be of weak ones, or the other way round."""
        ledger = self._cache.known_ledger(context.tenant, context.policy)
        (known,) = ledger.columns(table["ovid"].combine_chunks().cast(pa.binary(DIGEST_BYTES)), ("weak",))
        if pc.any(pc.not_equal(known, table["weak"])).as_py():
            raise KeyMismatch("ledger rows", "keys")
