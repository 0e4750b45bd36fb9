"""Settings of a broker: as Python values, from nats-server's flags, or from its configuration file.

`model` holds the settings. `flags` and `configuration` read the command line and the configuration language (`syntax`)
of nats-server, so that a script, a test suite or a container that starts nats-server can start this broker instead. A
key that nats-server does not know is refused with file and line, as there; a key of a feature that this broker lacks is
refused too, with a hint, because a silently ignored setting is a silently broken promise.
"""

from strandline.broker.settings.model import (
    GLOBAL_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountSettings,
    JetStreamLimits,
    JetStreamSettings,
    LogSettings,
    Permissions,
    ResponseRule,
    Rule,
    ServerSettings,
    TlsSettings,
    UserSettings,
    WebsocketSettings,
)

__all__ = [
    "GLOBAL_ACCOUNT",
    "SYSTEM_ACCOUNT",
    "AccountSettings",
    "JetStreamLimits",
    "JetStreamSettings",
    "LogSettings",
    "Permissions",
    "ResponseRule",
    "Rule",
    "ServerSettings",
    "TlsSettings",
    "UserSettings",
    "WebsocketSettings",
]
