"""`strandline config`: the settings of every command, where they come from, and the schema of the file."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand(
        "show", "config_show:show", "Print every setting, its value, and where that comes from; secrets are hidden."
    ),
    LazyCommand("schema", "config_schema:schema", "Print the JSON schema of strandline.toml, for editors."),
)

app = typer.Typer(
    help="Settings: each value and where it comes from, and the schema of strandline.toml.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
