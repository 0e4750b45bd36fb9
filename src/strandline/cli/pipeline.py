"""`strandline pipeline`: create, inspect, migrate, verify and compact the stores of a pipeline, and rotate keys."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("init", "pipeline_init:init", "Create the pipeline's tables; existing tables stay as they are."),
    LazyCommand(
        "status",
        "pipeline_status:status",
        "Show the schema, the rows of each table, findings and coverage by policy, and the runs.",
    ),
    LazyCommand(
        "migrate",
        "pipeline_migrate:migrate",
        "Migrate the schema to this version, in one transaction.",
    ),
    LazyCommand(
        "verify",
        "pipeline_verify:verify",
        "Check every row, derive every id again, and report missing findings; exit code 3 for damage.",
    ),
    LazyCommand(
        "compact",
        "pipeline_compact:compact",
        "Fold the pages of a lake into Delta tables, and delete pages that were folded before the grace period.",
    ),
    LazyCommand(
        "copy",
        "pipeline_copy:copy",
        "Copy a pipeline's state into another one; rows that are there already are merged.",
    ),
    LazyCommand(
        "rotate-key",
        "pipeline_rotate_key:rotate_key",
        "Rotate a tenant's key; an interrupted rotation resumes.",
    ),
)

app = typer.Typer(
    help="The pipeline's stores: ledger, findings, runs and shards.", no_args_is_help=True, cls=lazy_group(*COMMANDS)
)
