"""Findings in three layers: the secret at an item, its place in a version, and its observation under a policy.

    finding       (tenant, item, rule, secret hash)             one secret at one item, for ever
    occurrence    (finding, version, offset, length)            its place in one version
    observation   (tenant, policy, occurrence)                  when and by which worker it was seen

Findings and occurrences never change: an id that comes again with other content is a `ContentConflict`. An observation
is merged, as two independent maxima, so that the merge is commutative, associative and idempotent, ties included:

    seen by     the largest (seen_at, fence, run, shard), as a unit
    location    the largest (location_seen_at, display, url) of those that have one, as a unit

Invariants: a row's parents are in its batch or stored, or nothing of the batch is written; a batch is one tenant's, of
one page. A location is text to show, and never holds what was found. `repr` shows no hash of a secret.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, ContentConflict, KeyMismatch, ReceiptMismatch
from strandline.pipeline.identity import (
    DIGEST_BYTES,
    FindingId,
    ObjectVersionId,
    ObservationId,
    OccurrenceId,
    OvidHash,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
    observation_ids,
)
from strandline.pipeline.ledger import I64_MAX
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import CommitScope
from strandline.pipeline.text_fields import check_text

LOCATION_BYTES_MAX = 4096


class FindingRecord(NamedTuple):
    """A secret at an item, whatever its version and the policy; the columns stand in the order of the table."""

    tenant: TenantId
    finding_id: FindingId
    item: StableItemId
    rule: RuleFingerprint
    secret: SecretHash

    def __repr__(self) -> str:
        return "FindingRecord(…)"


class OccurrenceRecord(NamedTuple):
    """A finding at a span of a version."""

    tenant: TenantId
    occurrence_id: OccurrenceId
    finding_id: FindingId
    version: ObjectVersionId
    byte_offset: int
    byte_length: int

    def __repr__(self) -> str:
        return f"OccurrenceRecord(byte_offset={self.byte_offset}, byte_length={self.byte_length}, …)"


class ObservationRecord(NamedTuple):
    """An occurrence as seen under a policy."""

    tenant: TenantId
    observation_id: ObservationId
    occurrence_id: OccurrenceId
    policy: PolicyHash
    ovid: OvidHash
    run_id: int
    shard_id: int
    fence: int
    seen_at: int
    location_seen_at: int | None = None
    location_display: str | None = None
    location_url: str | None = None

    def __repr__(self) -> str:
        return f"ObservationRecord(seen_at={self.seen_at}, location={self.location_display!r}, …)"


Row = TypeVar("Row", FindingRecord, OccurrenceRecord)


@dataclass(frozen=True, slots=True, repr=False)
class FindingsBatch:
    """The findings of one page. Rows of a layer may repeat; equal rows count once."""

    scope: CommitScope
    findings: Sequence[FindingRecord] = ()
    occurrences: Sequence[OccurrenceRecord] = ()
    observations: Sequence[ObservationRecord] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.findings)}, {len(self.occurrences)}, {len(self.observations)}"
        return f"FindingsBatch({counts})"

    def folded(self) -> "FindingsBatch":
        """Return the batch with its rows valid and distinct, or refuse it."""
        validate(self)
        return FindingsBatch(
            self.scope,
            _distinct(self.findings, "findings"),
            _distinct(self.occurrences, "occurrences"),
            fold(self.observations),
        )


class FindingsSink(Protocol):
    """The store of findings."""

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        """Write a page's findings, all or none, and return once they are durable; what is there already is merged.

        `MissingParent`, `ContentConflict` or `BatchTooLarge` (a layer over the limit) when it cannot be; `StaleFence`
        when the store knows a newer fence of the shard. An empty batch gives a receipt too: nothing was found.
        """
        ...


def merge(one: ObservationRecord, other: ObservationRecord) -> ObservationRecord:
    """Return the merge of two observations."""
    if one[:5] != other[:5]:
        raise KeyMismatch("observations", "identity")
    seen = max(one, other, key=_seen_order)
    located = max(one, other, key=_location_order)
    return ObservationRecord(*seen[:9], *located[9:])


def fold(observations: Iterable[ObservationRecord]) -> list[ObservationRecord]:
    """Return the observations with those of equal ids merged, in the order in which ids came first."""
    found: dict[ObservationId, ObservationRecord] = {}
    for observation in observations:
        known = found.setdefault(observation.observation_id, observation)
        if known is not observation:
            found[observation.observation_id] = merge(known, observation)
    return list(found.values())


def validate(batch: FindingsBatch) -> None:
    """Refuse a batch that is too large, mixes tenants or pages, or has an invalid row."""
    layers: list[tuple[str, Sequence[tuple[object, ...]], int]] = [
        ("findings", batch.findings, 5),
        ("occurrences", batch.occurrences, 4),
        ("observations", batch.observations, 5),
    ]
    for name, rows, ids in layers:
        if len(rows) > BATCH_ROWS_MAX:
            raise BatchTooLarge(len(rows), what=name)
        if rows:
            _validate_ids(name, tuple(zip(*rows, strict=True))[:ids], batch.scope.context.tenant)
    if batch.occurrences:
        _validate_spans(batch.occurrences)
    if batch.observations:
        _validate_observations(batch)


def _validate_ids(layer: str, columns: Sequence[tuple[object, ...]], tenant: TenantId) -> None:
    for column in columns:
        if not all(issubclass(kind, bytes) for kind in set(map(type, column))):
            raise InvalidInput(f"an id of the {layer} is not bytes")
        if set(map(len, column)) != {DIGEST_BYTES}:  # type: ignore[arg-type]
            raise InvalidInput(f"an id of the {layer} is not {DIGEST_BYTES} bytes")
    if set(columns[0]) != {tenant}:
        raise InvalidInput(f"{layer} of another tenant are in the batch", hint="write a batch for each tenant")


def _validate_spans(occurrences: Sequence[OccurrenceRecord]) -> None:
    *_, offsets, lengths = zip(*occurrences, strict=True)
    if not all(map(_is_whole, set(map(type, offsets)) | set(map(type, lengths)))):
        raise InvalidInput("an occurrence's span is not made of whole numbers")
    if min(offsets) < 0 or min(lengths) < 1 or max(map(operator.add, offsets, lengths)) > I64_MAX:
        raise InvalidInput("an occurrence's span is empty, or outside of what a file can hold")


def _validate_observations(batch: FindingsBatch) -> None:
    context = batch.scope.context
    tenants, ids, occurrences, policies, _, runs, shards, fences, seen, *locations = zip(
        *batch.observations, strict=True
    )
    if set(zip(policies, runs, shards, fences, strict=True)) != {context[1:]}:
        raise ReceiptMismatch("findings", "policy, run, shard or fence of an observation")
    if list(ids) != observation_ids(tenants[0], context.policy, occurrences).to_pylist():
        raise InvalidInput("an observation's id is not that of its tenant, policy and occurrence")
    if not all(map(_is_whole, set(map(type, seen)))) or min(seen) < 0 or max(seen) > I64_MAX:
        raise InvalidInput("an observation's seen_at is not a whole number, 0 or more")
    for located_at, display, url in set(zip(*locations, strict=True)):
        _validate_location(located_at, display, url)


def _validate_location(located_at: int | None, display: str | None, url: str | None) -> None:
    if (located_at is None) != (display is None) or (display is None and url is not None):
        raise InvalidInput("a location has the time it was seen and a text to show, or neither")
    if located_at is not None and (not _is_whole(type(located_at)) or not 0 <= located_at <= I64_MAX):
        raise InvalidInput("the time a location was seen is not a whole number, 0 or more")
    for text in (display, url):
        if text is not None:
            check_text(text, "a location's text", LOCATION_BYTES_MAX)


def _is_whole(kind: type) -> bool:
    return issubclass(kind, int)


def _distinct(rows: Sequence[Row], layer: str) -> list[Row]:
    """Return rows once each; an id has one content, and content has one id."""
    by_id: dict[bytes, Row] = {}
    by_content: dict[tuple[object, ...], bytes] = {}
    for row in rows:
        if by_id.setdefault(row[1], row) != row or by_content.setdefault(row[2:], row[1]) != row[1]:
            raise ContentConflict(layer)
    return list(by_id.values())


def _seen_order(row: ObservationRecord) -> tuple[int, int, int, int]:
    return row.seen_at, row.fence, row.run_id, row.shard_id


def _location_order(row: ObservationRecord) -> tuple[int, bytes, bytes]:
    if row.location_seen_at is None:
        return -1, b"", b""
    return row.location_seen_at, (row.location_display or "").encode(), (row.location_url or "").encode()
