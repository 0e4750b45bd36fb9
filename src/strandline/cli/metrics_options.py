"""Options of metrics and health, of every command that runs for long."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer

from strandline.cli.command_log import CommandLog
from strandline.metrics import HOST, Health, MetricSource, MetricsPage, serve_metrics

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Serve metrics for Prometheus and health at this port; 0 is any free one.",
    ),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", help="The address that metrics are served at.")]


class Monitoring(NamedTuple):
    """The log of a command, and where it serves metrics."""

    log: CommandLog
    port: int | None = None
    host: str = HOST

    @contextmanager
    def serve(self, *sources: MetricSource, health: Health | None = None) -> Iterator[MetricsPage | None]:
        """Serve metrics for the block, if a port is given, and say where."""
        with serve_metrics(self.port, *sources, host=self.host, health=health) as page:
            if page is not None:
                self.log.say(f"metrics at {page.address}", event="metrics", address=page.address)
            yield page
