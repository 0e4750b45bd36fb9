"""`strandline findings list`: findings as a table, one a row."""

import shutil
import sys

from strandline.cli.findings_selection import Selection, selecting
from strandline.cli.ignore_options import print_ignored
from strandline.cli.output import AsJson, Record, emit_rows, to_json
from strandline.detect.locations import shown
from strandline.findings.finding_ids import ID_SHOWN
from strandline.findings.reports.jsonl import plain_finding
from strandline.findings.reports.values import CommitSpan, Report, ReportFinding, utc
from strandline.pipeline.verifications import Verification

NARROW_COLUMNS = 100


@selecting
def list_findings(selection: Selection, as_json: AsJson = False) -> None:
    """List the findings of the last scans, by place.

    Those that are verified as live come first. With --all also those that are gone.
    """
    report = selection.report()
    print_findings(report, as_json=as_json)
    print_ignored(report)


def print_findings(report: Report, *, as_json: bool) -> None:
    """Print findings as a table or as JSON lines; an empty report is noted on standard error."""
    if as_json:
        for finding in report.findings:
            print(to_json(plain_finding(finding, report.rule(finding.rule_id), report.source(finding))))
        return
    if not report.findings:
        print("no findings yet" if report.facts.unfinished else "no findings", file=sys.stderr)
    is_narrow = is_terminal() and shutil.get_terminal_size().columns < NARROW_COLUMNS
    shape, roots = (narrow_row if is_narrow else table_row), _roots(report)
    in_git = not is_narrow and any(finding.commits is not None for finding in report.findings)
    has_owners = not is_narrow and any(finding.owners for finding in report.findings)
    is_verified = any(finding.verification is not None for finding in report.findings)
    rows = (
        {
            **shape(one),
            **({"verified": _verified(one.verification)} if is_verified else {}),
            **({"owners": shown(" ".join(one.owners))} if has_owners else {}),
            **({"commits": _commits(one.commits)} if in_git else {}),
            **_root(roots, one),
        }
        for one in report.findings
    )
    emit_rows(rows, as_json=False)


def _roots(report: Report) -> list[str]:
    """Return the names of the sources for a column, if there are several; none if one says it all."""
    full = [source.root or source.name for source in report.facts.sources]
    names = [source.name for source in report.facts.sources]
    if len(set(full)) < 2:  # noqa: PLR2004 - the place alone tells it
        return []
    return names if len(set(names)) == len(set(full)) else full


def _root(roots: list[str], finding: ReportFinding) -> Record:
    return {"root": shown(roots[finding.source])} if roots else {}


def is_terminal() -> bool:
    """Return whether the table goes to a terminal."""
    return sys.stdout.isatty()


def narrow_row(finding: ReportFinding) -> Record:
    """Return a finding as a row for a narrow terminal: the place first, and only what says what to do with it."""
    row = table_row(finding)
    return {name: row[name] for name in ("place", "rule", "state", "id")}


def table_row(finding: ReportFinding) -> Record:
    """Return a finding as a row of a table."""
    more = len(finding.locations) - 1
    return {
        "id": finding.finding_id[:ID_SHOWN],
        "confidence": f"{finding.location.confidence:2} {finding.level.value}",
        "rule": shown(finding.rule_id),
        "place": finding.display + (f" (+ {more})" if more else ""),
        "first seen": utc(finding.first_seen_ns)[:10],
        "state": finding.state,
    }


def _verified(answer: Verification | None) -> str:
    """Return the last answer of a provider in a few words."""
    return "" if answer is None else f"{answer.state.value} {utc(answer.when_ns)[:10]}"


def _commits(span: CommitSpan | None) -> str:
    """Return the commits of a finding in a few words."""
    if span is None:
        return ""
    when = f" {span.first.date[:10]}" if span.first.when_s else ""
    by = f" {span.first.author}" if span.first.author else ""
    return shown(f"{'at HEAD' if span.at_head else 'not at HEAD'}, since{when}{by}")
