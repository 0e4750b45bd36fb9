"""Coverage: how completely the items of the last scans were scanned, from the done-ledger."""

from collections import Counter
from collections.abc import Iterator, Sequence

from strandline.findings.listed_sources import ListedSource, OpenScan
from strandline.findings.reports.values import (
    CoverageCount,
    Incomplete,
    ReportCoverage,
    Status,
    gaps_code,
    status_of,
)
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import OvidHash
from strandline.pipeline.ledger import LedgerRecord
from strandline.scan.state import State

INCOMPLETE_KEPT = 10_000


def coverage_of(state: State, listed: Sequence[ListedSource], open_scans: Sequence[OpenScan] = ()) -> ReportCoverage:
    """Return the items of sources by status and reason, with the first incomplete ones by path.

    An unfinished first scan of some sources counts with what it scanned, and with what it did not reach.
    """
    counts: Counter[tuple[Status, str]] = Counter()
    incomplete: list[Incomplete] = []
    bytes_seen = 0
    for number, source in enumerate(listed):
        for path, row in _ledger_rows(state, source):
            status, reason = _outcome(row)
            counts[status, reason] += 1
            bytes_seen += row.bytes_seen if row is not None else 0
            if status != Status.SCANNED and len(incomplete) < INCOMPLETE_KEPT:
                incomplete.append(Incomplete(status, reason, path, number))
    for scan in open_scans:
        if scan.is_first:
            counts[Status.SCANNED, ""] += scan.facts.done
            counts[Status.FAILED, "NOT_LOOKED_AT"] += max(0, scan.facts.items - scan.facts.done)
    order = list(Status)
    rows = [CoverageCount(status, reason, items) for (status, reason), items in counts.items() if items]
    rows.sort(key=lambda row: (order.index(row.status), -row.items, row.reason))
    incomplete.sort(key=lambda item: (-order.index(item.status), item.source, item.path))
    return ReportCoverage(rows, incomplete, bytes_seen)


def _ledger_rows(state: State, listed: ListedSource) -> Iterator[tuple[str, LedgerRecord | None]]:
    for batch in listed.items.to_batches(max_chunksize=BATCH_ROWS_MAX):
        ovids: list[OvidHash | None] = batch["ovid"].to_pylist()
        asked = [ovid for ovid in ovids if ovid is not None]
        rows = state.stores.ledger.batch_get(state.tenant, listed.policy, asked) if asked else []
        known = dict(zip(asked, rows, strict=True))
        for ovid, path in zip(ovids, batch["path"].to_pylist(), strict=True):
            yield path.decode(errors="surrogateescape"), None if ovid is None else known[ovid]


def _outcome(row: LedgerRecord | None) -> tuple[Status, str]:
    if row is None:
        return Status.FAILED, "NOT_LOOKED_AT"
    status = status_of(row.status, is_complete=row.is_complete)
    return status, gaps_code(*row.gaps) if status == Status.PARTIAL else row.error_code or ""
