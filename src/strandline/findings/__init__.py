"""List, judge, compare and export stored findings.

**Promise.** Reading changes nothing; the same stored results give the same report; no report holds a byte of a secret.
A decision is kept for ever, and the latest one is current.

**How.** A `State` (`strandline.scan.open_state`) is the stores, the tenant and its key. Over it

    report_builder    `build_report`: the findings in the items that the last scans listed, or all ever stored
    listed_sources    the items that the last scan of each source listed
    coverage          how completely those items were scanned
    detail            `find_detail`: one finding in full
    finding_ids       ids and prefixes of ids
    filters           findings by rule, path, state, confidence and source
    ignores           findings to leave out: `.gitleaksignore`, baselines, globs, comments
    baselines         known findings of earlier reports, gitleaks' or ours
    decisions         which decision holds: that about a finding, or about its secret
    triage            `decide`, `decide_everywhere`, `undo`: store a decision, or take it back
    index             `build_index`: a report to be searched, filtered, counted and grouped by pages
    first_findings    what pages show before the index is built
    diff              two policies over the same objects, or one policy at two times
    reports           a report as JSON lines, CSV, SARIF, HTML, baseline, gitleaks' JSON
    export            a report as a file, written whole or not at all

**Trade-offs.** A report holds its findings in memory; observations are read page by page.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.findings.baselines import Baseline, format_baseline, parse_baseline
    from strandline.findings.coverage import coverage_of
    from strandline.findings.detail import FindingDetail, find_detail
    from strandline.findings.diff import Difference, diff_policies, diff_times
    from strandline.findings.export import format_of, write_report
    from strandline.findings.filters import Filters, make_filters
    from strandline.findings.finding_ids import FindingAmbiguous, FindingUnknown, find_ids
    from strandline.findings.ignores import Cause, Fingerprint, Ignores, Reason, load_ignores, parse_ignore_file
    from strandline.findings.index import FindingIndex, build_index
    from strandline.findings.index_query import FindingQuery
    from strandline.findings.listed_sources import ListedSource, current_sources
    from strandline.findings.report_builder import build_report, findings_by_id, scan_report
    from strandline.findings.reports import Report, ReportFinding, ReportFormat, format_report
    from strandline.findings.triage import decide, decide_everywhere, undo

__all__ = [
    "Baseline",
    "Cause",
    "Difference",
    "Filters",
    "FindingAmbiguous",
    "FindingDetail",
    "FindingIndex",
    "FindingQuery",
    "FindingUnknown",
    "Fingerprint",
    "Ignores",
    "ListedSource",
    "Reason",
    "Report",
    "ReportFinding",
    "ReportFormat",
    "build_index",
    "build_report",
    "coverage_of",
    "current_sources",
    "decide",
    "decide_everywhere",
    "diff_policies",
    "diff_times",
    "find_detail",
    "find_ids",
    "findings_by_id",
    "format_baseline",
    "format_of",
    "format_report",
    "load_ignores",
    "make_filters",
    "parse_baseline",
    "parse_ignore_file",
    "scan_report",
    "undo",
    "write_report",
]

# Import a public name at its first use, so that a command loads only the modules that it needs.
__getattr__ = _lazy_names(
    __name__,
    {
        "baselines": ("Baseline", "format_baseline", "parse_baseline"),
        "coverage": ("coverage_of",),
        "detail": ("FindingDetail", "find_detail"),
        "diff": ("Difference", "diff_policies", "diff_times"),
        "export": ("format_of", "write_report"),
        "filters": ("Filters", "make_filters"),
        "finding_ids": ("FindingAmbiguous", "FindingUnknown", "find_ids"),
        "ignores": ("Cause", "Fingerprint", "Ignores", "Reason", "load_ignores", "parse_ignore_file"),
        "index": ("FindingIndex", "build_index"),
        "index_query": ("FindingQuery",),
        "listed_sources": ("ListedSource", "current_sources"),
        "report_builder": ("build_report", "findings_by_id", "scan_report"),
        "reports": ("Report", "ReportFinding", "ReportFormat", "format_report"),
        "triage": ("decide", "decide_everywhere", "undo"),
    },
)
