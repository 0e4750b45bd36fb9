"""The results of `strandline scan`: a table, JSON or a file, without ignored findings, and the exit code.

Invariant: the exit code counts the selected findings that are open (or in the states that `--is` names), never those
that a decision or an ignore file settled.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import typer

from strandline.cli.findings_export import print_report
from strandline.cli.findings_list import print_findings
from strandline.cli.ignore_options import print_ignored, print_warnings
from strandline.cli.output import Record, to_json
from strandline.cli.scan_summary import in_items
from strandline.errors import InvalidInput
from strandline.findings.export import format_of
from strandline.findings.filters import Filters, StateName
from strandline.findings.ignores import load_ignores
from strandline.findings.reports.formats import ReportFormat
from strandline.findings.reports.values import Report, ReportFinding
from strandline.pipeline.identity import TenantSecretKey

EXIT_FOUND = 1
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class ResultOptions:
    """The options about results."""

    form: ReportFormat | None
    output: str
    ignore_files: Sequence[Path] | None
    baselines: Sequence[Path] | None
    no_ignore: bool
    exit_code: int
    """The exit code if findings are open; 0 for a scan that leaves with 0 in any case."""
    quiet: bool
    as_json: bool
    filters: Filters = field(default_factory=Filters)

    @property
    def with_coverage(self) -> bool:
        """Return whether the format has coverage."""
        return self.form in {ReportFormat.SARIF, ReportFormat.HTML}

    def check(self, key: TenantSecretKey) -> None:
        """Fail on unreadable ignore files and baselines before the scan, not after it."""
        load_ignores(key, files=self.ignore_files, baselines=self.baselines)

    def chosen(self, report: Report, key: TenantSecretKey) -> Report:
        """Return the selected findings of a report, without the ignored ones."""
        if not self.no_ignore:
            roots = [one.root for one in report.facts.sources]
            ignores = load_ignores(key, files=self.ignore_files, baselines=self.baselines, roots=roots)
            report = report.ignoring(ignores)
        return self.filters.apply(report)

    def failing(self, report: Report) -> list[ReportFinding]:
        """Return the findings that the exit code counts."""
        states = self.filters.states or (StateName.OPEN.value,)
        return [finding for finding in report.findings if finding.state in states]

    def show(self, report: Report, summary: Record, print_summary: Callable[[], None], *, failed: int = 0) -> None:
        """Print or write the findings and the summary: a JSON record, or lines from `print_summary`.

        Without the summary, incomplete items are still counted, as the exit code does not include them, and baselines
        that do not fit are named: they may leave out the wrong findings.
        """
        if self.form is not None:
            print_report(report, self.form, self.output)
        else:
            print_findings(report, as_json=self.as_json)
        if self.as_json and self.form is None:
            print(to_json({"summary": summary}))
        elif not self.quiet:
            print_summary()
            print_ignored(report)
        if self.quiet or (self.as_json and self.form is None):
            print_warnings(report)
        if self.exit_code and failed and (self.quiet or self.as_json):
            print(
                f"note: {in_items(failed)} could not be scanned, or not completely; the exit code counts findings only",
                file=sys.stderr,
            )
        count = len(self.failing(report))
        if self.exit_code and count:
            if not self.quiet:
                what = "1 open finding" if count == 1 else f"{count:,} open findings"
                what = what.replace("open ", "") if self.filters.states else what
                print(f"exit code {self.exit_code}: {what} (--exit-zero leaves with 0)", file=sys.stderr)
            raise typer.Exit(self.exit_code)

    def show_interrupted(self, report: Report) -> NoReturn:
        """Print what an interrupted scan has stored, and that the same command goes on; writes no report."""
        print_findings(report, as_json=self.as_json)
        print_ignored(report)
        found = len(report.findings)
        what = "1 finding is" if found == 1 else f"{found:,} findings are"
        lost = f"; {self.output} is not written" if self.output != "-" else ""
        print(f"interrupted: {what} stored{lost}; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED)


def form_of(form: ReportFormat | None, output: str) -> ReportFormat | None:
    """Return the format of the report: the given one, or that of the output's suffix; a missing folder is an error."""
    if output == "-":
        return form
    if not Path(output).absolute().parent.is_dir():
        raise InvalidInput(f"--output {output}: the folder does not exist", hint="create it, or give another file")
    return form or format_of(output)
