"""What a broker is told: by values of Python, by the flags of nats-server, by its configuration file.

`model` is what the broker reads. `flags` and `configuration` make it out of what people have: the command line of
nats-server and its configuration language (`syntax`), so that a script, a test suite or a container that starts
nats-server can start this one instead. A key that nats-server does not know is refused with file and line, as it does;
a key that it knows and this one does not serve is refused too, with what to do, for a setting that is silently ignored
is a promise that is silently broken.
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
