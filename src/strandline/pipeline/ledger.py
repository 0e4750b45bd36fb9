"""The done-ledger: whether an object version was scanned under a policy, and how completely.

One row for each (tenant, policy, object version); no row knows of shards, so that a lookup of an object finds the
work of any worker. Rows only grow, along a lattice:

    failed, retryable (1) < failed for good (2) < skipped (3) < partial (5) < clean (10) < with findings (11)

`merge` is commutative, associative and idempotent, so that rows may arrive twice, late, in any order and from several
workers, and all readers end with the same row. Each column has a rule of its own:

    status           the largest
    bytes_seen       the largest
    findings_count   0 when clean or partial; of the rows with findings the largest; otherwise the largest
    gaps             of the rows that were scanned the smallest, as a unit; otherwise the smallest
    provenance       of the largest (status, finished, started, fence, run, shard, error code), as a unit
    error_code       none when scanned, otherwise that of the provenance or, if that has none, the other's

Invariants: an object that was not fully looked at is never clean: `partial` says that nothing was found in what was
seen, and a row with findings keeps its gaps beside them. A weak version never suppresses a rescan. Rows are valid
before they are merged; a rank that is not in the lattice is damage, never a default.
"""

import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, KeyMismatch
from strandline.pipeline.identity import DIGEST_BYTES, OvidHash, PolicyHash, TenantId
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt

if TYPE_CHECKING:
    import pyarrow as pa

I64_MAX = 2**63 - 1
I64_MIN = -(2**63)
I32_MAX = 2**31 - 1
ERROR_CODE_BYTES_MAX = 128
_ERROR_CODE = re.compile(r"[A-Za-z0-9 _\-.:/]{1,128}", re.ASCII)


class DoneStatus(IntEnum):
    """The status of an object version under a policy; it only grows."""

    FAILED_RETRYABLE = 1
    FAILED_PERMANENT = 2
    SKIPPED = 3
    SCANNED_PARTIAL = 5
    SCANNED_CLEAN = 10
    SCANNED_WITH_FINDINGS = 11

    @property
    def is_terminal(self) -> bool:
        """Return whether it is done under this policy, for good."""
        return self is not DoneStatus.FAILED_RETRYABLE

    @property
    def is_scanned(self) -> bool:
        """Return whether it was scanned, in part at least."""
        return self >= DoneStatus.SCANNED_PARTIAL


class LedgerRecord(NamedTuple):
    """One row; the columns stand in the order of the table."""

    tenant: TenantId
    policy: PolicyHash
    ovid: OvidHash
    weak: bool
    status: DoneStatus
    bytes_seen: int
    findings_count: int
    members_skipped: int
    decodes_skipped: int
    findings_dropped: int
    run_id: int
    shard_id: int
    fence: int
    started_at: int
    finished_at: int
    error_code: str | None

    @property
    def key(self) -> tuple[TenantId, PolicyHash, OvidHash]:
        """Return the key of the row."""
        return self[:3]

    @property
    def gaps(self) -> tuple[int, int, int]:
        """Return the gaps: archive members and decodes that were skipped, findings that were dropped."""
        return self[7:10]

    @property
    def is_complete(self) -> bool:
        """Return whether the scan was complete and kept all findings."""
        return self.status >= DoneStatus.SCANNED_PARTIAL and not any(self.gaps)

    @property
    def suppresses(self) -> bool:
        """Return whether later runs under this policy skip the object version."""
        return not self.weak and self.status != DoneStatus.FAILED_RETRYABLE


class DoneLedger(Protocol):
    """The store of finished items. Every call is about one tenant, and sees nothing of another."""

    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        """Return a row for each key, in their order; None where there is none. `BatchTooLarge` over the limit."""
        ...

    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        """Return the keys that are done under the policy, sorted; empty if there are none."""
        ...

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        """Merge rows into those that are there, all or none, and return once they are durable.

        The rows are those of the page whose findings `after` proves durable, or it is a `ReceiptMismatch`. `StaleFence`
        when the store knows a newer fence of the shard.
        """
        ...


@runtime_checkable
class AdvisoryLedger(Protocol):
    """A ledger for which an exact answer is dear: it also gives one that may lack the latest rows."""

    def batch_get_advisory(
        self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash], *, run_id: int
    ) -> list[LedgerRecord | None]:
        """Return rows as `batch_get` does, but rows of the last minutes, and of a run, may be missing.

        Workers ask so, only to spare work that others did: the other shards of their own run have other items.
        """
        ...


