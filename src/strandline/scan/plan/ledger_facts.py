"""Rows of the ledger as columns beside a listing."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from strandline.lazy_imports import deferred
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.ledger import AdvisoryLedger, ColumnarLedger, DoneLedger, DoneStatus, LedgerRecord

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:  # reports need the schemas alone
    pc = deferred("pyarrow.compute")

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
ANSWER = pa.schema([*FACTS, ("run_id", pa.int64()), ("shard_id", pa.int64()), ("fence", pa.int64())])
"""A row of the ledger with its writer; all null where there is none."""
_NOTHING = (None,) * len(FACTS)
_COLUMNS = ("status", "error_code", "bytes_seen", "findings_count", *FACTS.names[4:])
_WRITER = ("run_id", "shard_id", "fence")
_facts = itemgetter(*map(LedgerRecord._fields.index, _COLUMNS))
_answer = itemgetter(*map(LedgerRecord._fields.index, (*_COLUMNS, *_WRITER)))


class RowWriter(NamedTuple):
    """Who wrote a row of the ledger."""

    run_id: int
    shard_id: int
    fence: int


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


def no_facts(rows: int) -> pa.RecordBatch:
    """Return the columns of so many items without a row."""
    return pa.record_batch([pa.nulls(rows, kind) for kind in FACTS.types], FACTS)


def ledger_columns(rows: Iterable[LedgerRecord | None]) -> pa.RecordBatch:
    """Return rows of the ledger as columns."""
    cells = [_NOTHING if row is None else _facts(row) for row in rows]
    columns = list(zip(*cells, strict=True)) or [()] * len(FACTS)
    return pa.record_batch([pa.array(cell, kind) for cell, kind in zip(columns, FACTS.types, strict=True)], FACTS)


def ledger_answers(ledger: DoneLedger, tenant: TenantId, policy: PolicyHash, ovids: pa.Array) -> pa.RecordBatch:
    """Return the ledger's rows of keys as columns of `ANSWER`, in their order; null for a key that is null."""
    if isinstance(ledger, ColumnarLedger):
        columns = ledger.get_columns(tenant, policy, ovids, (*_COLUMNS, *_WRITER))
        return pa.record_batch(columns, ANSWER)
    return answer_columns(ledger_rows(ledger, tenant, policy, ovids.to_pylist()))


def with_row(ledger: DoneLedger, tenant: TenantId, policy: PolicyHash, ovids: pa.Array) -> pa.Array:
    """Return the keys, and null for those that are known to have no row: most of a first scan."""
    if not isinstance(ledger, ColumnarLedger) or ovids.null_count == len(ovids):
        return ovids
    (status,) = ledger.get_columns(tenant, policy, ovids, ("status",))
    return pc.if_else(pc.is_valid(status), ovids, pa.scalar(None, ovids.type))


def answer_columns(rows: Iterable[LedgerRecord | None]) -> pa.RecordBatch:
    """Return rows of the ledger as columns of `ANSWER`."""
    nothing = (None,) * len(ANSWER)
    cells = [nothing if row is None else _answer(row) for row in rows]
    columns = list(zip(*cells, strict=True)) or [()] * len(ANSWER)
    return pa.record_batch([pa.array(cell, kind) for cell, kind in zip(columns, ANSWER.types, strict=True)], ANSWER)


def written_by(answers: pa.RecordBatch, is_new: Callable[[RowWriter], bool]) -> pa.Array:
    """Return which rows have a writer of a kind; a row that is not there has none."""
    found = pa.repeat(pa.scalar(value=False), len(answers))
    for writer in _distinct(answers, _WRITER):
        if is_new(RowWriter(*writer)):
            one = dict(zip(_WRITER, writer, strict=True))
            same = [pc.equal(answers[name], one[name]) for name in _WRITER]
            mine = pc.fill_null(pc.and_(pc.and_(same[0], same[1]), same[2]), fill_value=False)
            found = pc.or_(found, mine)
    return found


def _distinct(rows: pa.RecordBatch, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the different values of some columns, without nulls.

    Not by `Table.group_by`: it imports pyarrow's datasets and file systems, which takes as long as a small scan.
    """
    if not names:
        return [()]
    return [
        (value, *others)
        for value in pc.unique(rows[names[0]].drop_null()).to_pylist()
        for others in _distinct(rows.filter(pc.equal(rows[names[0]], value)), names[1:])
    ]


def is_done(row: LedgerRecord | None, problem: str | None) -> bool:
    """Return whether an item is done: it was scanned, or its problem is recorded already."""
    if row is None or row.status == DoneStatus.FAILED_RETRYABLE:
        return False
    return row.error_code == problem if problem is not None else not row.weak
