"""Options of metrics and health, of every command that runs for long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from strandline.cli.command_log import CommandLog
from strandline.metrics.metric import HOST, MetricSource

if TYPE_CHECKING:
    from strandline.alarms import AlarmWatch
    from strandline.metrics import Health, MetricsPage

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
    """The log of a command, where it serves metrics, and its alarms, None where it has none."""

    log: CommandLog
    port: int | None = None
    host: str = HOST
    alarms: "Callable[[], AlarmWatch | None]" = lambda: None

    @contextmanager
    def serve(self, *sources: MetricSource, health: "Health | None" = None) -> "Iterator[MetricsPage | None]":
        """Serve metrics for the block, if a port is given, and say where."""
        if self.port is None:
            yield None
            return
        from strandline.metrics import serve_metrics  # noqa: PLC0415 - few commands serve them

        with serve_metrics(self.port, *sources, host=self.host, health=health) as page:
            if page is not None:
                self.log.say(f"metrics at {page.address}", event="metrics", address=page.address)
            yield page
