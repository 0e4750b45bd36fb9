"""Shared code of the checks of the pipeline's stores: rows, pages, findings, and differences of rows.

Everything is derived from short names and small numbers, so that two runs of a check write the same bytes. Rows carry
the ids that `strandline.pipeline.identity` derives. Differences are reported by the names of columns, and by the
values of those that are neither ids nor hashes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from blake3 import blake3

from strandline.clock import ManualClock
from strandline.pipeline.findings import FindingRecord, FindingsBatch, FindingsSink, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import (
    DIGEST_BYTES,
    ObjectVersionId,
    OvidHash,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
    VersionKind,
    finding_id,
    observation_id,
    occurrence_id,
    ovid_hash,
)
from strandline.pipeline.ledger import LEDGER_COLUMNS, ColumnarLedger, DoneLedger, DoneStatus, LedgerRecord
from strandline.pipeline.policy import Policies
from strandline.pipeline.reads import PipelineReads
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind, CommitScope, Units, WriteContext
from strandline.pipeline.state import ScannerState
from strandline.pipeline.triage import Triage, TriageEvent, TriageState
from strandline.protocol.shards import Cursor
from strandline.testing.contract import expect, same

SetFence = Callable[[TenantId, int, int, int], None]
"""Sets the current fence of a shard in the store: tenant, run, shard, fence."""

I64_MAX = 2**63 - 1
I64_MIN = -(2**63)


@dataclass(frozen=True)
class CheckedPersistence:
    """The stores under check: empty, over the same rows, with one clock.

    `set_fence` is None for stores that know no shards. A check uses only the stores of its suite, and `reads`
    for findings.
    """

    ledger: DoneLedger
    findings: FindingsSink
    triage: Triage
    policies: Policies
    reads: PipelineReads
    state: ScannerState
    clock: ManualClock
    set_fence: SetFence | None = None


PersistenceCheck = Callable[[CheckedPersistence], None]
"""Takes empty stores."""

Row = TypeVar("Row", LedgerRecord, FindingRecord, OccurrenceRecord, ObservationRecord, TriageEvent)


def digest(name: str) -> Any:  # noqa: ANN401 - whichever kind of id is wanted
    """Return the 32 bytes of an id of any kind for a name."""
    return blake3(name.encode()).digest()


TENANT, OTHER_TENANT = TenantId(digest("tenant")), TenantId(digest("other tenant"))
POLICY, OTHER_POLICY = PolicyHash(digest("policy")), PolicyHash(digest("other policy"))
WRITER = WriteContext(TENANT, POLICY, run_id=7, shard_id=-3, fence=5)
ELSEWHERE = WRITER._replace(tenant=OTHER_TENANT)


def ovid(name: str) -> OvidHash:
    """Return the ledger's key of an object."""
    return OvidHash(digest(f"object {name}"))


def done(name: str, status: DoneStatus = DoneStatus.SCANNED_CLEAN, writer: WriteContext = WRITER) -> LedgerRecord:
    """Return a valid row of an object with that status."""
    return LedgerRecord(
        writer.tenant,
        writer.policy,
        ovid(name),
        weak=False,
        status=status,
        bytes_seen=100,
        findings_count=int(status == DoneStatus.SCANNED_WITH_FINDINGS),
        members_skipped=int(status == DoneStatus.SCANNED_PARTIAL),
        decodes_skipped=0,
        findings_dropped=0,
        run_id=writer.run_id,
        shard_id=writer.shard_id,
        fence=writer.fence,
        started_at=10,
        finished_at=11,
        error_code=None if status.is_scanned else "TIMEOUT",
    )


def writer_of(row: LedgerRecord | ObservationRecord) -> WriteContext:
    """Return the writer of a row."""
    return WriteContext(row.tenant, row.policy, row.run_id, row.shard_id, row.fence)


def scope_of(writer: WriteContext, ovids: Iterable[OvidHash] = (), end: bytes = b"end") -> CommitScope:
    """Return the scope of a page of these objects."""
    units = Units.of(ovids or [ovid("unit")])
    return CommitScope(writer, units, Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(end)))


def after(rows: Sequence[LedgerRecord]) -> FindingsReceipt:
    """Return the receipt after which these rows of one writer may be written."""
    return FindingsReceipt(scope_of(writer_of(rows[0]), [row.ovid for row in rows]))


def record(stores: CheckedPersistence, *rows: LedgerRecord) -> LedgerReceipt:
    """Write rows of one writer as a page of their own."""
    return stores.ledger.batch_upsert(rows, after=after(rows))


def record_all(stores: CheckedPersistence, rows: Iterable[LedgerRecord]) -> None:
    """Write rows of any writers, a page for each."""
    for _, page in groupby(sorted(rows, key=writer_of), writer_of):
        record(stores, *page)


def rows_of(stores: CheckedPersistence, *names: str, writer: WriteContext = WRITER) -> list[LedgerRecord | None]:
    """Return the ledger's rows of objects; a ledger that answers in columns has to say the same so."""
    asked = writer.tenant, writer.policy, [ovid(name) for name in names]
    rows = stores.ledger.batch_get(*asked)
    if isinstance(stores.ledger, ColumnarLedger):
        keys = pa.array([None, *asked[2], None], pa.binary(DIGEST_BYTES))
        columns = stores.ledger.get_columns(writer.tenant, writer.policy, keys, LEDGER_COLUMNS)
        wanted = [None, *rows, None]
        cells = [[None if row is None else getattr(row, name) for row in wanted] for name in LEDGER_COLUMNS]
        same("the columns of rows", [column.to_pylist() for column in columns], cells)
    return rows


