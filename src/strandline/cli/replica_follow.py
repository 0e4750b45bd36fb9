"""`strandline replica follow`: a local copy of a replica, kept current while ordinary connections read it."""

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.alarm_options import alarms_of
from strandline.cli.command_log import CommandLog, LogFormat, LogFormatOption, command_log
from strandline.cli.ending_signals import ending_signals
from strandline.cli.metrics_options import MetricsHost, MetricsPort, Monitoring
from strandline.cli.output import AsJson, print_line, to_json
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.cli.replica_restore import format_time
from strandline.errors import Unavailable
from strandline.metrics import HOST
from strandline.objects import RequestCounts, StoreRefused
from strandline.replica import Followed, Follower
from strandline.replica.conditions import follower_conditions
from strandline.replica.metrics import FollowerCounts
from strandline.replica.pace import REFUSED_PAUSE_S

Copy = Annotated[Path, typer.Argument(metavar="FILE", help="The copy; restored where there is none.")]
Interval = Annotated[float, typer.Option("--interval", min=0.01, help="Seconds between two looks at the replica.")]
Once = Annotated[bool, typer.Option("--once", help="Catch up, and end.")]


def follow(  # noqa: PLR0913, PLR0917 - one for each option
    ctx: typer.Context,
    address: ReplicaAddress,
    copy: Copy,
    interval_s: Interval = 1.0,
    once: Once = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: AsJson = False,
) -> None:
    """Keep a local copy of a replica current, until SIGTERM.

    Ordinary connections read the copy meanwhile, and see whole transactions. They must not write to it.
    """
    requests, state = RequestCounts(), FollowerCounts(str(copy))
    alarms = alarms_of(ctx)
    alarms.add(lambda: follower_conditions(state, str(copy), alarms.settings.lag_s))
    with (
        command_log("replica", log_format) as log,
        ending_signals() as ending,
        replica_at(address, counts=requests) as (store, _),
        Monitoring(log, metrics_port, metrics_host).serve(
            state.metrics, requests.metrics, alarms.metrics, health=state.health()
        ),
        alarms,
    ):
        follower = Follower(store, copy, is_ending=ending.is_noted)
        told: Followed | None = None
        try:
            while True:
                pause_s = interval_s
                try:
                    followed = follower.catch_up()
                except Unavailable as error:
                    state.failed(error)
                    if ending.is_noted():
                        return
                    is_refused = isinstance(error, StoreRefused) and told is not None  # credentials are renewed
                    if once or not (error.retryable or is_refused):
                        raise
                    pause_s = max(interval_s, REFUSED_PAUSE_S) if is_refused else interval_s
                    log.fail(f"error: {error}; trying again", event="failing", error=str(error))
                else:
                    state.caught_up(followed)
                    if followed != told:
                        told = followed
                        _tell(followed, log, as_json=as_json)
                if once or ending.wait(pause_s) is not None:
                    return
        finally:
            follower.close()


def _tell(followed: Followed, log: CommandLog, *, as_json: bool) -> None:
    txid, at = followed.position.txid, format_time(followed.timestamp_ms)
    record = {"txid": txid, "timestamp": at, "epoch": followed.epoch}
    line = f"at transaction {txid}, of {at}"
    print_line(to_json(record) if as_json else line)
    if log.is_json:
        log.say(line, event="followed", **record)
