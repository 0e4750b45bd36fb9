"""`strandline fold`: local copies of buckets: keep up to date, read, verify, compare and move."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand(
        "run",
        "fold_run:run",
        "Keep a local copy of a bucket up to date until Ctrl-C or SIGTERM; run it again to resume.",
    ),
    LazyCommand(
        "build",
        "fold_build:build",
        "Build a new fold of a bucket or a stream with Spark, in parallel.",
    ),
    LazyCommand(
        "get",
        "fold_get:get",
        "Print the entries of some keys; exit code 1 if one is missing. Works while `fold run` runs.",
    ),
    LazyCommand(
        "range",
        "fold_range:range_",
        "Print the entries below a prefix, one per line, at one cursor. Works while `fold run` runs.",
    ),
    LazyCommand(
        "status",
        "fold_status:status",
        "Print the cursor of a fold; with --bucket, also its lag and what `fold run` would do.",
    ),
    LazyCommand(
        "verify",
        "fold_verify:verify",
        'Read a whole fold and print "state at revision C has hash H"; the hash is the same on every backend.',
    ),
    LazyCommand(
        "diff",
        "fold_diff:diff_",
        "Print the keys that differ between two folds, or that changed since a revision; exit code 1 if there are any.",
    ),
    LazyCommand(
        "repair",
        "fold_repair:repair_",
        "Make a fold equal to its bucket, whatever its cursor says; also after --prefix has changed.",
    ),
    LazyCommand(
        "export",
        "fold_export:export_",
        "Export a fold to a folder, as Parquet tables that a fold of any backend can be made of.",
    ),
    LazyCommand(
        "import",
        "fold_import:import_",
        "Make a fold of an artifact in a folder, at a path where nothing is.",
    ),
    LazyCommand(
        "publish",
        "fold_publish:publish",
        "Publish a fold, or an artifact that `fold export` made, as the newest artifact at an address.",
    ),
    LazyCommand(
        "bootstrap",
        "fold_bootstrap:bootstrap",
        "Make a fold of the newest published artifact, at a path where nothing is.",
    ),
    LazyCommand(
        "artifacts",
        "fold_artifacts:artifacts_",
        "List the artifacts at an address, oldest first; with --bucket, also whether its log continues them.",
    ),
    LazyCommand(
        "prune",
        "fold_prune:prune",
        "Remove the artifacts that the pointer has left, and the files that no artifact uses.",
    ),
    LazyCommand(
        "history", "fold_history:history_", "Print the updates of a key that its bucket still holds, oldest first."
    ),
)

app = typer.Typer(
    help="Folds: local copies of buckets that survive restarts.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
