"""The root of the command line: the place where groups are registered, and where errors become messages and exit codes.

Exit codes, the same for every command:

    0    it was done
    1    it failed; standard error says why, and what to do. Of `scan` also: findings are open (`--exit-code N` for
         another code, `--exit-zero` for none)
    2    the command line is wrong
    3    damage was found in stored data
    130  interrupted

Results go to standard output and everything else to standard error, so that output can always be piped.

A group is a file (`journal.py`) that builds a `typer.Typer` out of commands, each in a file of its own
(`journal_inspect.py`), and is registered below with one line. A command is imported when it is run.
"""

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.exit_codes import report
from strandline.cli.lazy_commands import LazyCommand, after_import, lazy_group
from strandline.errors import StrandlineError
from strandline.lazy_imports import leave_pandas_out
from strandline.version import __version__

# In the order in which `strandline --help` lists them.
COMMANDS = (
    LazyCommand(
        "scan",
        "scan:scan",
        "Scan files, git histories, tables and journals for leaked secrets.",
    ),
    LazyCommand(
        "demo",
        "demo:demo",
        "Scan a sample with planted secrets, kill the scan, resume it, and check that no work is repeated.",
    ),
    LazyCommand(
        "findings", "findings:app", "Findings of scans: list, show, triage, verify, export, coverage, owners, diff."
    ),
    LazyCommand("rules", "rules:app", "Rules: list, show, test on a file, and why something was or was not found."),
    LazyCommand("ui", "ui:ui", "Show all of it in a browser: findings, coverage, runs, streams, folds, replicas."),
    LazyCommand("fold", "fold:app", "Folds: local copies of buckets that survive restarts."),
    LazyCommand("journal", "journal:app", "Journals: segmented append logs in a folder."),
    LazyCommand("queue", "queue:app", "Queues: serve one to other processes, and show the progress of its groups."),
    LazyCommand("serve", "serve:serve", "Run the broker as a server, with nats-server's flags and configuration file."),
    LazyCommand(
        "handover", "handover:handover", "Publish a stream into one of another server, every message once and in order."
    ),
    LazyCommand("replica", "replica:app", "Replicas: SQLite, shipped to object storage as it commits."),
    LazyCommand("lease", "lease:app", "Leases: at most one holder at a time."),
    LazyCommand("pipeline", "pipeline:app", "The pipeline's stores: ledger, findings, runs and shards."),
    LazyCommand("alarms", "alarms:app", "Alarms: list those that are raised, and test their receivers."),
    LazyCommand(
        "config", "config:app", "Settings: each value and where it comes from, and the schema of strandline.toml."
    ),
)

app = typer.Typer(
    name="strandline",
    cls=lazy_group(*COMMANDS),
    help="Durable progress over logs: a cursor never names work that is not durable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"strandline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            envvar="STRANDLINE_CONFIG",
            help="Read settings from this file instead of the nearest strandline.toml.",
        ),
    ] = None,
    no_config: Annotated[bool, typer.Option("--no-config", help="Read no strandline.toml.")] = False,
) -> None:
    """Take the options that stand before any command."""


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    after_import(leave_pandas_out)
    after_import(_start_collector)
    try:
        app()
    except StrandlineError as error:
        sys.exit(report(error))


def _start_collector() -> None:
    """Start the garbage collector, which `strandline.cli.entry` has stopped; it never visits the imported modules."""
    gc.freeze()
    gc.enable()
