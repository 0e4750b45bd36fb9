"""Reports: findings for people and programs, in the formats that each of them reads.

**Promise.** The same results give the same report. No report holds a byte of a secret; names of files, rules and
columns are data in every format: never a formula, a tag or a script.

**How.** `values` is the content of a report: findings with their places, the rules, coverage by status and reason,
and the scan. Each format is a pure function from a `Report` to pieces of text:

    jsonl      an object for each finding, with everything; readable as a baseline
    csv        a row for each finding, for spreadsheets
    sarif      SARIF 2.1.0, for code hosts and editors
    html       one file with charts and filters, which needs no network
    baseline   the input of `strandline findings --baseline`, which excludes these findings
    gitleaks   the JSON of gitleaks, redacted

**Trade-offs.** The keyed hash of a secret is in the JSON lines, which need it to recognize a secret, and nowhere
else: without the tenant's key it shows only which findings are of one secret. A baseline has none, so that it fits in
every clone: a new secret in the place of a known one is known too.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.findings.reports.formats import ReportFormat, format_report
    from strandline.findings.reports.values import (
        CoverageCount,
        Decision,
        Incomplete,
        Level,
        Report,
        ReportCoverage,
        ReportFacts,
        ReportFinding,
        RuleFacts,
        SourceFacts,
        Status,
    )

__all__ = [
    "CoverageCount",
    "Decision",
    "Incomplete",
    "Level",
    "Report",
    "ReportCoverage",
    "ReportFacts",
    "ReportFinding",
    "ReportFormat",
    "RuleFacts",
    "SourceFacts",
    "Status",
    "format_report",
]

# Import a public name at its first use: a table of findings needs no format of a report.
__getattr__ = _lazy_names(
    __name__,
    {
        "formats": ("ReportFormat", "format_report"),
        "values": (
            "CoverageCount",
            "Decision",
            "Incomplete",
            "Level",
            "Report",
            "ReportCoverage",
            "ReportFacts",
            "ReportFinding",
            "RuleFacts",
            "SourceFacts",
            "Status",
        ),
    },
)
