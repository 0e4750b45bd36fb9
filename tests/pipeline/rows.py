"""Rows for tests: ids from small numbers, scopes, pages. Children import it, so it imports no hypothesis."""

from collections.abc import Sequence
from typing import Any, TypeVar

from strandline.pipeline.commit import Page
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import (
    FindingId,
    ObjectVersionId,
    OvidHash,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
    finding_id,
    observation_id,
    occurrence_id,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind, CommitScope, Units, WriteContext
from strandline.protocol.shards import Cursor

Row = TypeVar("Row", LedgerRecord, FindingRecord, OccurrenceRecord, ObservationRecord)


def digest(number: int, kind: int = 0) -> bytes:
    """Return 32 bytes that differ for every number and kind."""
    return kind.to_bytes(2, "big") + number.to_bytes(30, "big")


TENANT = TenantId(digest(1, 1))
POLICY = PolicyHash(digest(1, 2))
CONTEXT = WriteContext(TENANT, POLICY, run_id=7, shard_id=-3, fence=1)


def ovid(number: int) -> OvidHash:
    return OvidHash(digest(number, 3))


def scope_of(
    ovids: Sequence[OvidHash], context: WriteContext = CONTEXT, key: bytes = b"k", token: bytes = b""
) -> CommitScope:
    """Return the scope of a page with these keys that ends at a key."""
    return CommitScope(context, Units.of(ovids), Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(key, token)))


def receipt_for(records: Sequence[LedgerRecord]) -> FindingsReceipt:
    """Return the receipt after which these rows may be written: their findings are durable, and none."""
    first = records[0]
    context = WriteContext(first.tenant, first.policy, first.run_id, first.shard_id, first.fence)
    return FindingsReceipt(scope_of([row.ovid for row in records], context))


def done(number: int, findings: int = 0, context: WriteContext = CONTEXT, at: int = 0) -> LedgerRecord:
    """Return the row of an item that was scanned to its end."""
    status = DoneStatus.SCANNED_WITH_FINDINGS if findings else DoneStatus.SCANNED_CLEAN
    tenant, policy = context[:2]
    return LedgerRecord(
        tenant, policy, ovid(number), False, status, 100, findings, 0, 0, 0, *context[2:], at, at + 1, None
    )


def found(
    number: int, context: WriteContext = CONTEXT, at: int = 0
) -> tuple[FindingRecord, OccurrenceRecord, ObservationRecord]:
    """Return what one secret in an item leads to, in all three layers."""
    tenant, policy = context[:2]
    item, rule, secret = (digest(number, kind) for kind in (4, 5, 6))
    finding = FindingRecord(
        tenant,
        finding_id(tenant, StableItemId(item), RuleFingerprint(rule), SecretHash(secret)),
        StableItemId(item),
        RuleFingerprint(rule),
        SecretHash(secret),
    )
    occurrence = occurrence_of(finding.finding_id, number, tenant)
    observation = ObservationRecord(
        tenant,
        observation_id(tenant, policy, occurrence.occurrence_id),
        occurrence.occurrence_id,
        policy,
        ovid(number),
        *context[2:],
        at,
        at,
        f"file-{number}",
    )
    return finding, occurrence, observation


def occurrence_of(finding: FindingId, number: int, tenant: TenantId = TENANT) -> OccurrenceRecord:
    version = ObjectVersionId(digest(number, 7))
    return OccurrenceRecord(tenant, occurrence_id(finding, version, 10, 20), finding, version, 10, 20)


def page_of(
    numbers: Sequence[int], with_findings: Sequence[int] = (), context: WriteContext = CONTEXT, key: bytes = b"k"
) -> Page:
    """Return a page of these items, of which some have a finding."""
    items = [done(number, number in with_findings, context, at=number) for number in numbers]
    rows = [found(number, context, at=number) for number in with_findings]
    findings, occurrences, observations = zip(*rows, strict=True) if rows else ((), (), ())
    scope = scope_of([ovid(number) for number in numbers], context, key)
    return Page(FindingsBatch(scope, findings, occurrences, observations), items)


def changed(row: Row, **fields: Any) -> Row:  # noqa: ANN401 - tests make rows that the types forbid
    """Return a row with other fields, even wrong ones."""
    return row._replace(**fields)
