"""`strandline findings export`: findings in a file, for people or for other programs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.findings_selection import Selection, selecting
from strandline.cli.ignores import tell_ignored
from strandline.errors import InvalidInput
from strandline.files import OsDisk, replace_file, storage_errors
from strandline.findings.reports import Report, ReportFormat, format_report

_SUFFIXES = {
    ".jsonl": ReportFormat.JSONL,
    ".ndjson": ReportFormat.JSONL,
    ".csv": ReportFormat.CSV,
    ".sarif": ReportFormat.SARIF,
    ".html": ReportFormat.HTML,
    ".htm": ReportFormat.HTML,
}

Format = Annotated[
    ReportFormat | None, typer.Option("--format", help="The format; by default what the output's name says, or jsonl.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is standard output.")]


@selecting
def export(selection: Selection, form: Format = None, output: Output = "-") -> None:
    """Write the findings of what was last scanned to a file, whole or not at all."""
    chosen = form or format_of(output)
    report = selection.report(coverage=chosen in {ReportFormat.SARIF, ReportFormat.HTML})
    write_report(report, chosen, output)
    if output != "-":
        count = len(report.findings)
        print(f"{output}: {count:,} finding{'' if count == 1 else 's'}, {chosen.value}", file=sys.stderr)
    tell_ignored(report)


def write_report(report: Report, form: ReportFormat, output: str) -> None:
    """Write a report to a file, which then has all of it or is as before; `-` is standard output."""
    pieces = format_report(report, form)
    if output == "-":
        _print(pieces)
        return
    path = Path(output)
    if path.is_dir():
        raise InvalidInput(f"{output} is a folder", hint="give the name of a file")
    with storage_errors(path):
        replace_file(OsDisk(), path, "".join(pieces).encode())


def format_of(output: str) -> ReportFormat:
    """Return the format that a file's name asks for; one that asks for none that is known is refused."""
    suffix = Path(output).suffix.lower()
    if output == "-" or not suffix:
        return ReportFormat.JSONL
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise InvalidInput(f"{output}: {suffix} is no format of a report", hint=f"name it {known}, or give --format")
    return _SUFFIXES[suffix]


def _print(pieces: Iterator[str]) -> None:
    for piece in pieces:
        sys.stdout.write(piece)
    sys.stdout.flush()
