"""`strandline lease`: show, watch and release leases."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("show", "lease_show:show", "Show the record of a lease: its holder, epoch and time to live."),
    LazyCommand("watch", "lease_watch:watch", "Print a line whenever the record changes or expires, until Ctrl-C."),
    LazyCommand(
        "release",
        "lease_release:release",
        "Revoke a lease: its holder cannot renew, and others claim it after its time to live.",
    ),
)

app = typer.Typer(help="Leases: at most one holder at a time.", no_args_is_help=True, cls=lazy_group(*COMMANDS))
