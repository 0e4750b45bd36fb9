"""Reports as files: the format by the file's name, and a file that is written whole or not at all."""

from pathlib import Path

from strandline.errors import InvalidInput
from strandline.files import OsDisk, replace_file, storage_errors
from strandline.findings.reports.formats import ReportFormat, format_report
from strandline.findings.reports.values import Report

_SUFFIXES = {
    ".jsonl": ReportFormat.JSONL,
    ".ndjson": ReportFormat.JSONL,
    ".json": ReportFormat.GITLEAKS,
    ".csv": ReportFormat.CSV,
    ".sarif": ReportFormat.SARIF,
    ".html": ReportFormat.HTML,
    ".htm": ReportFormat.HTML,
}


def write_report(report: Report, form: ReportFormat, path: Path) -> None:
    """Replace a file by a report; after a failure the file is as before."""
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder", hint="give the name of a file")
    with storage_errors(path):
        replace_file(OsDisk(), path, "".join(format_report(report, form)).encode())


def format_of(name: str) -> ReportFormat:
    """Return the format of a file's suffix, JSON lines without a suffix; an unknown suffix is an error."""
    suffix = Path(name).suffix.lower()
    if not suffix:
        return ReportFormat.JSONL
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise InvalidInput(
            f"{name}: {suffix} is not a report format", hint=f"use a suffix of {known}, or give --format"
        )
    return _SUFFIXES[suffix]
