"""Findings as comma-separated values (RFC 4180), one row each.

Invariants: no cell is a formula for a spreadsheet, whatever the names of files and rules: such a cell begins with an
apostrophe. No cell holds a line end or another control character. The hash of a secret is truncated: it shows which
rows are of one secret, and does not work as a baseline.
"""

import csv
import io
from collections.abc import Iterator

from strandline.detect.locations import shown
from strandline.findings.reports.values import CommitSpan, Report, ReportFinding, RuleFacts, SourceFacts, utc

COLUMNS = (
    *("finding_id", "rule_id", "description", "provider", "source", "path", "line", "column", "confidence", "level"),
    *("via", "commit", "row", "field", "places", "same_secret", "state", "decided_by", "reason", "first_seen"),
    *("root", "author", "email", "date", "last_commit", "last_author", "last_email", "last_date", "at_head"),
    *("owners", "verification", "verified"),
)
SECRET_SHOWN = 12
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "＝", "＋", "－", "＠")  # noqa: RUF001 - spreadsheets take them too


def format_csv(report: Report) -> Iterator[str]:
    """Yield the lines of a report; the first has the names of the columns."""
    yield _line(COLUMNS)
    for finding in report.findings:
        yield _line(
            (
                *_row(finding, report.rule(finding.rule_id)),
                _root(report.source(finding)),
                *_commits(finding.commits),
                " ".join(finding.owners),
                *_verification(finding),
            )
        )


def safe_cell(value: str | int) -> str | int:
    """Return a cell that is no formula."""
    if isinstance(value, int):
        return value
    text = shown(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _row(finding: ReportFinding, rule: RuleFacts) -> tuple[str | int, ...]:
    at, decision = finding.location, finding.decision
    return (
        *(finding.finding_id, finding.rule_id, rule.description, rule.provider),
        *(at.source, at.path, at.line, at.column, at.confidence, finding.level.value),
        *(" ".join(at.via), at.commit, at.row, at.field, len(finding.locations)),
        *(bytes.hex(finding.secret)[:SECRET_SHOWN], finding.state),
        *(("", "") if decision is None else (decision.who, decision.why)),
        utc(finding.first_seen_ns),
    )


def _root(source: SourceFacts | None) -> str:
    return "" if source is None else source.root or source.name


def _commits(span: CommitSpan | None) -> tuple[str, ...]:
    """Return the cells of the first and the last commit; the id of the first is that of the place."""
    if span is None:
        return ("",) * 8
    first, last = (facts.date for facts in (span.first, span.last))
    author = span.first.author, span.first.email, first
    return *author, span.last.commit, span.last.author, span.last.email, last, "yes" if span.at_head else "no"


def _verification(finding: ReportFinding) -> tuple[str, str]:
    answer = finding.verification
    return ("", "") if answer is None else (answer.state.value, utc(answer.when_ns))


def _line(cells: tuple[str | int, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(map(safe_cell, cells))
    return out.getvalue()
