"""`strandline journal`: look at a journal, read it, check it, mend it, measure it, and see it survive."""

import typer

from strandline.cli.journal_bench import bench
from strandline.cli.journal_demo import demo
from strandline.cli.journal_dump import dump
from strandline.cli.journal_inspect import inspect
from strandline.cli.journal_repair import repair
from strandline.cli.journal_verify import verify

app = typer.Typer(help="Journals: segmented append logs in a folder.", no_args_is_help=True)
for command in (inspect, dump, verify, repair, bench, demo):
    app.command()(command)
