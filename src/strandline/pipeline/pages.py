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
from itertools import chain, compress, repeat
from typing import NamedTuple, TypeAlias, TypeGuard

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
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.page_rows import CleanRows, PageRows, finished_at
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
_NO_OVID = OvidHash(b"")
Outcome: TypeAlias = Scanned | Failed | Skipped


class Item(NamedTuple):
    """An item at a version. The same version is always of the same kind."""

    item: StableItemId
    version: ObjectVersionId
    kind: VersionKind = VersionKind.STRONG


def is_clean(outcome: Outcome) -> TypeGuard[Scanned]:
    """Return whether an item was scanned completely, and nothing was found."""
    return isinstance(outcome, Scanned) and not outcome.found and outcome.gaps == _NO_GAPS


class _Other(NamedTuple):
    """An item that is not clean, or weak: its place in the page, and its outcome."""

    place: int
    item: Item
    outcome: Outcome

    @property
    def found(self) -> Sequence[FoundSecret]:
        return self.outcome.found if isinstance(self.outcome, Scanned) else ()


@dataclass
class PageBuilder:
    """Gathers the items of a lease into pages: clean ones as columns, others one by one."""

    context: WriteContext
    _ovids: list[OvidHash] = field(default_factory=list, init=False, repr=False)
    _seen: list[int] = field(default_factory=list, init=False, repr=False)
    _others: list[_Other] = field(default_factory=list, init=False, repr=False)
    _unnamed: list[tuple[int, Item]] = field(default_factory=list, init=False, repr=False)
    _finished: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._ovids)

    def add(self, item: Item, outcome: Outcome, ovid: OvidHash | None = None) -> None:
        """Add an item that is finished; the order is that of the shard's keys. `ovid` spares deriving it again."""
        other = _Other(len(self._ovids), item, outcome)
        if any(not 0 <= one.start < one.end for one in other.found):
            raise InvalidInput("a secret's span is empty", hint="a span is [start, end), and end is larger")
        self.add_clean(ovid or _NO_OVID, outcome.bytes_seen if isinstance(outcome, Scanned) else 0)
        if ovid is None:
            self._unnamed.append((other.place, item))
        if not is_clean(outcome) or item.kind is VersionKind.WEAK:
            self._others.append(other)

    def add_clean(self, ovid: OvidHash, bytes_seen: int) -> None:
        """Add an item at a strong version that was scanned completely, and in which nothing was found."""
        if len(self._ovids) >= BATCH_ROWS_MAX:
            raise BatchTooLarge(len(self._ovids) + 1, what="items")
        self._ovids.append(ovid)
        self._seen.append(bytes_seen)

    def _name(self) -> None:
        """Give items their keys that came without them, those of each kind as a column."""
        for kind in VersionKind if self._unnamed else ():
            chosen = [(place, item) for place, item in self._unnamed if item.kind is kind]
            if chosen:
                items, versions = ([item[at] for _, item in chosen] for at in range(2))
                for (place, _), ovid in zip(chosen, ovid_hashes(items, versions, kind).to_pylist(), strict=True):
                    self._ovids[place] = ovid
        self._unnamed = []

    def page(self, boundary: Boundary) -> Page:
        """Return the page of all items added since the last one; it ends at the boundary.

        On an error the items stay, so that no later page omits them.
        """
        if not self._ovids:
            raise InvalidInput("a page needs at least one item", hint="complete an empty shard directly")
        self._name()
        scope = CommitScope(self.context, Units.of(self._ovids), boundary)
        batch, distinct = self._findings(scope)
        page = Page(batch, self._rows(scope, distinct))
        self._finished += len(self._ovids)
        self._ovids, self._seen, self._others = [], [], []
        return page

    def _findings(self, scope: CommitScope) -> tuple[FindingsBatch, list[int]]:
        """Return the page's findings, and how many distinct ones each item that is not clean has."""
        counts = [len(other.found) for other in self._others]
        owners = list(chain.from_iterable(map(repeat, self._others, counts)))
        if not owners:
            return FindingsBatch(scope), counts
        tenant, policy, *_ = scope.context
        secrets = list(chain.from_iterable(other.found for other in self._others))
        starts, lengths = [one.start for one in secrets], [one.end - one.start for one in secrets]
        parts = [owner.item.item for owner in owners], [one.rule for one in secrets], [one.secret for one in secrets]
        named: list[FindingId] = finding_ids(tenant, *parts).to_pylist()
        versions = [owner.item.version for owner in owners]
        standing = occurrence_ids(named, versions, starts, lengths).to_pylist()
        observed = observation_ids(tenant, policy, standing).to_pylist()
        findings = map(FindingRecord, repeat(tenant), named, *parts)
        occurrences = map(OccurrenceRecord, repeat(tenant), standing, named, versions, starts, lengths)
        finished = [finished_at(self._finished + owner.place) for owner in owners]
        observations = [
            ObservationRecord(
                *(tenant, row_id, occurrence, policy, self._ovids[owner.place], *scope.context[2:]),
                at,
                None if secret.location_display is None else at,
                secret.location_display,
                secret.location_url,
            )
            for row_id, occurrence, owner, secret, at in zip(observed, standing, owners, secrets, finished, strict=True)
        ]
        distinct: dict[int, set[FindingId]] = {other.place: set() for other in self._others}
        for owner, finding in zip(owners, named, strict=True):
            distinct[owner.place].add(finding)
        batch = FindingsBatch(scope, list(findings), list(occurrences), observations)
        return batch, list(map(len, distinct.values()))

    def _rows(self, scope: CommitScope, distinct: Sequence[int]) -> PageRows:
        """Return the rows of the ledger."""
        numbers = range(self._finished, self._finished + len(self._ovids))
        clean = CleanRows(self._ovids, numbers, self._seen)
        if not self._others:
            return PageRows(scope, clean, ())
        context = scope.context
        others = [
            _row(context, self._ovids[other.place], other, numbers[other.place], findings)
            for other, findings in zip(self._others, distinct, strict=True)
        ]
        is_clean = bytearray(b"\1") * len(numbers)
        for other in self._others:
            is_clean[other.place] = 0
        kept = (
            list(compress(self._ovids, is_clean)),
            list(compress(numbers, is_clean)),
            list(compress(self._seen, is_clean)),
        )
        return PageRows(scope, CleanRows(*kept), others)


def _row(context: WriteContext, ovid: OvidHash, other: _Other, number: int, findings: int) -> LedgerRecord:
    """Return the row of an item that is not kept as a column."""
    tenant, policy, run_id, shard_id, fence = context
    gaps, bytes_seen, error_code = Gaps(), 0, None
    match other.outcome:
        case Scanned() as outcome:
            gaps, bytes_seen = outcome.gaps, outcome.bytes_seen
            status = _scanned_status(findings, gaps)
        case Failed() as outcome:
            status = DoneStatus.FAILED_RETRYABLE if outcome.retryable else DoneStatus.FAILED_PERMANENT
            error_code = outcome.error_code
        case Skipped() as outcome:
            status, error_code = DoneStatus.SKIPPED, outcome.error_code
    return LedgerRecord(
        *(tenant, policy, ovid, other.item.kind is VersionKind.WEAK, status, bytes_seen, findings),
        *gaps,
        *(run_id, shard_id, fence),
        2 * number,
        finished_at(number),
        error_code,
    )


def _scanned_status(findings: int, gaps: Gaps) -> DoneStatus:
    if findings:
        return DoneStatus.SCANNED_WITH_FINDINGS
    return DoneStatus.SCANNED_PARTIAL if any(gaps) else DoneStatus.SCANNED_CLEAN
