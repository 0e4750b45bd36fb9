"""Pages built from the outcomes of items: ids are derived and rows made for a whole page at once.

An item's outcome is one of four: scanned, with what was found and what was left out; failed, now or for good;
skipped. A builder belongs to one lease: its logical clock gives the n-th item of the lease the times (2n, 2n + 1), so
that within the lease later items are later, whatever the wall clock says.

Invariants: pure, but for the builder's own count; equal findings of an item are one, and `findings_count` counts
distinct findings, so that the ledger never promises more than is stored; an item with gaps and no findings is
partial, never clean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias

from strandline.errors import InvalidInput
from strandline.pipeline.commit import Page
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import (
    FindingId,
    ObjectVersionId,
    OvidHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    VersionKind,
    finding_ids,
    observation_ids,
    occurrence_ids,
    ovid_hashes,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord, ValidRows
from strandline.pipeline.scope import Boundary, CommitScope, Units, WriteContext


class FoundSecret(NamedTuple):
    """A secret in an item: its rule, its keyed hash, the bytes [start, end) and a location to show."""

    rule: RuleFingerprint
    secret: SecretHash
    start: int
    end: int
    location_display: str | None = None
    location_url: str | None = None

    def __repr__(self) -> str:
        return f"FoundSecret(start={self.start}, end={self.end}, location={self.location_display!r}, …)"


class Gaps(NamedTuple):
    """Counts of skipped parts and dropped findings."""

    members_skipped: int = 0
    decodes_skipped: int = 0
    findings_dropped: int = 0


class Scanned(NamedTuple):
    """The item was scanned."""

    bytes_seen: int
    found: Sequence[FoundSecret] = ()
    gaps: Gaps = Gaps()


class Failed(NamedTuple):
    """The item could not be scanned; a retryable failure is retried by a later run."""

    error_code: str
    retryable: bool


class Skipped(NamedTuple):
    """The item was skipped on purpose."""

    error_code: str


_NO_GAPS = Gaps()
Outcome: TypeAlias = Scanned | Failed | Skipped


class Item(NamedTuple):
    """An item at a version. The same version is always of the same kind."""

    item: StableItemId
    version: ObjectVersionId
    kind: VersionKind = VersionKind.STRONG


@dataclass
class PageBuilder:
    """Gathers the items of a lease into pages."""

    context: WriteContext
    _items: list[Item] = field(default_factory=list, init=False, repr=False)
    _outcomes: list[Outcome] = field(default_factory=list, init=False, repr=False)
    _ovids: list[OvidHash | None] = field(default_factory=list, init=False, repr=False)
    _finished: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item, outcome: Outcome, ovid: OvidHash | None = None) -> None:
        """Add an item that is finished; the order is that of the shard's keys. `ovid` spares deriving it again."""
        if len(self._items) >= BATCH_ROWS_MAX:
            raise BatchTooLarge(len(self._items) + 1, what="items")
        found = outcome.found if isinstance(outcome, Scanned) else ()
        if found and any(not 0 <= one.start < one.end for one in found):
            raise InvalidInput("a secret's span is empty", hint="a span is [start, end), and end is larger")
        self._items.append(item)
        self._outcomes.append(outcome)
        self._ovids.append(ovid)

    def page(self, boundary: Boundary) -> Page:
        """Return the page of all items added since the last one; it ends at the boundary.

        On an error the items stay, so that no later page omits them.
        """
        items, outcomes, first = self._items, self._outcomes, self._finished
        if not items:
            raise InvalidInput("a page needs at least one item", hint="complete an empty shard directly")
        ovids = _ovids(items, self._ovids)
        scope = CommitScope(self.context, Units.of(ovids), boundary)
        batch, distinct = _findings(scope, items, outcomes, ovids, first)
        rows = zip(ovids, items, outcomes, distinct, range(first, first + len(items)), strict=True)
        page = Page(batch, ValidRows([_row(self.context, *row) for row in rows]))
        self._items, self._outcomes, self._ovids = [], [], []
        self._finished += len(items)
        return page


