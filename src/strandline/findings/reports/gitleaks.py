"""Findings as the JSON report of gitleaks, without matched text, for tools that read it.

Invariants: `Match` and `Secret` are `REDACTED`: the file holds no secret. `Fingerprint` is a line
for a `.gitleaksignore`, and gitleaks accepts the file as a baseline.
"""

import json
from collections.abc import Iterator

from strandline.detect.locations import Location
from strandline.findings.ignores import Fingerprint, format_fingerprint
from strandline.findings.reports.values import Report, ReportFinding, RuleFacts
from strandline.scan.commit_facts import CommitFacts

REDACTED = "REDACTED"


def format_gitleaks(report: Report) -> Iterator[str]:
    """Yield the pieces of a JSON array, with an object for each place of each finding."""
    separator = "[\n "
    for finding in report.findings:
        rule = report.rule(finding.rule_id)
        for place in finding.locations:
            yield separator + json.dumps(_plain(finding, rule, place))
            separator = ",\n "
    yield "[]\n" if separator.startswith("[") else "\n]\n"


def _plain(finding: ReportFinding, rule: RuleFacts, at: Location) -> dict[str, object]:
    span = finding.commits
    by = span.first if span is not None and span.first.commit == at.commit else CommitFacts(at.commit)
    return {
        "RuleID": finding.rule_id,
        "Description": rule.description,
        "StartLine": at.line,
        "EndLine": at.line,
        "StartColumn": at.column,
        "EndColumn": at.column,
        "Match": REDACTED,
        "Secret": REDACTED,
        "File": at.path,
        "SymlinkFile": "",
        "Commit": at.commit,
        "Entropy": 0,
        "Author": by.author,
        "Email": by.email,
        "Date": by.date,
        "Message": "",
        "Tags": list(rule.tags),
        "Fingerprint": format_fingerprint(Fingerprint(at.path, finding.rule_id, at.line, at.commit)),
    }
