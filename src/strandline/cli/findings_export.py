"""`strandline findings export`: findings as a file, for readers and for programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.findings_selection import Selection, selecting
from strandline.cli.ignore_options import print_ignored
from strandline.findings.export import format_of, write_report
from strandline.findings.reports.formats import ReportFormat, format_report
from strandline.findings.reports.values import Report

Format = Annotated[
    ReportFormat | None, typer.Option("--format", help="Format; by default that of the output's suffix, or jsonl.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")]


@selecting
def export(selection: Selection, form: Format = None, output: Output = "-") -> None:
    """Write the findings of the last scans to a file, whole or not at all."""
    chosen = form or format_of(output)
    report = selection.report(coverage=chosen in {ReportFormat.SARIF, ReportFormat.HTML})
    print_report(report, chosen, output)
    if output != "-":
        count = len(report.findings)
        print(f"{output}: {count:,} finding{'' if count == 1 else 's'}, {chosen.value}", file=sys.stderr)
    print_ignored(report)


def print_report(report: Report, form: ReportFormat, output: str) -> None:
    """Write a report to a file, or for `-` to standard output."""
    if output != "-":
        write_report(report, form, Path(output))
        return
    for piece in format_report(report, form):
        sys.stdout.write(piece)
    sys.stdout.flush()