LEDGER_COLUMNS = (
    "status",
    "error_code",
    "bytes_seen",
    "findings_count",
    "members_skipped",
    "decodes_skipped",
    "findings_dropped",
    "run_id",
    "shard_id",
    "fence",
)
"""The columns of a row that a ledger gives as such: what was found out, and by whom."""


@runtime_checkable
class ColumnarLedger(Protocol):
    """A ledger that also answers in columns, where an object for each row would be most of the cost."""

    def get_columns(
        self, tenant: TenantId, policy: PolicyHash, ovids: "pa.Array", names: Sequence[str]
    ) -> "list[pa.Array]":
        """Return some columns of the rows of keys, in their order; null where a key is null or has no row.

        The names are of `LEDGER_COLUMNS`; `ovids` are of fixed size, and any number.
        """
        ...


@runtime_checkable
class SteadyLedger(Protocol):
    """A ledger that looks for new rows at each question, unless it is told that it need not."""

    def hold(self, moment: object) -> None:
        """Answer as of the first question of a moment, until another moment is told; None is each question's own.

        Tasks that plan or settle ask so: what they need was durable before the first of them began.
        """
        ...


def merge(one: LedgerRecord, other: LedgerRecord) -> LedgerRecord:
    """Return the merge of two valid rows with the same key."""
    if one[:4] != other[:4]:
        raise KeyMismatch("ledger rows", "keys")
    winner, loser = (one, other) if _order(one) >= _order(other) else (other, one)
    status = winner.status
    scanned = status >= DoneStatus.SCANNED_PARTIAL
    contributors = (
        [row for row in (winner, loser) if row.status >= DoneStatus.SCANNED_PARTIAL] if scanned else (one, other)
    )
    gaps = min(row.gaps for row in contributors)
    return LedgerRecord(
        *one[:4],
        status,
        max(one.bytes_seen, other.bytes_seen),
        _findings_count(winner, loser),
        *gaps,
        *winner[10:15],
        None if scanned else winner.error_code or loser.error_code,
    )


def fold(records: Iterable[LedgerRecord]) -> list[LedgerRecord]:
    """Return the rows with those of equal keys merged, in the order in which keys came first."""
    found: dict[tuple[TenantId, PolicyHash, OvidHash], LedgerRecord] = {}
    for record in records:
        key = record[:3]
        known = found.setdefault(key, record)
        if known is not record:
            found[key] = merge(known, record)
    return list(found.values())


def validate(record: LedgerRecord) -> None:
    """Reject an invalid row; the error names the column, never its bytes."""
    for name in ("tenant", "policy", "ovid"):
        value = getattr(record, name)
        if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
            raise InvalidInput(f"a ledger row's {name} is not {DIGEST_BYTES} bytes")
    for name, low, high in _NUMBERS:
        value = getattr(record, name)
        if not isinstance(value, int) or not low <= value <= high:
            raise InvalidInput(f"a ledger row's {name} is not a number in [{low}, {high}]")
    if record.finished_at < record.started_at:
        raise InvalidInput("a ledger row finished before it started")
    _validate_shape(record.status, record.findings_count, any(record.gaps), record.error_code)


def validate_all(records: Sequence[LedgerRecord]) -> None:
    """Reject a batch with an invalid row: check columns, and rows only to name the invalid one."""
    if len(records) > BATCH_ROWS_MAX:
        raise BatchTooLarge(len(records))
    for at in range(0, len(records), _ROWS_AT_ONCE):
        rows = records[at : at + _ROWS_AT_ONCE]
        if not _columns_are_valid(tuple(zip(*rows, strict=True))):
            for record in rows:
                validate(record)


def receipt(folded: Sequence[LedgerRecord], after: FindingsReceipt, *, clean: int = 0) -> LedgerReceipt:
    """Return the receipt of distinct rows after their commit, and of so many more that are clean."""
    counts = Counter(map(_status, folded))
    scanned = sum(count for status, count in counts.items() if status >= DoneStatus.SCANNED_PARTIAL)
    with_findings = DoneStatus.SCANNED_WITH_FINDINGS
    found = sum(row.findings_count for row in folded if row[4] == with_findings) if with_findings in counts else 0
    return LedgerReceipt(after, len(folded) + clean, scanned + clean, found)


