"""`strandline findings`: look at what scans found, decide about it, and take it elsewhere."""

import typer

from strandline.cli.findings_coverage import coverage
from strandline.cli.findings_diff import diff
from strandline.cli.findings_export import export
from strandline.cli.findings_list import list_findings
from strandline.cli.findings_show import show
from strandline.cli.findings_triage import triage

app = typer.Typer(help="What scans found: list, show, triage, export, coverage, diff.", no_args_is_help=True)
app.command("list")(list_findings)
for command in (show, triage, export, coverage, diff):
    app.command()(command)
