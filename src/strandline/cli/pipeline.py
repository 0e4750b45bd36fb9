"""`strandline pipeline`: make the pipeline's stores, look at them, bring them up to date, check them, rotate keys."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("init", "pipeline_init:init", "Make the pipeline's tables; where they are already, nothing changes."),
    LazyCommand(
        "status",
        "pipeline_status:status",
        "Show the schema, the size of each table, what each policy found and how well it looked, and the runs.",
    ),
    LazyCommand(
        "migrate",
        "pipeline_migrate:migrate",
        "Apply what this version adds to the schema, in one transaction; any number of processes may try at once.",
    ),
    LazyCommand(
        "verify",
        "pipeline_verify:verify",
        "Check every row, derive every id again, and look whether any finding is missing; exit code 3 if so.",
    ),
    LazyCommand(
        "rotate-key",
        "pipeline_rotate_key:rotate_key",
        "Put a tenant's results under a new key; a rotation that was interrupted goes on where it was.",
    ),
)

app = typer.Typer(
    help="The pipeline's stores: ledger, findings, runs and shards.", no_args_is_help=True, cls=lazy_group(*COMMANDS)
)