_status = operator.itemgetter(4)
_ROWS_AT_ONCE = 500
"""Rows that are turned into columns together: few enough not to wake the collector, which would look at all rows."""
_NUMBERS = [
    ("weak", 0, 1),
    ("status", 1, 11),
    ("bytes_seen", 0, I64_MAX),
    ("findings_count", 0, I32_MAX),
    ("members_skipped", 0, I64_MAX),
    ("decodes_skipped", 0, I64_MAX),
    ("findings_dropped", 0, I64_MAX),
    ("run_id", I64_MIN, I64_MAX),
    ("shard_id", I64_MIN, I64_MAX),
    ("fence", 0, I64_MAX),
    ("started_at", 0, I64_MAX),
    ("finished_at", 0, I64_MAX),
]


def _order(record: LedgerRecord) -> tuple[int, int, int, int, int, int, bytes]:
    code = record.error_code
    return (
        record.status,
        record.finished_at,
        record.started_at,
        record.fence,
        record.run_id,
        record.shard_id,
        code.encode() if code else b"",
    )


def _findings_count(winner: LedgerRecord, loser: LedgerRecord) -> int:
    if winner.status in (DoneStatus.SCANNED_CLEAN, DoneStatus.SCANNED_PARTIAL):
        return 0
    if winner.status == DoneStatus.SCANNED_WITH_FINDINGS and loser.status != DoneStatus.SCANNED_WITH_FINDINGS:
        return winner.findings_count
    return max(winner.findings_count, loser.findings_count)


def _validate_shape(status: int, findings_count: int, has_gaps: bool, error_code: str | None) -> None:  # noqa: FBT001
    """Refuse a combination of status, findings, gaps and error code that contradicts itself."""
    match status:
        case DoneStatus.SCANNED_CLEAN:
            wrong = findings_count > 0 or has_gaps
        case DoneStatus.SCANNED_PARTIAL:
            wrong = findings_count > 0 or not has_gaps
        case DoneStatus.SCANNED_WITH_FINDINGS:
            wrong = findings_count == 0
        case DoneStatus.FAILED_RETRYABLE | DoneStatus.FAILED_PERMANENT | DoneStatus.SKIPPED:
            wrong = False
        case _:
            raise InvalidInput(f"{status} is not a status of the ledger")
    name = DoneStatus(status).name.lower()
    if wrong:
        raise InvalidInput(
            f"a {name} row cannot have {findings_count} findings and {'' if has_gaps else 'no '}gaps",
            hint="clean: scanned completely, without findings; partial: scanned with gaps, without findings",
        )
    if status >= DoneStatus.SCANNED_PARTIAL:
        if error_code is not None:
            raise InvalidInput(f"a {name} row has no error code")
    elif not isinstance(error_code, str) or not _ERROR_CODE.fullmatch(error_code) or error_code.isspace():
        raise InvalidInput(
            f"a {name} row needs an error code of 1 to {ERROR_CODE_BYTES_MAX} letters, digits or ' _-.:/'",
            hint='for example "HTTP_403" or "TIMEOUT"',
        )


def _columns_are_valid(columns: Sequence[Sequence[Any]]) -> bool:
    """Return whether all rows are valid, with a few passes over each column and no work in Python per row."""
    try:
        ids = all(_is_made_of(column, bytes) and set(map(len, column)) == {DIGEST_BYTES} for column in columns[:3])
        numbers = all(
            _is_made_of(column, int) and min(column) >= low and max(column) <= high
            for column, (_, low, high) in zip(columns[3:15], _NUMBERS, strict=True)
        )
        if not (ids and numbers and all(map(operator.le, columns[13], columns[14]))):
            return False
        gaps = map(any, zip(*columns[7:10], strict=True))
        for shape in set(zip(columns[4], map(bool, columns[6]), gaps, columns[15], strict=True)):
            _validate_shape(*shape)
    except (TypeError, InvalidInput):
        return False
    return True


def _is_made_of(column: Sequence[Any], kind: type) -> bool:
    return all(issubclass(found, kind) for found in set(map(type, column)))
