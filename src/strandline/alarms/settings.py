"""The section `[alarms]` as values: receivers, the outbox, and thresholds."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from strandline.alarms.alarm import KINDS
from strandline.alarms.receivers import COMMAND_TIMEOUT_S, TIMEOUT_S, CommandReceiver, Receiver, Webhook
from strandline.errors import InvalidInput

LAG_S = 60.0
LOOK_EVERY_S = 5.0


def default_outbox() -> Path:
    """Return the folder of the outbox where none is configured."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "strandline" / "alarms"


@dataclass(frozen=True)
class AlarmSettings:
    """How alarms are raised and sent."""

    webhooks: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)
    command: str = ""
    outbox: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = TIMEOUT_S
    lag_s: float = LAG_S
    look_every_s: float = LOOK_EVERY_S
    kinds: tuple[str, ...] = ()
    """The kinds that are raised; empty for all."""

    def __post_init__(self) -> None:
        """Refuse kinds that do not exist."""
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise InvalidInput(f"there is no alarm {unknown[0]!r}", hint=f"there are {', '.join(KINDS)}")

    @property
    def is_configured(self) -> bool:
        """Whether there is a receiver."""
        return bool(self.webhooks or self.command)

    @property
    def folder(self) -> Path:
        """The folder of the outbox."""
        return self.outbox or default_outbox()

    def receivers(self) -> list[Receiver]:
        """Return the receivers; `InvalidInput` where one cannot work."""
        found: list[Receiver] = [
            Webhook(url, self.secret, ca_file=self.ca_file, timeout_s=self.timeout_s) for url in self.webhooks
        ]
        if self.command:
            found.append(CommandReceiver(self.command, timeout_s=max(self.timeout_s, COMMAND_TIMEOUT_S)))
        return found
