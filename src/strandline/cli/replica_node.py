"""`strandline replica node`: leader or follower of a database, beside its application or with it as a child."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.alarm_options import alarms_of
from strandline.cli.command_log import CommandLog, LogFormat, LogFormatOption, command_log
from strandline.cli.ending_signals import Ending, ending_signals
from strandline.cli.metrics_options import MetricsHost, MetricsPort
from strandline.cli.output import AsJson, print_line, to_json
from strandline.cli.replica_options import ReplicaAddress, replica_at, start_command
from strandline.events import Event
from strandline.lease import LeaseTiming
from strandline.metrics import HOST, serve_metrics
from strandline.objects import RequestCounts
from strandline.replica import DatabaseSetAside, MaintenancePolicy, Node, NodeTrouble, RoleChanged
from strandline.replica.conditions import node_conditions
from strandline.replica.metrics import node_health, node_metrics

LOOK_EVERY_S = 0.25
_RENEWALS = 5
_MARGINS = 10
_POLLS = 20
DatabasePath = Annotated[
    Path, typer.Argument(metavar="DATABASE", help="A SQLite database in WAL mode; restored where there is none.")
]
Name = Annotated[str, typer.Option("--name", help="The name of this node; each node of a replica has its own.")]
Address = Annotated[str, typer.Option("--address", help="Where clients and other nodes reach this one: http://…")]
Ttl = Annotated[
    float, typer.Option("--ttl", min=0.5, help="Seconds after which another node leads where the leader is gone.")
]
Exec = Annotated[
    str | None,
    typer.Option("--exec", metavar="COMMAND", help="Start this with the node, and end when it ends."),
]
Interval = Annotated[float, typer.Option("--interval", min=0.01, help="Seconds between two looks at the replica.")]
HealthEvery = Annotated[
    float, typer.Option("--health-every", min=0, help="Print the health so often, in seconds; 0: not.")
]
Maintain = Annotated[
    bool,
    typer.Option(
        "--maintain/--no-maintain", help="While it leads: merge files, write snapshots, and remove what is not kept."
    ),
]


def node(  # noqa: PLR0913, PLR0917 - one for each option
    ctx: typer.Context,
    database: DatabasePath,
    url: ReplicaAddress,
    name: Name,
    address: Address = "",
    ttl_s: Ttl = 10.0,
    command: Exec = None,
    interval_s: Interval = 1.0,
    health_every_s: HealthEvery = 0.0,
    maintain: Maintain = True,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: AsJson = False,
) -> None:
    """Lead or follow a database until SIGTERM: then stop writes, ship the rest, and let another node lead.

    While this node does not lead, connections to the database read, and are told that it is locked when they write.
    SIGUSR1 hands over to another node. With --exec the exit code is the command's.
    """
    timing = LeaseTiming(ttl_s, ttl_s / _RENEWALS, ttl_s / _MARGINS, ttl_s / _POLLS)
    counts = RequestCounts()
    with (
        command_log("replica", log_format) as log,
        ending_signals() as ending,
        replica_at(url, conditional=True, counts=counts) as (store, _),
    ):
        running = Node(
            database,
            store,
            name,
            address=address,
            timing=timing,
            follow_every_s=interval_s,
            maintenance=MaintenancePolicy() if maintain else None,
        )
        running.events.subscribe(lambda event: _tell(event, log, as_json=as_json))
        alarms = alarms_of(ctx)
        alarms.add(lambda: node_conditions(running, alarms.settings.lag_s))
        before = signal.signal(signal.SIGUSR1, lambda _number, _frame: running.hand_over())
        try:
            with (
                serve_metrics(
                    metrics_port,
                    node_metrics(running),
                    counts.metrics,
                    alarms.metrics,
                    host=metrics_host,
                    health=node_health(running),
                ) as page,
                running,
                alarms,
            ):
                if page is not None:
                    record = {"event": "metrics", "address": page.address}
                    _say(f"metrics at {page.address}", record, log, as_json=as_json)
                code = _until_ended(
                    running, ending, command, health_every_s, lambda: _tell_health(running, log, as_json=as_json)
                )
        finally:
            signal.signal(signal.SIGUSR1, before)
    if code:
        raise typer.Exit(code)


def _until_ended(
    node: Node, ending: Ending, command: str | None, health_every_s: float, tell_health: Callable[[], None]
) -> int:
    """Wait for a signal, or the end of the command or the node; return the exit code."""
    child = None if command is None else start_command(command)
    told_s = time.monotonic()
    while True:
        ended_by = ending.wait(LOOK_EVERY_S)
        if ended_by is not None and child is None:
            return 0
        if ended_by is not None and child is not None:
            child.send_signal(ended_by)
        if child is not None and child.poll() is not None:
            return child.returncode if child.returncode >= 0 else 128 - child.returncode
        if node.failure is not None:
            _end(child)
            return 0  # closing the node raises it
        if health_every_s and time.monotonic() - told_s >= health_every_s:
            told_s = time.monotonic()
            tell_health()


def _end(child: "subprocess.Popen[bytes] | None") -> None:
    if child is not None:
        child.terminate()
        child.wait()


def _tell(event: Event, log: CommandLog, *, as_json: bool) -> None:
    """Print what happened."""
    if isinstance(event, RoleChanged):
        under = f" under epoch {event.epoch}" if event.epoch else ""
        line = f"{event.name}: {event.role.value}{under}, at transaction {event.txid}"
        record = {"event": "role", "role": event.role.value, "epoch": event.epoch, "txid": event.txid}
    elif isinstance(event, DatabaseSetAside):
        line = f"{event.name}: commits after transaction {event.txid} may not be in the replica; kept as {event.file}"
        record = {"event": "set_aside", "file": str(event.file), "txid": event.txid}
    elif isinstance(event, NodeTrouble):
        line = f"{event.name}: error: {event.error}; it is tried again"
        record = {"event": "error", "error": event.error}
    else:
        return
    _say(line, record, log, as_json=as_json)


def _tell_health(node: Node, log: CommandLog, *, as_json: bool) -> None:
    health = node.health()
    lag = "" if health.lag_s is None else f", {health.lag_s:.1f} s behind"
    error = f", last error: {health.last_error}" if health.last_error else ""
    line = f"{health.name}: {health.role.value}, leader {health.leader or 'unknown'}, at {health.txid}{lag}{error}"
    _say(line, {"event": "health", **asdict(health), "role": health.role.value}, log, as_json=as_json)


def _say(line: str, record: Mapping[str, object], log: CommandLog, *, as_json: bool) -> None:
    if as_json:
        print_line(to_json({"at": time.time(), **record}))
    if log.is_json or not as_json:
        level = "error" if record["event"] == "error" else "warning" if record["event"] == "set_aside" else "info"
        log.tell(level, line, **record)
