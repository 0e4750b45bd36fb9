"""The section `[alarms]` of `strandline.toml`, for the commands that raise alarms and for those about alarms."""

import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.alarms.settings import AlarmSettings
from strandline.alarms.watch import AlarmWatch, ConditionSource
from strandline.cli.configuration import config_file
from strandline.config import ConfigFile, Setting, resolve
from strandline.errors import InvalidInput

Webhooks = Annotated[
    list[str] | None,
    typer.Option("--webhook", metavar="URL", help="Post signed notices to this address; may be repeated."),
]
WebhookSecret = Annotated[
    str,
    typer.Option(
        "--webhook-secret",
        metavar="SECRET",
        help="The secret that webhooks are signed with; better by reference in strandline.toml, or in a variable.",
    ),
]
AlarmCommand = Annotated[
    str, typer.Option("--command", metavar="COMMAND", help="Run this for each notice, which it reads as JSON.")
]
OutboxFolder = Annotated[
    Path | None,
    typer.Option("--outbox", metavar="DIR", help="The folder of alarms; ~/.local/state/strandline/alarms by default."),
]
CaFile = Annotated[
    Path | None, typer.Option("--webhook-ca", metavar="FILE", help="The authority of webhooks' servers (PEM).")
]
DeliveryTimeout = Annotated[
    float, typer.Option("--delivery-timeout", min=0.1, help="Time limit of a webhook, in seconds.")
]
LagLimit = Annotated[float, typer.Option("--lag-limit", min=0, help="Seconds of lag of a replica that are an alarm.")]
LookEvery = Annotated[float, typer.Option("--look-every", min=0.05, help="Seconds between two looks at conditions.")]
Kinds = Annotated[
    list[str] | None, typer.Option("--on", metavar="KIND", help="Raise these kinds only; may be repeated.")
]


def alarm_settings(file: ConfigFile | None) -> AlarmSettings:
    """Return the settings of variables and a file."""
    settings = resolve("alarms", os.environ, file)
    found = {name: setting.value for name, setting in settings.items()}
    outbox, authority = found.get("outbox"), found.get("webhook-ca")
    return AlarmSettings(
        webhooks=_words(found.get("webhook")),
        secret=str(found.get("webhook-secret") or ""),
        command=str(found.get("command") or ""),
        outbox=Path(str(outbox)) if outbox else None,
        ca_file=Path(str(authority)) if authority else None,
        timeout_s=_number(settings["delivery-timeout"]),
        lag_s=_number(settings["lag-limit"]),
        look_every_s=_number(settings["look-every"]),
        kinds=_words(found.get("on")),
    )


def alarms_of(ctx: Any, *sources: ConditionSource) -> AlarmWatch:  # noqa: ANN401 - typer's copy of click is private
    """Return the alarms of a command, as the file and variables have them; they begin with its `with` statement."""
    options = ctx.find_root().params
    file = None if options.get("no_config") else config_file(options.get("config"))
    return AlarmWatch(alarm_settings(file), *sources)


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _number(setting: Setting) -> float:
    """Return a number; `InvalidInput` for a variable that holds none, or one that is too small."""
    try:
        number = float(str(setting.value))
    except ValueError:
        number = math.nan
    least = setting.key.minimum or 0.0
    if not (math.isfinite(number) and number >= least):
        raise InvalidInput(f"{setting.place}: expected a number of at least {least:g}, not {setting.value!r}")
    return number
