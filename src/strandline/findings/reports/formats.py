"""The formats of a report, by name."""

from collections.abc import Iterator
from enum import StrEnum

from strandline.findings.reports.csv import format_csv
from strandline.findings.reports.gitleaks import format_gitleaks
from strandline.findings.reports.html import format_html
from strandline.findings.reports.jsonl import format_baseline_of, format_jsonl
from strandline.findings.reports.sarif import format_sarif
from strandline.findings.reports.values import Report


class ReportFormat(StrEnum):
    """A format of reports."""

    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"
    HTML = "html"
    BASELINE = "baseline"
    GITLEAKS = "gitleaks"


_FORMATTERS = {
    ReportFormat.JSONL: format_jsonl,
    ReportFormat.CSV: format_csv,
    ReportFormat.SARIF: format_sarif,
    ReportFormat.HTML: format_html,
    ReportFormat.BASELINE: format_baseline_of,
    ReportFormat.GITLEAKS: format_gitleaks,
}


def format_report(report: Report, form: ReportFormat) -> Iterator[str]:
    """Yield a report's text piece by piece, ASCII in JSON and CSV as far as paths allow, UTF-8 in HTML."""
    return _FORMATTERS[form](report)
