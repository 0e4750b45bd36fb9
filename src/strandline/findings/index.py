"""An index over the findings of a report, for pages: filtered, sorted, counted and grouped in milliseconds.

Which findings are current follows from the inventories of scans, and which decision holds from decisions about findings
and secrets; neither is a column of the stores. So a report is built once (`build_report`) and laid into a SQLite
database in memory, which answers questions until the stores change.

Invariants: an index answers as `strandline findings list` does over the same stores; it holds hashes of secrets and no
byte of one; `refresh` takes over decisions without building it again. It may be used by several threads.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from strandline.detect.locations import format_url, parse_url, read_location
from strandline.errors import InvalidInput
from strandline.findings.decisions import Decisions
from strandline.findings.index_query import FindingQuery, Where, where_of
from strandline.findings.report_builder import RuleBook, build_report
from strandline.findings.reports.values import Decision, Report, ReportFinding, state_name
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import FindingId, SecretHash
from strandline.pipeline.triage import TriageState
from strandline.scan.state import State

_TABLE = """
CREATE TABLE findings (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, rule TEXT NOT NULL, secret BLOB NOT NULL, path TEXT NOT NULL,
    display TEXT NOT NULL, kind TEXT NOT NULL, source INTEGER NOT NULL, source_name TEXT NOT NULL,
    confidence INTEGER NOT NULL, level TEXT NOT NULL, state TEXT NOT NULL, first_ns INTEGER NOT NULL,
    is_new INTEGER NOT NULL, is_gone INTEGER NOT NULL, places TEXT NOT NULL, numbers TEXT NOT NULL,
    decided TEXT, haystack TEXT NOT NULL
) STRICT
"""
_INDEXES = (
    "CREATE UNIQUE INDEX by_id ON findings (id)",
    "CREATE INDEX by_secret ON findings (secret, seq)",
    "CREATE INDEX by_rule ON findings (rule, seq)",
    "CREATE INDEX by_state ON findings (state, seq)",
    "CREATE INDEX by_confidence ON findings (confidence DESC, seq)",
    "CREATE INDEX by_time ON findings (first_ns DESC, seq)",
)
_COLUMNS = (
    *(
        "seq",
        "id",
        "rule",
        "secret",
        "path",
        "display",
        "kind",
        "source",
        "source_name",
        "confidence",
        "level",
        "state",
    ),
    *("first_ns", "is_new", "is_gone", "places", "numbers", "decided"),
)
SORTS = {
    "place": "seq",
    "newest": "first_ns DESC, seq",
    "confidence": "confidence DESC, seq",
    "rule": "rule, seq",
}
_FACETS = ("rule", "state", "source_name", "level", "is_new", "is_gone")
_CACHED_MAX = 64


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

    def __init__(self, report: Report, gone: Iterable[ReportFinding] = ()) -> None:
        self.facts = report.facts
        self._lock = threading.Lock()
        self._cached: dict[str, object] = {}
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.execute(_TABLE)
        rows = _rows(report, report.findings, is_gone=False)
        self._insert(rows)
        self.current = int(self._one("SELECT count(*) FROM findings"))
        self._insert(_rows(report, gone, is_gone=True))
        for statement in _INDEXES:
            self._database.execute(statement)
        self._database.execute("ANALYZE")

    def close(self) -> None:
        """Free the memory."""
        with self._lock:
            self._database.close()

    def page(self, query: FindingQuery, *, first: int = 0, limit: int = 100) -> list[IndexedFinding]:
        """Return some of the matching findings, in the order asked for."""
        order = SORTS.get(query.sort)
        if order is None:
            raise InvalidInput(f"{query.sort!r} is not an order", hint=f"one of {', '.join(SORTS)}")
        where = where_of(query)
        sql = f"SELECT {', '.join(_COLUMNS)} FROM findings {where.sql} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608 - our own names
        return [_indexed(row) for row in self._all(sql, (*where.values, limit, first))]

    def find(self, finding_id: str) -> IndexedFinding | None:
        """Return a finding by its id, or None."""
        rows = self._all(f"SELECT {', '.join(_COLUMNS)} FROM findings WHERE id = ?", (finding_id,))  # noqa: S608 - our own names
        return _indexed(rows[0]) if rows else None

    def ids(self, query: FindingQuery) -> list[FindingId]:
        """Return the ids of the matching findings, at most as many as one decision may be about."""
        where = where_of(query)
        sql = f"SELECT id FROM findings {where.sql} ORDER BY seq LIMIT ?"  # noqa: S608 - our own names
        return [FindingId(bytes.fromhex(row[0])) for row in self._all(sql, (*where.values, BATCH_ROWS_MAX + 1))]

    def facets(self, query: FindingQuery) -> Facets:
        """Return counts for the filters of a query; a filter's own counts leave it out."""
        cube = self._cube(replace(query, rules=(), states=(), sources=(), confidence=0, is_new=False, show="all"))
        return _facets(cube, query)

    def counts(self) -> Facets:
        """Return counts of all current findings."""
        return self.facets(FindingQuery())

    def groups(self, query: FindingQuery, *, first: int = 0, limit: int = 100) -> tuple[int, list[SecretGroup]]:
        """Return the number of distinct secrets that match, and some of them, those at most places first."""
        where = where_of(query)
        total = int(self._one(f"SELECT count(DISTINCT secret) FROM findings {where.sql}", where.values))  # noqa: S608 - our own names
        sql = f"""
            SELECT secret, count(*) AS places, group_concat(DISTINCT source_name), count(DISTINCT path),
                group_concat(DISTINCT rule), sum(state = 'open'), max(confidence), min(seq) AS at
            FROM findings {where.sql}
            GROUP BY secret ORDER BY places DESC, at LIMIT ? OFFSET ?
        """  # noqa: S608 - our own names
        return total, [self._group(row) for row in self._all(sql, (*where.values, limit, first))]

    def report(self, query: FindingQuery) -> Report:
        """Return the matching findings as a report."""
        where = where_of(query)
        sql = f"SELECT {', '.join(_COLUMNS)} FROM findings {where.sql} ORDER BY {SORTS[query.sort]}"  # noqa: S608 - our own names
        found = [_indexed(row).finding for row in self._all(sql, where.values)]
        return Report(found, RuleBook({one.rule_id for one in found}), facts=self.facts)

    def refresh(self, state: State, findings: Sequence[FindingId]) -> None:
        """Take over the decisions about findings, and about all findings of their secrets."""
        decisions = Decisions(state)
        wanted = self._with_same_secrets(findings)
        ids = [FindingId(bytes.fromhex(one)) for one in wanted]
        changed = []
        for first in range(0, len(ids), BATCH_ROWS_MAX):
            part = ids[first : first + BATCH_ROWS_MAX]
            for finding, own in zip(part, state.stores.triage.triage_of(state.tenant, part), strict=True):
                decision = decisions.current(wanted[finding.hex()], own)
                changed.append((_state_of(decision), _format_decision(decision), finding.hex()))
        with self._lock:
            self._database.execute("BEGIN")
            self._database.executemany("UPDATE findings SET state = ?, decided = ? WHERE id = ?", changed)
            self._database.execute("COMMIT")
            self._cached.clear()

    def _with_same_secrets(self, findings: Sequence[FindingId]) -> dict[str, SecretHash]:
        found: dict[str, SecretHash] = {}
        sql = "SELECT id, secret FROM findings WHERE secret = (SELECT secret FROM findings WHERE id = ?)"
        for finding in findings:
            if finding.hex() not in found:
                found.update({row[0]: SecretHash(row[1]) for row in self._all(sql, (finding.hex(),))})
        return found

    def _group(self, row: tuple[Any, ...]) -> SecretGroup:
        secret, places, sources, paths, rules, open_, confidence, seq = row
        first = self._one("SELECT display FROM findings WHERE seq = ?", (seq,))
        names = tuple(sorted(sources.split(","))), tuple(sorted(rules.split(",")))
        return SecretGroup(group_of(secret), places, names[0], paths, names[1], open_, confidence, str(first))

    def _cube(self, query: FindingQuery) -> Mapping[tuple[Any, ...], int]:
        """Return counts by all values of all filters; one question to the database answers every page of a search."""
        where: Where = where_of(query)
        key = repr(where)
        with self._lock:
            known = self._cached.get(key)
        if isinstance(known, dict):
            return known
        names = ", ".join(_FACETS)
        sql = f"SELECT {names}, confidence, count(*) FROM findings {where.sql} GROUP BY {names}, confidence"  # noqa: S608 - our own names
        cube = {row[:-1]: row[-1] for row in self._all(sql, where.values)}
        with self._lock:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[key] = cube
        return cube

    def _insert(self, rows: Iterable[tuple[Any, ...]]) -> None:
        names = (*_COLUMNS[1:], "haystack")
        marks = ", ".join("?" * len(names))
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO findings ({', '.join(names)}) VALUES ({marks})", rows)  # noqa: S608 - our own names
        self._database.execute("COMMIT")

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:  # noqa: ANN401 - a cell
        return self._all(sql, values)[0][0]


