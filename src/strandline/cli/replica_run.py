"""`strandline replica run`: replicate one database, beside its application or with it as a child."""

import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.alarm_options import alarms_of
from strandline.cli.command_log import CommandLog, LogFormat, LogFormatOption, command_log
from strandline.cli.ending_signals import Ending, ending_signals
from strandline.cli.metrics_options import MetricsHost, MetricsPort
from strandline.cli.output import AsJson, print_line, to_json
from strandline.cli.replica_options import ReplicaAddress, replica_at, start_command
from strandline.errors import StrandlineError, Unavailable
from strandline.metrics import HOST, serve_metrics
from strandline.objects import RequestCounts
from strandline.replica import Maintenance, Position, Replicator
from strandline.replica.conditions import replicator_conditions
from strandline.replica.metrics import maintenance_metrics, replicator_health, replicator_metrics
from strandline.replica.pace import UPLOAD_EVERY_S

LOOK_EVERY_S = 0.5
DatabasePath = Annotated[Path, typer.Argument(metavar="DATABASE", help="A SQLite database in WAL mode.")]
Exec = Annotated[
    str | None,
    typer.Option("--exec", metavar="COMMAND", help="Start this once the database is replicated, and end when it ends."),
]
Adopt = Annotated[
    bool,
    typer.Option(
        "--adopt", help="Ship the database as it is, although the replica has transactions that it does not have."
    ),
]
UploadEvery = Annotated[
    float,
    typer.Option(
        "--upload-every",
        metavar="SECONDS",
        min=0,
        help="The pace of uploads while commits keep coming; one now and then is uploaded at once. 0: never wait.",
    ),
]
Maintain = Annotated[
    bool,
    typer.Option(
        "--maintain/--no-maintain", help="Merge files, write a snapshot each day, and remove what is no longer kept."
    ),
]


def run(  # noqa: PLR0913, PLR0917 - one parameter for each option
    ctx: typer.Context,
    database: DatabasePath,
    address: ReplicaAddress,
    command: Exec = None,
    maintain: Maintain = True,
    adopt: Adopt = False,
    upload_every: UploadEvery = UPLOAD_EVERY_S,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: AsJson = False,
) -> None:
    """Replicate a database until SIGTERM, or for as long as a command runs.

    The application needs no change but a busy timeout (`PRAGMA busy_timeout = 5000`). At the end everything that was
    committed is shipped. With --exec the exit code is the command's.
    """
    counts = RequestCounts()
    with (
        command_log("replica", log_format) as log,
        ending_signals() as ending,
        replica_at(address, conditional=True, counts=counts) as (store, _),
    ):
        told = _Told(log, as_json=as_json)
        maintenance = Maintenance(store)
        parts = counts.metrics, maintenance_metrics(maintenance, str(database))
        alarms = alarms_of(ctx)
        with (
            Replicator(database, store, adopt=adopt, upload_every_s=upload_every) as replicator,
            serve_metrics(
                metrics_port,
                replicator_metrics(replicator),
                *parts,
                alarms.metrics,
                host=metrics_host,
                health=replicator_health(replicator),
            ) as page,
            alarms,
        ):
            alarms.add(lambda: replicator_conditions(replicator, alarms.settings.lag_s))
            if page is not None:
                told.say(f"metrics at {page.address}", event="metrics", address=page.address)
            position = _begun(replicator, ending, told)
            if position is None:
                replicator.close(flush=False)
                return
            line = f"replicating {database} to {store.address}, at transaction {position.txid}"
            told.say(line, event="replicating", database=database, txid=position.txid)
            if maintain:
                maintenance.start()
            try:
                code = _until_ended(replicator, maintenance, ending, command, told)
            finally:
                maintenance.close()
        txid = replicator.position.txid
        told.say(f"shipped to transaction {txid}", event="ended", txid=txid)
    if code:
        raise typer.Exit(code)


def _begun(replicator: Replicator, ending: Ending, tell: "_Told") -> Position | None:
    """Return the first position; None where a signal came before the store took it."""
    told: str | None = None
    while True:
        try:
            return replicator.wait_durable(LOOK_EVERY_S)
        except Unavailable:
            if ending.wait(0) is not None:
                return None
            error = replicator.status().error
            if error is not None and error != told:
                tell.say(f"error: {error}; it is tried again", level="error", event="failing", error=error)
            told = error


def _until_ended(
    replicator: Replicator, maintenance: Maintenance, ending: Ending, command: str | None, tell: "_Told"
) -> int:
    """Wait for a signal, the end of the command or the end of the replicator; return the exit code."""
    child = None if command is None else start_command(command)
    told = told_of_maintenance = None
    while True:
        ended_by = ending.wait(LOOK_EVERY_S)
        if ended_by is not None and child is None:
            return 0
        if ended_by is not None and child is not None:
            child.send_signal(ended_by)
        if child is not None and child.poll() is not None:
            return child.returncode if child.returncode >= 0 else 128 - child.returncode
        error = replicator.status().error
        if error != told:
            told = error
            if error is None:
                tell.say("shipping again", event="shipping")
            else:
                line = f"error: {error}; the log is kept and it is tried again"
                tell.say(line, level="error", event="failing", error=error)
        problem = None if maintenance.error is None else str(maintenance.error)
        if problem != told_of_maintenance:
            told_of_maintenance = problem
            line, level = f"maintenance: {problem or 'goes on'}", "warning" if problem else "info"
            tell.say(line, level=level, event="maintenance", error=problem)
        _raise_if_over(replicator, child)


def _raise_if_over(replicator: Replicator, child: "subprocess.Popen[bytes] | None") -> None:
    """End the command where the replicator has ended: what it commits would not be replicated."""
    if replicator.failure is None:
        return
    if child is not None:
        child.terminate()
        child.wait()
    if isinstance(replicator.failure, StrandlineError):
        raise replicator.failure
    raise RuntimeError("the replicator ended") from replicator.failure


class _Told:
    """What the command tells: on standard output with `--json`, else in its log."""

    def __init__(self, log: CommandLog, *, as_json: bool) -> None:
        self._log = log
        self._as_json = as_json

    def say(self, line: str, *, level: str = "info", **fields: object) -> None:
        if self._as_json:
            print_line(to_json({"at": time.time(), "message": line}))
        if self._log.is_json or not self._as_json:
            self._log.tell(level, line, **fields)
