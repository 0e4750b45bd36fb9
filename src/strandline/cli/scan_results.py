"""The results of `strandline scan`: a table, JSON or a file, without ignored findings."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from strandline.cli.findings_export import print_report
from strandline.cli.findings_list import print_findings
from strandline.cli.ignore_options import print_ignored
from strandline.cli.output import Record, to_json
from strandline.errors import InvalidInput
from strandline.findings.export import format_of
from strandline.findings.ignores import load_ignores
from strandline.findings.reports.formats import ReportFormat
from strandline.findings.reports.values import Report
from strandline.pipeline.identity import TenantSecretKey

EXIT_FOUND = 4


@dataclass(frozen=True)
class ResultOptions:
    """The options about results."""

    form: ReportFormat | None
    output: str
    ignore_files: Sequence[Path] | None
    baselines: Sequence[Path] | None
    no_ignore: bool
    exit_code: bool
    quiet: bool
    as_json: bool

    @property
    def with_coverage(self) -> bool:
        """Return whether the format has coverage."""
        return self.form in {ReportFormat.SARIF, ReportFormat.HTML}

    def check(self, key: TenantSecretKey) -> None:
        """Fail on unreadable ignore files and baselines before the scan, not after it."""
        load_ignores(key, files=self.ignore_files, baselines=self.baselines)

    def chosen(self, report: Report, key: TenantSecretKey) -> Report:
        """Return a report without ignored findings."""
        if self.no_ignore:
            return report
        roots = [one.root for one in report.facts.sources]
        return report.ignoring(load_ignores(key, files=self.ignore_files, baselines=self.baselines, roots=roots))

    def show(self, report: Report, summary: Record, print_summary: Callable[[], None], *, failed: int = 0) -> None:
        """Print or write the findings and the summary: a JSON record, or lines from `print_summary`.

        With `--exit-code`, incomplete items are counted in any case: the exit code does not include them.
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
        if self.exit_code and failed:
            what = "1 item" if failed == 1 else f"{failed:,} items"
            print(
                f"note: {what} could not be scanned, or not completely; --exit-code reports findings only",
                file=sys.stderr,
            )
        if self.exit_code and report.findings:
            raise typer.Exit(EXIT_FOUND)


def form_of(form: ReportFormat | None, output: str) -> ReportFormat | None:
    """Return the format of the report: the given one, or that of the output's suffix; a missing folder is an error."""
    if output == "-":
        return form
    if not Path(output).absolute().parent.is_dir():
        raise InvalidInput(f"--output {output}: the folder does not exist", hint="create it, or give another file")
    return form or format_of(output)
