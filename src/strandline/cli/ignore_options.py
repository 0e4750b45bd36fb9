"""The options that leave findings out, and the lines about what a report lacks: ignored findings, unfinished scans."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from strandline.findings.reports.values import Report, UnfinishedFacts

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


def print_unfinished(scans: Sequence[UnfinishedFacts]) -> None:
    """Print the unfinished scans on standard error."""
    for scan in scans:
        print(f"unfinished: {scan.text}; if it was interrupted, the same command goes on", file=sys.stderr)


def print_warnings(report: Report) -> None:
    """Print on standard error which baselines do not fit."""
    for warning in report.warnings:
        print(f"warning: baseline {warning}", file=sys.stderr)


def print_ignored(report: Report) -> None:
    """Print on standard error which scans are unfinished, and how many findings each reason left out."""
    print_unfinished(report.facts.unfinished)
    print_warnings(report)
    if report.ignored:
        counts = ", ".join(f"{count:,} by {reason}" for reason, count in report.ignored.items())
        print(f"left out: {counts} (--no-ignore shows them)", file=sys.stderr)