def build_index(state: State) -> FindingIndex:
    """Return an index of the findings of the last scans, and of those that are gone since."""
    report = build_report(state)
    known = {one.finding_id for one in report.findings}
    stored = sum(counts.findings for counts in state.stores.reads.counts_by_policy(state.tenant))
    gone: list[ReportFinding] = []
    if stored > len(known):
        gone = [one for one in build_report(state, everything=True).findings if one.finding_id not in known]
    return FindingIndex(report, gone)


def group_of(secret: bytes) -> str:
    """Return a name for a secret's group: too little of its hash to serve as a baseline."""
    return secret.hex()[:12]


def _rows(report: Report, findings: Iterable[ReportFinding], *, is_gone: bool) -> Iterator[tuple[Any, ...]]:
    names = [source.name for source in report.facts.sources]
    for one in findings:
        at = one.location
        name = names[one.source] if one.source < len(names) and not is_gone else at.source
        places = json.dumps([[format_url(place), place.length] for place in one.locations])
        text = f"{one.display}\n{one.rule_id}\n{name}\n{one.finding_id}"
        yield (
            *(one.finding_id, one.rule_id, bytes(one.secret), _storable(at.path), _storable(one.display), at.source),
            *(one.source, name, at.confidence, one.level.value, one.state, one.first_seen_ns),
            *(int(one.is_new and not is_gone), int(is_gone), places, json.dumps(dict(one.numbers))),
            *(_format_decision(one.decision), _storable(text.casefold())),
        )


