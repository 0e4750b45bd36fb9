"""`strandline findings export`: findings in a file, for people or for other programs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.findings_filters import All, Confidence, Paths, Rules, Sources, States, make_filters
from strandline.cli.ignores import Baselines, IgnoreFiles, NoIgnore, load_ignores, tell_ignored
from strandline.cli.results import report_of
from strandline.cli.state import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    KeyFileOption,
    StateOption,
    TenantOption,
    open_state,
)
from strandline.errors import InvalidInput
from strandline.files import OsDisk, replace_file, storage_errors
from strandline.scan.reports import Report, ReportFormat, format_report

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


def export(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    form: Format = None,
    output: Output = "-",
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
) -> None:
    """Write the findings of what was last scanned to a file, whole or not at all."""
    chosen = form or format_of(output)
    filters = make_filters(rule, path, states, confidence, source)
    with open_state(where, tenant=tenant, key_file=key_file) as state:
        report = report_of(state, everything=everything, coverage=chosen in {ReportFormat.SARIF, ReportFormat.HTML})
        if not no_ignore:
            roots = [one.root for one in report.facts.sources]
            report = report.ignoring(load_ignores(state.key, files=ignore_file, baselines=baseline, roots=roots))
    report = filters.apply(report)
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
    """Return the format that a file's name asks for."""
    return _SUFFIXES.get(Path(output).suffix.lower(), ReportFormat.JSONL)


def _print(pieces: Iterator[str]) -> None:
    for piece in pieces:
        sys.stdout.write(piece)
    sys.stdout.flush()
