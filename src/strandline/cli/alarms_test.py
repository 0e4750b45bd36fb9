"""`strandline alarms test`: a test alarm, raised and resolved, to every receiver."""

import typer

from strandline.alarms.alarm import Condition
from strandline.alarms.delivery import Delivery
from strandline.alarms.outbox import Outbox
from strandline.alarms.receivers import TIMEOUT_S
from strandline.alarms.settings import LAG_S, LOOK_EVERY_S, AlarmSettings
from strandline.cli.alarm_options import (
    AlarmCommand,
    CaFile,
    DeliveryTimeout,
    Kinds,
    LagLimit,
    LookEvery,
    OutboxFolder,
    Webhooks,
    WebhookSecret,
)
from strandline.cli.output import AsJson, emit_rows
from strandline.errors import InvalidInput

EXIT_NOT_TAKEN = 1


def send_test(  # noqa: PLR0913, PLR0917 - one for each option
    webhook: Webhooks = None,
    webhook_secret: WebhookSecret = "",
    command: AlarmCommand = "",
    outbox: OutboxFolder = None,
    webhook_ca: CaFile = None,
    delivery_timeout_s: DeliveryTimeout = TIMEOUT_S,
    lag_limit_s: LagLimit = LAG_S,
    look_every_s: LookEvery = LOOK_EVERY_S,
    on: Kinds = None,
    as_json: AsJson = False,
) -> None:
    """Raise and resolve a test alarm, and say what each receiver answered.

    The exit code is 1 if a receiver did not take a notice; it stays in the outbox, and is sent again by the next
    command that runs with alarms.
    """
    settings = AlarmSettings(
        tuple(webhook or ()),
        webhook_secret,
        command,
        outbox,
        webhook_ca,
        delivery_timeout_s,
        lag_limit_s,
        look_every_s,
        tuple(on or ()),
    )
    if not settings.is_configured:
        hint = "set webhook and webhook-secret, or command, in [alarms] of strandline.toml"
        raise InvalidInput("no receiver of alarms is configured", hint=hint)
    receivers = settings.receivers()
    box = Outbox(settings.folder, tuple(receiver.name for receiver in receivers))
    delivery = Delivery(box, receivers)
    rows: list[dict[str, object]] = []
    for problem in ("this is a test", None):
        box.observe(Condition("test", "strandline alarms test", problem))
        for pending, error in delivery.run(now=True):
            rows.append(
                {
                    "receiver": pending.receiver,
                    "notice": pending.notice.id,
                    "state": pending.notice.state,
                    "taken": not error,
                    "error": error or None,
                }
            )
    emit_rows(rows, as_json=as_json)
    if not rows or any(row["error"] for row in rows):
        raise typer.Exit(EXIT_NOT_TAKEN)