def _storable(text: str) -> str:
    """Return a text that UTF-8 can hold: bytes of names that are no UTF-8 become question marks here alone."""
    return text.encode(errors="replace").decode()


def _indexed(row: tuple[Any, ...]) -> IndexedFinding:
    named = dict(zip(_COLUMNS, row, strict=True))
    locations = tuple(replace(_place(url), length=length) for url, length in json.loads(named["places"]))
    finding = ReportFinding(
        finding_id=named["id"],
        rule_id=named["rule"],
        secret=SecretHash(named["secret"]),
        locations=locations,
        first_seen_ns=named["first_ns"],
        decision=_parse_decision(named["decided"]),
        source=named["source"],
        is_new=bool(named["is_new"]),
        numbers=json.loads(named["numbers"]),
    )
    group = group_of(named["secret"])
    return IndexedFinding(finding, named["display"], named["source_name"], group, bool(named["is_gone"]))


def _place(url: str) -> Any:  # noqa: ANN401 - a location
    try:
        return parse_url(url)
    except InvalidInput:
        return read_location(url, None)


def _format_decision(decision: Decision | None) -> str | None:
    return None if decision is None else json.dumps([int(decision.state), *decision[1:]])


def _parse_decision(text: str | None) -> Decision | None:
    if text is None:
        return None
    state, *rest = json.loads(text)
    return Decision(TriageState(state), *rest)


def _state_of(decision: Decision | None) -> str:
    return state_name(TriageState.OPEN if decision is None else decision.state)


def _facets(cube: Mapping[tuple[Any, ...], int], query: FindingQuery) -> Facets:
    """Return counts from the counts of all combinations."""
    found: list[Counter[str]] = [Counter(), Counter(), Counter(), Counter()]
    matching = new = gone = 0
    for (rule, state, source, level, is_new, is_gone, confidence), count in cube.items():
        fits = (
            *(not query.rules or rule in query.rules, not query.states or state in query.states),
            *(not query.sources or source in query.sources, confidence >= query.confidence),
        )
        shown = query.shows(is_gone=bool(is_gone)) and (not query.is_new or is_new)
        if shown:
            for at, value in enumerate((rule, state, source, level)):
                if all(fit for number, fit in enumerate(fits) if number != at):
                    found[at][value] += count
        if all(fits):
            matching += count if shown else 0
            new += count if is_new else 0
            gone += count if is_gone else 0
    rules, states, sources, levels = found
    return Facets(matching, rules, states, sources, levels, new, gone)
