"""`strandline queue serve`: own a queue's folder, and let other processes put and take through a socket."""

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.command_log import LogFormat, LogFormatOption, command_log
from strandline.cli.ending_signals import ending_signals
from strandline.cli.metrics_options import MetricsHost, MetricsPort, Monitoring
from strandline.cli.output import AsJson, to_json
from strandline.errors import InvalidInput
from strandline.metrics import HOST
from strandline.queue import Queue, QueueConfig
from strandline.queue.metrics import queue_health, queue_metrics

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
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: AsJson = False,
) -> None:
    """Open a queue and serve it to other processes at a socket, until SIGTERM.

    The address that is printed is what `Queue.connect` takes. Only processes of the same user can connect.
    """
    if deliveries_max < 0:
        raise InvalidInput(f"--deliveries-max must not be negative, as {deliveries_max} is")
    config = QueueConfig(deliveries_max=deliveries_max or None)
    with (
        command_log("queue", log_format) as log,
        ending_signals() as ending,
        Queue.open(folder, config) as queue,
        queue.serve(socket) as server,
        Monitoring(log, metrics_port, metrics_host).serve(
            queue_metrics(queue, str(folder)), health=queue_health(queue)
        ),
    ):
        shown = to_json({"address": server.address, "folder": folder}) if as_json else f"serving {server.address}"
        print(shown, flush=True)
        if log.is_json:
            log.say(f"serving {server.address}", event="serving", address=server.address, folder=folder)
        ending.wait()
        if log.is_json:
            log.say("ending", event="ended")
