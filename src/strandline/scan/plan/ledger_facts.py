"""Rows of the ledger as columns beside a listing."""

from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter

import pyarrow as pa

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import AdvisoryLedger, DoneLedger, DoneStatus, LedgerRecord

FACTS = pa.schema(
    [
        ("status", pa.int8()),
        ("code", pa.string()),
        ("bytes_seen", pa.int64()),
        ("findings", pa.int32()),
        ("members_skipped", pa.int64()),
        ("decodes_skipped", pa.int64()),
        ("findings_dropped", pa.int64()),
    ]
)
"""All null where the ledger has no row."""
_NOTHING = (None,) * len(FACTS)
_COLUMNS = ("status", "error_code", "bytes_seen", "findings_count", *FACTS.names[4:])
_facts = itemgetter(*map(LedgerRecord._fields.index, _COLUMNS))


def ledger_rows(
    ledger: DoneLedger,
    tenant: TenantId,
    policy: PolicyHash,
    ovids: Sequence[OvidHash | None],
    *,
    advisory_run: int | None = None,
) -> list[LedgerRecord | None]:
    """Return the ledger's rows of keys, in their order; None for a key that is not known, or has no row.

    With `advisory_run` the latest rows, and those of that run, may be missing (`AdvisoryLedger`).
    """
    get = ledger.batch_get
    if advisory_run is not None and isinstance(ledger, AdvisoryLedger):
        get = partial(ledger.batch_get_advisory, run_id=advisory_run)
    asked = [ovid for ovid in ovids if ovid is not None]
    found: list[LedgerRecord | None] = []
    for begin in range(0, len(asked), BATCH_ROWS_MAX):
        found += get(tenant, policy, asked[begin : begin + BATCH_ROWS_MAX])
    if len(asked) == len(ovids):
        return found
    rows = iter(found)
    return [None if ovid is None else next(rows) for ovid in ovids]


def ledger_columns(rows: Iterable[LedgerRecord | None]) -> pa.RecordBatch:
    """Return rows of the ledger as columns."""
    cells = [_NOTHING if row is None else _facts(row) for row in rows]
    columns = list(zip(*cells, strict=True)) or [()] * len(FACTS)
    return pa.record_batch([pa.array(cell, kind) for cell, kind in zip(columns, FACTS.types, strict=True)], FACTS)


def is_done(row: LedgerRecord | None, problem: str | None) -> bool:
    """Return whether an item is done: it was scanned, or its problem is recorded already."""
    if row is None or row.status == DoneStatus.FAILED_RETRYABLE:
        return False
    return row.error_code == problem if problem is not None else not row.weak
