"""Findings as JSON lines: one object a line with all fields of a finding; a baseline has only the fields that it needs.

Invariants: both are read back by `strandline.detect.parse_baseline`; ASCII, so that a path that is not UTF-8 survives.
"""

import json
from collections.abc import Iterator

from strandline.detect.locations import Location, format_display, format_url
from strandline.findings.baselines import format_baseline
from strandline.findings.reports.values import Report, ReportFinding, RuleFacts, SourceFacts, plain_verification, utc


def format_jsonl(report: Report) -> Iterator[str]:
    """Yield the lines of a report."""
    for finding in report.findings:
        yield json.dumps(plain_finding(finding, report.rule(finding.rule_id), report.source(finding))) + "\n"


def format_baseline_of(report: Report) -> Iterator[str]:
    """Yield a baseline of every finding of a report, in each of its paths."""
    for finding in report.findings:
        lines = {at.path: at.line for at in reversed(finding.locations)}
        yield format_baseline(
            (finding.rule_id, path, lines[path], nth) for path, nth in finding.numbers.items() if path in lines
        )


def plain_finding(finding: ReportFinding, rule: RuleFacts, source: SourceFacts | None = None) -> dict[str, object]:
    """Return a finding as an object for programs."""
    decision = finding.decision
    return {
        "finding_id": finding.finding_id,
        "rule_id": finding.rule_id,
        "description": rule.description,
        "tags": list(rule.tags),
        **_place(finding.location),
        **({} if source is None else {"root": source.root or source.name}),
        **({} if finding.commits is None else {"commits": finding.commits.plain()}),
        **({"owners": list(finding.owners)} if finding.owners else {}),
        "level": finding.level.value,
        "nth": finding.nth,
        "secret": bytes.hex(finding.secret),
        "state": finding.state,
        "decided": None
        if decision is None
        else {"when": utc(decision.when_ns), "who": decision.who, "why": decision.why},
        "verification": plain_verification(finding.verification),
        "first_seen": utc(finding.first_seen_ns),
        "other_places": [_place(place) for place in finding.locations[1:]],
    }


def _place(location: Location) -> dict[str, object]:
    place: dict[str, object] = {
        "location": format_display(location),
        "url": format_url(location),
        "source": location.source,
        "path": location.path,
        "line": location.line,
        "column": location.column,
        "confidence": location.confidence,
    }
    given = {"commit": location.commit, "row": location.row, "field": location.field, "via": list(location.via)}
    given["inner"] = location.inner
    return {**place, **{name: value for name, value in given.items() if value}}
