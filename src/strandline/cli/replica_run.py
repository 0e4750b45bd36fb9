"""`strandline replica run`: replicate one database, beside its application or with it as a child."""

import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.ending_signals import Ending, ending_signals
from strandline.cli.output import AsJson, print_line, to_json
from strandline.cli.replica_options import MetricsHost, MetricsPort, ReplicaAddress, replica_at, start_command
from strandline.errors import StrandlineError, Unavailable
from strandline.metrics import HOST, serve_metrics
from strandline.objects import RequestCounts
from strandline.replica import Maintenance, Position, Replicator
from strandline.replica.metrics import maintenance_metrics, replicator_metrics
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
    database: DatabasePath,
    address: ReplicaAddress,
    command: Exec = None,
    maintain: Maintain = True,
    adopt: Adopt = False,
    upload_every: UploadEvery = UPLOAD_EVERY_S,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    as_json: AsJson = False,
) -> None:
    """Replicate a database until SIGTERM, or for as long as a command runs.

    The application needs no change but a busy timeout (`PRAGMA busy_timeout = 5000`). At the end everything that was
    committed is shipped. With --exec the exit code is the command's.
    """
    counts = RequestCounts()
    with ending_signals() as ending, replica_at(address, conditional=True, counts=counts) as (store, _):
        maintenance = Maintenance(store)
        parts = counts.metrics, maintenance_metrics(maintenance, str(database))
        with (
            Replicator(database, store, adopt=adopt, upload_every_s=upload_every) as replicator,
            serve_metrics(metrics_port, replicator_metrics(replicator), *parts, host=metrics_host) as page,
        ):
            if page is not None:
                _say(f"metrics at {page.address}", as_json=as_json)
            position = _begun(replicator, ending, as_json=as_json)
            if position is None:
                replicator.close(flush=False)
                return
            _say(f"replicating {database} to {store.address}, at transaction {position.txid}", as_json=as_json)
            if maintain:
                maintenance.start()
            try:
                code = _until_ended(replicator, maintenance, ending, command, as_json=as_json)
            finally:
                maintenance.close()
        _say(f"shipped to transaction {replicator.position.txid}", as_json=as_json)
    if code:
        raise typer.Exit(code)


def _begun(replicator: Replicator, ending: Ending, *, as_json: bool) -> Position | None:
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
                _say(f"error: {error}; it is tried again", as_json=as_json)
            told = error


def _until_ended(
    replicator: Replicator, maintenance: Maintenance, ending: Ending, command: str | None, *, as_json: bool
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
            _say(
                f"error: {error}; the log is kept and it is tried again" if error else "shipping again", as_json=as_json
            )
        problem = None if maintenance.error is None else str(maintenance.error)
        if problem != told_of_maintenance:
            told_of_maintenance = problem
            _say(f"maintenance: {problem or 'goes on'}", as_json=as_json)
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


def _say(line: str, *, as_json: bool) -> None:
    if as_json:
        print_line(to_json({"at": time.time(), "message": line}))
    else:
        print_line(line, to_errors=True)
