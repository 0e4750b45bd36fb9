"""An index over the findings of a report, for pages: filtered, sorted, counted and grouped in milliseconds.

Which findings are current follows from the inventories of scans, and which decision holds from decisions about findings
and secrets; neither is a column of the stores. So findings are read once, as columns (`finding_rows`), which answer
questions until the stores change; a finding is made when it is shown.

Invariants: an index answers as `strandline findings list` does over the same stores; it holds hashes of secrets and no
byte of one; `refresh` takes over decisions without building it again. It may be used by several threads.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strandline.errors import InvalidInput
from strandline.findings.decisions import Decisions
from strandline.findings.finding_rows import FindingRows, read_finding_rows
from strandline.findings.index_columns import Columns, Mask, Rows, group_of, storable
from strandline.findings.index_query import FindingQuery
from strandline.findings.report_builder import RuleBook
from strandline.findings.reports.values import Report, ReportFinding, state_name
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import FindingId
from strandline.pipeline.triage import TriageState
from strandline.scan.state import State

SORTS = ("place", "newest", "confidence", "rule")
OPEN = state_name(TriageState.OPEN)
_CACHED_MAX = 32


class SecretGroup(NamedTuple):
    """The findings of one secret; `group` names it without its hash."""

    group: str
    findings: int
    sources: tuple[str, ...]
    paths: int
    rules: tuple[str, ...]
    open: int
    confidence: int
    first: str


class Facets(NamedTuple):
    """Counts of the findings that match a query, and of those that would, by each value of each filter."""

    matching: int
    rules: Mapping[str, int]
    states: Mapping[str, int]
    sources: Mapping[str, int]
    levels: Mapping[str, int]
    new: int
    gone: int


@dataclass(frozen=True)
class IndexedFinding:
    """A finding of the index; `group` is the same for findings of the same secret."""

    finding: ReportFinding
    display: str
    source_name: str
    group: str
    is_gone: bool


class FindingIndex:
    """The index of one report."""

    def __init__(self, rows: FindingRows) -> None:
        self.facts = rows.facts
        self.current = rows.current
        self._findings = rows
        self._columns = Columns(rows.values)
        self._lock = threading.Lock()
        self._texts: dict[tuple[str, str, str], Mask] = {}

    def page(self, query: FindingQuery, *, first: int = 0, limit: int = 100) -> list[IndexedFinding]:
        """Return some of the matching findings, in the order asked for."""
        return [self._indexed(int(row)) for row in self._matching(query)[first : first + limit]]

    def find(self, finding_id: str) -> IndexedFinding | None:
        """Return a finding by its id, or None."""
        row = self._findings.row_of(bytes.fromhex(finding_id))
        return None if row is None else self._indexed(row)

    def ids(self, query: FindingQuery) -> list[FindingId]:
        """Return the ids of the matching findings, at most as many as one decision may be about, and one more."""
        rows = np.flatnonzero(self._mask(query))[: BATCH_ROWS_MAX + 1]
        return self._findings.ids(rows)

    def facets(self, query: FindingQuery) -> Facets:
        """Return counts for the filters of a query; a filter's own counts leave it out."""
        columns = self._columns
        texts = self._of_texts(query)
        filters = [
            columns.rule.among(query.rules),
            columns.state.among(query.states),
            columns.source.among(query.sources),
            columns.confidence >= query.confidence,
        ]
        shown = texts & self._shown(query)
        rules, states, sources, levels = (
            column.counts(_all(shown, *(one for other, one in enumerate(filters) if other != number)))
            for number, column in enumerate((columns.rule, columns.state, columns.source, columns.level))
        )
        fitting = _all(texts, *filters)
        matching = int(np.count_nonzero(fitting & shown))
        new, gone = (int(np.count_nonzero(fitting & column)) for column in (columns.is_new, columns.is_gone))
        return Facets(matching, rules, states, sources, levels, new, gone)

    def counts(self) -> Facets:
        """Return counts of all current findings."""
        return self.facets(FindingQuery())

    def groups(self, query: FindingQuery, *, first: int = 0, limit: int = 100) -> tuple[int, list[SecretGroup]]:
        """Return the number of distinct secrets that match, and some of them, those at most places first."""
        mask, secrets = self._mask(query), len(self._columns.secrets)
        rows = np.flatnonzero(mask)
        codes = self._columns.secret[rows]
        places = np.bincount(codes, minlength=secrets)
        begins = np.zeros(secrets, np.int64)
        begins[codes[::-1]] = rows[::-1]  # the last assignment holds: that of the first row
        matching = np.flatnonzero(places)
        ordered = matching[np.lexsort((begins[matching], -places[matching]))]
        return len(matching), [self._group(int(code), mask) for code in ordered[first : first + limit]]

    def report(self, query: FindingQuery) -> Report:
        """Return the matching findings as a report."""
        found = self._findings.numbered(self._matching(query))
        return Report(found, RuleBook({one.rule_id for one in found}), facts=self.facts)

    def refresh(self, state: State, findings: Sequence[FindingId]) -> None:
        """Take over the decisions about findings, and about all findings of their secrets."""
        decisions = Decisions(state)
        rows = self._with_same_secrets(findings)
        for first in range(0, len(rows), BATCH_ROWS_MAX):
            part = rows[first : first + BATCH_ROWS_MAX]
            events = state.stores.triage.triage_of(state.tenant, self._findings.ids(np.array(part)))
            for row, own in zip(part, events, strict=True):
                self._findings.decide(row, decisions.current(self._findings.finding(row).secret, own))
        with self._lock:
            self._columns.decide(rows, [self._findings.finding(row).state for row in rows])

    def _with_same_secrets(self, findings: Sequence[FindingId]) -> list[int]:
        known = [row for finding in findings if (row := self._findings.row_of(finding)) is not None]
        codes = dict.fromkeys(int(self._columns.secret[row]) for row in known)
        return [int(row) for code in codes for row in self._columns.of_secret(code)]

    def _matching(self, query: FindingQuery) -> Rows:
        """Return the matching rows in the order asked for."""
        if query.sort not in SORTS:
            raise InvalidInput(f"{query.sort!r} is not an order", hint=f"one of {', '.join(SORTS)}")
        mask, order = self._mask(query), self._columns.order(query.sort)
        return np.flatnonzero(mask) if order is None else order[mask[order]]

    def _mask(self, query: FindingQuery) -> Mask:
        columns = self._columns
        return _all(
            self._of_texts(query),
            self._shown(query),
            columns.rule.among(query.rules),
            columns.state.among(query.states),
            columns.source.among(query.sources),
            columns.confidence >= query.confidence,
        )

    def _shown(self, query: FindingQuery) -> Mask:
        columns = self._columns
        shown = np.array([query.shows(is_gone=False), query.shows(is_gone=True)])[columns.is_gone.astype(np.int64)]
        return shown & columns.is_new if query.is_new else shown

    def _of_texts(self, query: FindingQuery) -> Mask:
        """Return the rows that have the texts of a query: looked for once for all pages of a search."""
        key = query.text, query.place, query.group
        with self._lock:
            known = self._texts.get(key)
        if known is None:
            known = self._columns.matching_texts(query)
            with self._lock:
                while len(self._texts) >= _CACHED_MAX:
                    del self._texts[next(iter(self._texts))]
                self._texts[key] = known
        return known

    def _group(self, code: int, mask: Mask) -> SecretGroup:
        columns = self._columns
        rows = columns.of_secret(code)
        rows = rows[mask[rows]]
        first = self._findings.finding(int(rows[0]))
        states = columns.state.rows[rows]
        return SecretGroup(
            group=group_of(bytes(first.secret)),
            findings=len(rows),
            sources=tuple(sorted(columns.source.values[one] for one in np.unique(columns.source.rows[rows]))),
            paths=columns.paths_at(rows),
            rules=tuple(sorted(columns.rule.values[one] for one in np.unique(columns.rule.rows[rows]))),
            open=int(np.count_nonzero(states == columns.state.codes[OPEN])),
            confidence=int(columns.confidence[rows].max()),
            first=storable(first.display),
        )

    def _indexed(self, row: int) -> IndexedFinding:
        one, name = self._findings.finding(row), self._columns.source
        secret = group_of(bytes(one.secret))
        return IndexedFinding(one, storable(one.display), name.values[name.rows[row]], secret, row >= self.current)


def build_index(state: State) -> FindingIndex:
    """Return an index of the findings of the last scans, and of those that are gone since."""
    rows = read_finding_rows(state)
    index = FindingIndex(rows)
    rows.forget("path", "line", "column", "display", "state", "confidence", "is_gone", "is_live", "source")
    return index


def _all(first: Mask, *others: Mask) -> Mask:
    found = first.copy()
    for one in others:
        found &= one
    return found
