"""`strandline fold`: local copies of buckets: keep up to date, read, verify and compare."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand(
        "run",
        "fold_run:run",
        "Keep a local copy of a bucket up to date, until Ctrl-C or SIGTERM; it goes on where it stopped.",
    ),
    LazyCommand(
        "build",
        "fold_build:build",
        "Make the fold of a bucket or a stream with Spark, in parallel, where there is none yet.",
    ),
    LazyCommand(
        "get",
        "fold_get:get",
        "Print the entries of keys as the fold holds them; exit code 1 if one is missing. Works beside `fold run`.",
    ),
    LazyCommand(
        "range",
        "fold_range:range_",
        "Print the entries below a prefix, one per line, as they are at one moment. Works beside `fold run`.",
    ),
    LazyCommand(
        "status",
        "fold_status:status",
        "Print where a fold stands; with --bucket, how far behind it is and what starting it would do.",
    ),
    LazyCommand(
        "verify",
        "fold_verify:verify",
        'Read everything a fold holds and print "state at revision C has hash H"; the hash is the same on every '
        "backend.",
    ),
    LazyCommand(
        "diff",
        "fold_diff:diff_",
        "Print the keys that two folds do not hold alike, or that changed since a revision; exit code 1 if there are "
        "any.",
    ),
    LazyCommand(
        "repair",
        "fold_repair:repair_",
        "Make a fold equal to its bucket, whatever its cursor says; also after a change of --prefix.",
    ),
    LazyCommand(
        "history", "fold_history:history_", "Print the updates of a key that its bucket still holds, the oldest first."
    ),
)

app = typer.Typer(
    help="Folds: local copies of buckets that survive restarts.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
