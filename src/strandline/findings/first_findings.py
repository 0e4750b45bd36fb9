"""The first findings in the order of places, out of the stores: what pages show until the index is built.

The database sorts locations and sends the first rows; only their findings are made, and an index over these few
answers. What it answers is what the index of all findings would: `page` returns None where it cannot know.

Invariants: nothing is written; a page is the same as that of `build_index` over the same stores, or None.
"""

import threading

from strandline.findings.finding_rows import FindingRows
from strandline.findings.index import FindingIndex, IndexedFinding
from strandline.findings.index_columns import VALUES
from strandline.findings.index_query import FindingQuery
from strandline.findings.listed_sources import current_sources, unfinished_scans
from strandline.findings.report_builder import Among, context_of, current_of, facts_of, findings_of, policies_of
from strandline.findings.reports.values import in_order
from strandline.pipeline.identity import FindingId, OvidHash, PolicyHash, SecretHash
from strandline.pipeline.stored_findings import read_first_seen
from strandline.pipeline.verifications import Liveness, read_verifications
from strandline.scan.state import State

_ROWS = (250, 2_500)
"""How many rows are asked for first, and where too few of their findings match."""
_LIVE_MAX = 100


class FirstFindings:
    """The first findings of a state; it may be used by several threads, and reads when it is asked first."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._read: list[tuple[FindingIndex, bool] | None] = []

    def page(self, query: FindingQuery, *, first: int = 0, limit: int = 100) -> list[IndexedFinding] | None:
        """Return some of the matching findings; None where all findings have to be read for that."""
        if query.sort != "place" or query.show != "current":
            return None
        for number, _ in enumerate(_ROWS):
            read = self._index(number)
            if read is None:
                return None
            index, is_whole = read
            found = index.page(query, first=first, limit=limit)
            if is_whole or len(found) == limit:
                return found
        return None

    def _index(self, number: int) -> tuple[FindingIndex, bool] | None:
        with self._lock:
            while len(self._read) <= number:
                self._read.append(_read_first(self._state, _ROWS[len(self._read)]))
            return self._read[number]


def _read_first(state: State, rows: int) -> tuple[FindingIndex, bool] | None:
    """Return an index of the first findings, and whether those are all that are current; None if it is not known."""
    open_scans = unfinished_scans(state)  # before inventories: a scan writes its own before it deletes its mark
    listed = current_sources(state)
    verified = read_verifications(state.stores.state, state.tenant)
    live = [secret for secret, one in verified.items() if one.state is Liveness.LIVE]
    if len(live) > _LIVE_MAX:
        return None
    first = read_first_seen(state.stores, state.tenant, rows, _findings_of(state, live))
    if first is None:
        return None
    ovids: dict[PolicyHash, dict[OvidHash, None]] = {}
    for _, policy, ovid in sorted(first.seen):
        ovids.setdefault(policy, {})[ovid] = None
    among = Among({finding for finding, _, _ in first.seen}, {policy: list(found) for policy, found in ovids.items()})
    policies = policies_of(listed, open_scans)
    context = context_of(state, listed, open_scans, (ovid for _, _, ovid in first.seen), policies)
    found = in_order(findings_of(current_of(state, listed, open_scans, among), context))
    if first.frontier is not None:  # a finding at that path may be missing, and one behind it may not be the next
        found = [one for one in found if one.is_live or one.path < first.frontier]
    facts = facts_of(state, context.listed, open_scans)
    return FindingIndex(FindingRows(facts, VALUES.empty_table(), found)), first.frontier is None


def _findings_of(state: State, secrets: list[SecretHash]) -> list[FindingId]:
    reads = state.stores.reads
    return [one.finding_id for secret in secrets for one in reads.findings_of_secret(state.tenant, secret)]
