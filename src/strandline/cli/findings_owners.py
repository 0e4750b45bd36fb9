"""`strandline findings owners`: findings by their owners in CODEOWNERS."""

import sys
from collections import defaultdict

from strandline.cli.findings_selection import Selection, selecting
from strandline.cli.ignore_options import print_ignored
from strandline.cli.output import AsJson, Record, emit_rows
from strandline.detect.locations import shown
from strandline.findings.filters import NO_OWNER, StateName
from strandline.findings.reports.values import Level, Report, ReportFinding


@selecting
def owners(selection: Selection, as_json: AsJson = False) -> None:
    """Count the findings of the last scans by their owners in CODEOWNERS.

    A finding of several owners counts for each of them.
    """
    report = selection.report()
    if not report.findings:
        print("no findings", file=sys.stderr)
    emit_rows(owner_rows(report), as_json=as_json)
    print_ignored(report)


def owner_rows(report: Report) -> list[Record]:
    """Return a row for each owner, those with the most open findings first."""
    owned: dict[str, list[ReportFinding]] = defaultdict(list)
    for finding in report.findings:
        for owner in finding.owners or (NO_OWNER,):
            owned[owner].append(finding)
    ordered = sorted(owned.items(), key=lambda one: (one[0] == NO_OWNER, -len(_opened(one[1])), one[0]))
    return [_row(owner, findings) for owner, findings in ordered]


def _opened(findings: list[ReportFinding]) -> list[ReportFinding]:
    return [finding for finding in findings if finding.state == StateName.OPEN.value]


def _row(owner: str, findings: list[ReportFinding]) -> Record:
    opened = _opened(findings)
    return {
        "owner": shown(owner),
        "findings": len(findings),
        "open": len(opened),
        "open high": sum(finding.level is Level.HIGH for finding in opened),
        "secrets": len({finding.secret for finding in findings}),
    }
