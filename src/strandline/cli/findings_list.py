"""`strandline findings list`: what is found, one a row."""

import sys

from strandline.cli.findings_filters import All, Confidence, Paths, Rules, Sources, States, make_filters
from strandline.cli.findings_ids import ID_SHOWN
from strandline.cli.ignores import Baselines, IgnoreFiles, NoIgnore, load_ignores, tell_ignored
from strandline.cli.output import AsJson, Record, emit_rows, to_json
from strandline.cli.results import report_of
from strandline.cli.state import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    KeyFileOption,
    StateOption,
    TenantOption,
    open_state,
)
from strandline.scan.locations import shown
from strandline.scan.reports import Report, ReportFinding
from strandline.scan.reports.jsonl import plain_finding
from strandline.scan.reports.values import utc


def list_findings(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    where: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    rule: Rules = None,
    path: Paths = None,
    states: States = None,
    confidence: Confidence = None,
    source: Sources = None,
    everything: All = False,
    ignore_file: IgnoreFiles = None,
    baseline: Baselines = None,
    no_ignore: NoIgnore = False,
    as_json: AsJson = False,
) -> None:
    """List the findings that are in what was last scanned, by place.

    With --all also those that were found once and are gone.
    """
    filters = make_filters(rule, path, states, confidence, source)
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        report = report_of(state, everything=everything)
        if not no_ignore:
            roots = [one.root for one in report.facts.sources]
            report = report.ignoring(load_ignores(state.key, files=ignore_file, baselines=baseline, roots=roots))
    print_findings(filters.apply(report), as_json=as_json)
    tell_ignored(report)


def print_findings(report: Report, *, as_json: bool) -> None:
    """Print findings as a table or as JSON lines, and say on standard error if there are none."""
    if as_json:
        for finding in report.findings:
            print(to_json(plain_finding(finding, report.rule(finding.rule_id))))
        return
    if not report.findings:
        print("no findings", file=sys.stderr)
    emit_rows(map(table_row, report.findings), as_json=False)


def table_row(finding: ReportFinding) -> Record:
    """Return a finding as a row of a table."""
    more = len(finding.locations) - 1
    return {
        "id": finding.finding_id[:ID_SHOWN],
        "sure": f"{finding.location.confidence:2} {finding.level.value}",
        "rule": shown(finding.rule_id),
        "place": finding.display + (f" (+ {more})" if more else ""),
        "first seen": utc(finding.first_seen_ns)[:10],
        "state": finding.state,
    }
