"""`strandline lease watch`: the changes of a lease's record, and its expiry."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from strandline.alarms import Condition
from strandline.cli.alarm_options import alarms_of
from strandline.cli.command_log import CommandLog, LogFormat, LogFormatOption, command_log
from strandline.cli.lease_options import (
    Creds,
    LeaseAddress,
    LeaseKey,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    lease_at,
    lease_record,
)
from strandline.cli.output import AsJson, Record, print_line, to_json
from strandline.errors import Unavailable
from strandline.lease import Claimant, LeaseRecord

Interval = Annotated[float, typer.Option("--interval", min=0.05, help="Seconds between two reads.")]


def watch(  # noqa: PLR0913, PLR0917 - options
    ctx: typer.Context,
    address: LeaseAddress,
    key: LeaseKey = None,
    interval_s: Interval = 1.0,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 10.0,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: AsJson = False,
) -> None:
    """Print a line whenever the record changes or expires, until Ctrl-C.

    Renewals are not printed. An expired lease may be claimed; this machine's clock decides.
    """
    with (
        command_log("lease", log_format) as log,
        lease_at(address, key, creds, (tls_ca, tls_cert, tls_key), timeout_s) as store,
        alarms_of(ctx) as alarms,
    ):
        before: LeaseRecord | None = None
        observer = Claimant(store, "watch")
        told: tuple[object, ...] | None = None
        while True:
            try:
                seen = observer.look()
            except Unavailable as error:
                if not error.retryable:
                    raise
                log.fail(f"error: {error}", event="failing", error=str(error))
                time.sleep(interval_s)
                continue
            record = seen.record if seen else None
            state = _state(observer, record)
            for condition in lease_conditions(store.address, before, record, state):
                alarms.tell(condition)
            before = record or before
            now = (state, record.epoch, record.session) if record else (state,)
            if now != told:
                told = now
                _tell(lease_record(store.address, record, state), log, as_json=as_json)
            time.sleep(interval_s)


def lease_conditions(
    address: str, before: LeaseRecord | None, record: LeaseRecord | None, state: str
) -> Iterator[Condition]:
    """Yield what is wrong with a lease: it expired, or another took it although it was not released."""
    if record is None:
        return
    details: dict[str, str | int | float] = {"epoch": record.epoch, "holder": record.holder}
    expired = f"the lease of {record.holder} expired" if state == "expired" else None
    yield Condition("lease_lost", address, expired, key=str(record.epoch), details=details)
    if before is not None and before.epoch != record.epoch and not before.released:
        problem = f"{record.holder} took the lease of {before.holder}, which had not released it"
        yield Condition("lease_contested", address, problem, key=str(record.epoch), details=details)
    elif state == "held" and before is not None and before.nonce != record.nonce:
        yield Condition("lease_contested", address, None)  # it was renewed: the new holder keeps it


def _state(observer: Claimant, record: LeaseRecord | None) -> str:
    if record is None:
        return "missing"
    if record.released:
        return "released"
    return "expired" if observer.wait_ns() == 0 else "held"


def _tell(record: Record, log: CommandLog, *, as_json: bool) -> None:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    who = f" by {record['holder']} {record['holder_address']}".rstrip() if "holder" in record else ""
    epoch = f" under epoch {record['epoch']}" if "epoch" in record else ""
    line = f"{record['state']}{who}{epoch}"
    print_line(to_json({"at": at, **record}) if as_json else f"{at} {line}")
    if log.is_json:
        log.say(line, event="lease", **record)
