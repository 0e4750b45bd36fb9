"""`strandline queue`: serve a work queue to other processes, and show the progress of its groups."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand(
        "serve", "queue_serve:serve", "Open a queue and serve it to other processes at a socket, until SIGTERM."
    ),
    LazyCommand(
        "status", "queue_status:status", "Show the progress of each group of a queue, also while a process serves it."
    ),
)

app = typer.Typer(
    help="Queues: serve one to other processes, and show the progress of its groups.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
