"""`strandline pipeline`: make the pipeline's stores, look at them, bring them up to date, and check them."""

import typer

from strandline.cli.pipeline_init import init
from strandline.cli.pipeline_migrate import migrate
from strandline.cli.pipeline_status import status
from strandline.cli.pipeline_verify import verify

app = typer.Typer(help="The pipeline's stores: ledger, findings, runs and shards.", no_args_is_help=True)
for command in (init, status, migrate, verify):
    app.command()(command)
