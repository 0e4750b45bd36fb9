"""The options that leave findings out, and the line that counts them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.findings.reports.values import Report

IgnoreFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--ignore-file",
        metavar="FILE",
        help="Leave out the findings of a .gitleaksignore; by default those here and in the roots of the sources.",
    ),
]
Baselines = Annotated[
    list[Path] | None,
    typer.Option("--baseline", metavar="FILE", help="Leave out the findings of an earlier report, gitleaks' or ours."),
]
NoIgnore = Annotated[bool, typer.Option("--no-ignore", help="Leave nothing out.")]


def print_ignored(report: Report) -> None:
    """Print on standard error how many findings each reason left out."""
    if report.ignored:
        counts = ", ".join(f"{count:,} by {reason}" for reason, count in report.ignored.items())
        print(f"left out: {counts} (--no-ignore shows them)", file=sys.stderr)