# Findings.


class Found(NamedTuple):
    """One secret at one place, in all three layers."""

    finding: FindingRecord
    occurrence: OccurrenceRecord
    observation: ObservationRecord

    def __repr__(self) -> str:
        return "Found(…)"


class Location(NamedTuple):
    """The location, and the time of its observation."""

    seen_at: int
    display: str
    url: str | None = None


def found(
    name: str = "key",
    *,
    item: str = "file",
    version: str = "v1",
    offset: int = 0,
    writer: WriteContext = WRITER,
    seen_at: int = 1,
    location: Location | tuple[None, None, None] = (None, None, None),
) -> Found:
    """Return a secret of that name as seen at an offset of a version of an item."""
    tenant, policy = writer[:2]
    what = StableItemId(digest(f"item {item}")), RuleFingerprint(digest("rule")), SecretHash(digest(f"hash {name}"))
    finding = FindingRecord(tenant, finding_id(tenant, *what), *what)
    at = ObjectVersionId(digest(f"version {version}")), offset, 20
    occurrence = OccurrenceRecord(tenant, occurrence_id(finding.finding_id, *at), finding.finding_id, *at)
    observation = ObservationRecord(
        tenant,
        observation_id(tenant, policy, occurrence.occurrence_id),
        occurrence.occurrence_id,
        policy,
        ovid_hash(finding.item, occurrence.version, VersionKind.STRONG),
        *writer[2:],
        seen_at,
        *location,
    )
    return Found(finding, occurrence, observation)


def as_tenant(row: Found, tenant: TenantId) -> Found:
    """Return the same finding and occurrence, ids included, as another tenant's."""
    observation = row.observation._replace(
        tenant=tenant, observation_id=observation_id(tenant, row.observation.policy, row.occurrence.occurrence_id)
    )
    return Found(row.finding._replace(tenant=tenant), row.occurrence._replace(tenant=tenant), observation)


def batch_of(*rows: Found, writer: WriteContext | None = None) -> FindingsBatch:
    """Return the findings of one writer as a batch."""
    findings, occurrences, observations = zip(*rows, strict=True) if rows else ((), (), ())
    writer = writer or (writer_of(observations[0]) if rows else WRITER)
    return FindingsBatch(scope_of(writer, {row.ovid for row in observations}), findings, occurrences, observations)


def write(stores: CheckedPersistence, *rows: Found) -> FindingsReceipt:
    """Write the findings of one writer."""
    return stores.findings.upsert_batch(batch_of(*rows))


def write_all(stores: CheckedPersistence, rows: Iterable[Found]) -> None:
    """Write the findings of several writers, a batch for each."""
    for _, page in groupby(sorted(rows, key=_writer_of_found), _writer_of_found):
        write(stores, *page)


def _writer_of_found(row: Found) -> WriteContext:
    return writer_of(row.observation)


def observed(stores: CheckedPersistence, row: Found) -> list[ObservationRecord]:
    """Return every observation of a finding, oldest first."""
    history = stores.reads.history(row.finding.tenant, row.finding.finding_id)
    return [seen.observation for seen in history.seen] if history else []


def known_objects(objects: Mapping[DoneStatus, int]) -> dict[DoneStatus, int]:
    """Return the number of objects by status, without zeros."""
    return {status: count for status, count in objects.items() if count}


def decision(row: Found, state: TriageState, when_ns: int = 1, who: str = "ann", why: str = "") -> TriageEvent:
    """Return a decision about a finding."""
    return TriageEvent(row.finding.tenant, row.finding.finding_id, state, when_ns, who, why)


# Differences.


def same_rows(what: str, seen: Sequence[Row | None], wanted: Sequence[Row | None]) -> None:
    """Report the differences of rows by the names of their columns; no id and no hash is shown."""
    expect(len(seen) == len(wanted), f"{what} should be {len(wanted)}, but are {len(seen)}")
    for number, (one, other) in enumerate(zip(seen, wanted, strict=True)):
        same_row(f"row {number} of {what}", one, other)


def same_row(what: str, seen: Row | None, wanted: Row | None) -> None:
    """Report the differences of a row by the names of its columns; no id and no hash is shown."""
    if seen is None or wanted is None:
        expect(seen is wanted, f"{what} should {'not ' if wanted is None else ''}be there")
        return
    expect(type(seen) is type(wanted), f"{what} should be a {type(wanted).__name__}, but is a {type(seen).__name__}")
    columns = zip(wanted._fields, seen, wanted, strict=True)
    different = [_difference(name, one, other) for name, one, other in columns if one != other]
    expect(not different, f"{what} differs in {', '.join(different)}")


def _difference(name: str, seen: Any, wanted: Any) -> str:  # noqa: ANN401 - a column of any table
    if isinstance(seen, bytes) or isinstance(wanted, bytes):
        return name
    return f"{name} ({seen!r} for {wanted!r})"
