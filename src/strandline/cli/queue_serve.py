"""`strandline queue serve`: own a queue's folder, and let other processes put and take through a socket."""

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.ending_signals import ending_signals
from strandline.cli.output import AsJson, to_json
from strandline.errors import InvalidInput
from strandline.queue import Queue, QueueConfig

DELIVERIES_MAX = QueueConfig().deliveries_max or 0
QueueFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The queue's folder; created where there is none.")]
SocketPath = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Where to listen; `socket` in the folder unless given.")
]
DeliveriesMax = Annotated[
    int,
    typer.Option("--deliveries-max", help="A message delivered this often becomes a dead letter; 0 never gives up."),
]


def serve(
    folder: QueueFolder,
    socket: SocketPath = None,
    deliveries_max: DeliveriesMax = DELIVERIES_MAX,
    as_json: AsJson = False,
) -> None:
    """Open a queue and serve it to other processes at a socket, until SIGTERM.

    The address that is printed is what `Queue.connect` takes. Only processes of the same user can connect.
    """
    if deliveries_max < 0:
        raise InvalidInput(f"--deliveries-max must not be negative, as {deliveries_max} is")
    config = QueueConfig(deliveries_max=deliveries_max or None)
    with ending_signals() as ending, Queue.open(folder, config) as queue, queue.serve(socket) as server:
        shown = to_json({"address": server.address, "folder": folder}) if as_json else f"serving {server.address}"
        print(shown, flush=True)
        ending.wait()
