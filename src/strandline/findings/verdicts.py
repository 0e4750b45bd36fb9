"""Verdicts on the matches of one file: found, ignored by a comment, a file or a baseline, or dismissed by a check.

They are what a scan would decide: the engine's own explanation (`Engine.explain`), then the ignores of a report, in the
same order and by the same code. A verdict has a place and a reason, and no byte of a secret.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from strandline.detect import Engine, Explanation, Found
from strandline.detect.locations import FILE, location_of
from strandline.findings.ignores import Ignores
from strandline.findings.reports.values import ReportFinding, in_order, level_of
from strandline.scan.worker.content_scan import is_reported_hash


class Outcome(Enum):
    """What becomes of a match."""

    FOUND = "found"
    IGNORED = "ignored"
    DISMISSED = "dismissed"


@dataclass(frozen=True)
class Verdict:
    """What becomes of a match, and the reason; `by` is the check, or the kind of ignore. `length` is 0 in a view."""

    outcome: Outcome
    rule_id: str
    path: str
    line: int
    column: int
    by: str = ""
    reason: str = ""
    confidence: int = 0
    via: tuple[str, ...] = ()
    length: int = 0

    @property
    def level(self) -> str:
        """Return the confidence in words."""
        return level_of(self.confidence).value


def verdicts(engine: Engine, data: bytes, path: str, ignores: Ignores | None = None) -> list[Verdict]:
    """Return the verdicts on all matches in a file, by place."""
    explanation = engine.explain(data, path)
    made = [*_on_findings(explanation, data, ignores or Ignores()), *_on_dismissed(explanation)]
    return sorted(made, key=lambda one: (one.path, one.line, one.column, one.rule_id, one.via))


def unmatched(engine: Engine, line: bytes, judged: Iterable[Verdict]) -> dict[str, list[str]]:
    """Return the rules without a match on a line that has a keyword of theirs, with those keywords."""
    lowered = line.lower()
    known = {one.rule_id for one in judged}
    found = {}
    for rule in engine.rules.rules:
        words = [word for word in rule.keywords if word.encode() in lowered]
        if words and rule.id not in known:
            found[rule.id] = words
    return found


def _on_findings(explanation: Explanation, data: bytes, ignores: Ignores) -> list[Verdict]:
    found = explanation.result.findings
    numbers = {(one.rule_id, one.secret): one.numbers for one in in_order(_grouped(found))}
    made = []
    for one in found:
        nth = numbers[one.rule_id, one.secret].get(one.path, 0)
        cause = ignores.cause(one, nth=nth)
        if cause is not None:
            made.append(_verdict(Outcome.IGNORED, one, cause.reason.value, cause.detail))
        elif is_reported_hash(data, one):
            made.append(_verdict(Outcome.DISMISSED, one, "report", "a hash in a report of scans, not a secret"))
        else:
            made.append(_verdict(Outcome.FOUND, one, "", ""))
    return made


def _grouped(found: Sequence[Found]) -> list[ReportFinding]:
    """Return findings as a report has them: one for each secret, with its places."""
    places: dict[tuple[str, bytes], list[Found]] = {}
    for one in found:
        places.setdefault((one.rule_id, one.secret), []).append(one)
    return [
        ReportFinding("", group[0].rule_id, group[0].secret, tuple(location_of(FILE, one) for one in group), 0)
        for group in places.values()
    ]


def _verdict(outcome: Outcome, one: Found, by: str, reason: str) -> Verdict:
    length = 0 if one.via else one.end - one.start
    return Verdict(outcome, one.rule_id, one.path, one.line, one.column, by, reason, one.confidence, one.via, length)


def _on_dismissed(explanation: Explanation) -> list[Verdict]:
    return [
        Verdict(Outcome.DISMISSED, one.rule_id, one.path, one.line, one.column, one.check, one.reason, via=one.via)
        for one in explanation.dismissed
    ]
