"""The group `strandline alarms`."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("list", "alarms_list:list_alarms", "Print alarms that are raised, and notices that are not delivered."),
    LazyCommand(
        "test", "alarms_test:send_test", "Raise and resolve a test alarm, and say what each receiver answered."
    ),
)

app = typer.Typer(
    cls=lazy_group(*COMMANDS),
    help="Alarms: list those that are raised, and test their receivers.",
    no_args_is_help=True,
)
