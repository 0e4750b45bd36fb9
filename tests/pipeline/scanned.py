"""A small world to scan, in which every item follows from its number: what a worker finds, and what must be stored.

Among the items are clean ones, ones with several findings, partial, failed and skipped ones; an item that is a later
version of another (the same finding, another occurrence), and two items of the same object version (one row of the
ledger). So the rows of a run do not depend on who scanned what in which pages, but for run, shard and fence.
"""

from collections.abc import Sequence
from typing import NamedTuple

from strandline.pipeline.commit import Page
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import (
    ObjectVersionId,
    OvidHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    finding_id,
    observation_id,
    occurrence_id,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.scope import WriteContext
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import RunKey, ShardSpec
from tests.pipeline.rows import TENANT, digest, scope_of

RUN = RunKey(TENANT, 7)
_KINDS = 8


class _Kind(NamedTuple):
    """What became of an item: its secrets by number and offset, and what was not looked at."""

    status: DoneStatus
    secrets: tuple[tuple[int, int], ...] = ()
    gaps: tuple[int, int, int] = (0, 0, 0)
    error_code: str | None = None
    item_back: int = 0
    """How many numbers back stands the item of which this is a later version."""
    version_back: int = 0
    """How many numbers back stands the item of which this is the same version."""


_WORLD = [
    _Kind(DoneStatus.SCANNED_CLEAN),
    _Kind(DoneStatus.SCANNED_WITH_FINDINGS, ((1, 10),)),
    _Kind(DoneStatus.SCANNED_WITH_FINDINGS, ((1, 10), (1, 90), (2, 50))),
    _Kind(DoneStatus.SCANNED_PARTIAL, gaps=(2, 0, 0)),
    _Kind(DoneStatus.FAILED_RETRYABLE, error_code="TIMEOUT"),
    _Kind(DoneStatus.SKIPPED, error_code="TOO LARGE"),
    _Kind(DoneStatus.SCANNED_WITH_FINDINGS, ((1, 10),), gaps=(0, 1, 0), item_back=5),
    _Kind(DoneStatus.SCANNED_WITH_FINDINGS, ((3, 30), (4, 40)), item_back=6, version_back=1),
]


def key(number: int) -> bytes:
    """Return where an item stands among the keys."""
    return b"%04d" % number


def ovid(number: int) -> OvidHash:
    """Return the object version of an item."""
    return OvidHash(digest(number - _WORLD[number % _KINDS].version_back, 3))


def shards(items: int) -> list[InitialShard]:
    """Return the shards that a run over so many items begins with."""
    cuts = [b"", key(items // 3), key(2 * items // 3), b""]
    return [InitialShard(at, ShardSpec(cuts[at], cuts[at + 1])) for at in range(3)]


def ledger_row(number: int, context: WriteContext) -> LedgerRecord:
    """Return what the ledger is told of an item."""
    kind = _WORLD[number % _KINDS]
    tenant, policy = context[:2]
    size, count = 1000 - number, len({secret for secret, _ in kind.secrets})
    times = 2 * number, 2 * number + 1
    return LedgerRecord(
        tenant, policy, ovid(number), False, kind.status, size, count, *kind.gaps, *context[2:], *times, kind.error_code
    )


def found(number: int, context: WriteContext) -> list[tuple[FindingRecord, OccurrenceRecord, ObservationRecord]]:
    """Return what was found in an item, in all three layers."""
    kind = _WORLD[number % _KINDS]
    tenant, policy = context[:2]
    item = StableItemId(digest(number - kind.item_back, 4))
    version = ObjectVersionId(digest(number - kind.version_back, 7))
    rows = []
    for secret_number, offset in kind.secrets:
        rule, secret = RuleFingerprint(digest(secret_number, 5)), SecretHash(digest(secret_number, 6))
        finding = FindingRecord(tenant, finding_id(tenant, item, rule, secret), item, rule, secret)
        span = finding.finding_id, version, offset, 20
        occurrence = OccurrenceRecord(tenant, occurrence_id(*span), *span)
        seen = observation_id(tenant, policy, occurrence.occurrence_id), occurrence.occurrence_id, policy, ovid(number)
        at = 2 * number
        observation = ObservationRecord(tenant, *seen, *context[2:], at, at, f"file-{number}")
        rows.append((finding, occurrence, observation))
    return rows


def page(numbers: Sequence[int], context: WriteContext) -> Page:
    """Return the page of these items."""
    rows = [row for number in numbers for row in found(number, context)]
    layers = zip(*rows, strict=True) if rows else ((), (), ())
    scope = scope_of([ovid(number) for number in numbers], context, key(numbers[-1]))
    return Page(FindingsBatch(scope, *layers), [ledger_row(number, context) for number in numbers])