def _ovids(items: Sequence[Item], known: Sequence[OvidHash | None]) -> list[OvidHash]:
    """Return the keys of items; those that are not known are derived, strong and weak ones each as a column."""
    ovids = [OvidHash(b"") if ovid is None else ovid for ovid in known]
    for kind in VersionKind if None in known else ():
        at = [place for place, item in enumerate(items) if known[place] is None and item.kind == kind]
        if at:
            chosen = [items[place] for place in at]
            column = ovid_hashes([one.item for one in chosen], [one.version for one in chosen], kind)
            for place, ovid in zip(at, column.to_pylist(), strict=True):
                ovids[place] = ovid
    return ovids


def _findings(
    scope: CommitScope, items: Sequence[Item], outcomes: Sequence[Outcome], ovids: Sequence[OvidHash], first: int
) -> tuple[FindingsBatch, list[int]]:
    """Return the page's findings, and how many distinct ones each item has."""
    found = [outcome.found if isinstance(outcome, Scanned) else () for outcome in outcomes]
    counts = list(map(len, found))
    owners = list(chain.from_iterable(map(repeat, range(len(items)), counts)))
    if not owners:
        return FindingsBatch(scope), counts
    tenant, policy, *_ = scope.context
    secrets = list(chain.from_iterable(found))
    in_items = [items[owner] for owner in owners]
    starts, lengths = [one.start for one in secrets], [one.end - one.start for one in secrets]
    parts = [one.item for one in in_items], [one.rule for one in secrets], [one.secret for one in secrets]
    named: list[FindingId] = finding_ids(tenant, *parts).to_pylist()
    versions = [one.version for one in in_items]
    standing = occurrence_ids(named, versions, starts, lengths).to_pylist()
    observed = observation_ids(tenant, policy, standing).to_pylist()
    findings = map(FindingRecord, repeat(tenant), named, *parts)
    occurrences = map(OccurrenceRecord, repeat(tenant), standing, named, versions, starts, lengths)
    observations = [
        ObservationRecord(
            *(tenant, row_id, occurrence, policy, ovids[owner], *scope.context[2:]),
            _finished_at(first + owner),
            None if secret.location_display is None else _finished_at(first + owner),
            secret.location_display,
            secret.location_url,
        )
        for row_id, occurrence, owner, secret in zip(observed, standing, owners, secrets, strict=True)
    ]
    distinct: list[set[FindingId]] = [set() for _ in items]
    for owner, finding in zip(owners, named, strict=True):
        distinct[owner].add(finding)
    batch = FindingsBatch(scope, list(findings), list(occurrences), observations)
    return batch, list(map(len, distinct))


def _row(
    context: WriteContext, ovid: OvidHash, item: Item, outcome: Outcome, findings: int, number: int
) -> LedgerRecord:
    tenant, policy, run_id, shard_id, fence = context
    if isinstance(outcome, Scanned) and not findings and outcome.gaps == _NO_GAPS:  # most are, so this is quick
        clean, seen, times = DoneStatus.SCANNED_CLEAN, outcome.bytes_seen, (2 * number, _finished_at(number))
        weak = item.kind == VersionKind.WEAK
        return LedgerRecord(tenant, policy, ovid, weak, clean, seen, 0, 0, 0, 0, run_id, shard_id, fence, *times, None)
    gaps, bytes_seen, error_code = Gaps(), 0, None
    match outcome:
        case Scanned():
            gaps, bytes_seen = outcome.gaps, outcome.bytes_seen
            status = _scanned_status(findings, gaps)
        case Failed():
            status = DoneStatus.FAILED_RETRYABLE if outcome.retryable else DoneStatus.FAILED_PERMANENT
            error_code = outcome.error_code
        case Skipped():
            status, error_code = DoneStatus.SKIPPED, outcome.error_code
    return LedgerRecord(
        *(tenant, policy, ovid, item.kind == VersionKind.WEAK, status, bytes_seen, findings),
        *gaps,
        *(run_id, shard_id, fence),
        2 * number,
        _finished_at(number),
        error_code,
    )


def _scanned_status(findings: int, gaps: Gaps) -> DoneStatus:
    if findings:
        return DoneStatus.SCANNED_WITH_FINDINGS
    return DoneStatus.SCANNED_PARTIAL if any(gaps) else DoneStatus.SCANNED_CLEAN


def _finished_at(number: int) -> int:
    """Return the logical time at which the n-th item of a lease was finished."""
    return 2 * number + 1
