"""How a scan's findings are shown: as a table, as JSON or in a file, without those that somebody chose to leave out."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from strandline.cli.findings_export import format_of, write_report
from strandline.cli.findings_list import print_findings
from strandline.cli.ignores import load_ignores, tell_ignored
from strandline.cli.output import Record, to_json
from strandline.errors import InvalidInput
from strandline.findings.reports import Report, ReportFormat
from strandline.pipeline.identity import TenantSecretKey

EXIT_FOUND = 4


@dataclass(frozen=True)
class Showing:
    """What the options say about the results."""

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
        """Return whether the format tells how well each item was looked at."""
        return self.form in {ReportFormat.SARIF, ReportFormat.HTML}

    def check(self, key: TenantSecretKey) -> None:
        """Tell what cannot be read before the scan, not after it."""
        load_ignores(key, files=self.ignore_files, baselines=self.baselines)

    def chosen(self, report: Report, key: TenantSecretKey) -> Report:
        """Return a report without what is to be left out."""
        if self.no_ignore:
            return report
        roots = [one.root for one in report.facts.sources]
        return report.ignoring(load_ignores(key, files=self.ignore_files, baselines=self.baselines, roots=roots))

    def show(self, report: Report, summary: Record, tell: Callable[[], None], *, failed: int = 0) -> None:
        """Print or write the findings, and the summary: a record for programs, or told to people.

        With `--exit-code`, items that could not be looked at are told in any case: the code is silent about them.
        """
        if self.form is not None:
            write_report(report, self.form, self.output)
        else:
            print_findings(report, as_json=self.as_json)
        if self.as_json and self.form is None:
            print(to_json({"summary": summary}))
        elif not self.quiet:
            tell()
            tell_ignored(report)
        if self.exit_code and failed:
            what = "1 item" if failed == 1 else f"{failed:,} items"
            print(
                f"note: {what} could not be looked at, or not wholly; --exit-code tells of findings alone",
                file=sys.stderr,
            )
        if self.exit_code and report.findings:
            raise typer.Exit(EXIT_FOUND)


def form_of(form: ReportFormat | None, output: str) -> ReportFormat | None:
    """Return the format of the report, which a file's name may tell; a place for it that is none is refused at once."""
    if output == "-":
        return form
    if not Path(output).absolute().parent.is_dir():
        raise InvalidInput(f"--output {output}: there is no such folder", hint="make it first, or name another")
    return form or format_of(output)
