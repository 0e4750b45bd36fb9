"""The settings that a running broker can reload.

Invariants: pure; everything that is not in `RELOADABLE` must stay as it is, and a reload that would change any of it is
refused as a whole, so that a server never runs with half of a configuration.
"""

from dataclasses import fields

from strandline.broker.settings.errors import ConfigurationRefused
from strandline.broker.settings.model import LogSettings, ServerSettings

RELOADABLE = frozenset(
    {
        "accounts",
        "allow_non_tls",
        "auth_timeout_s",
        "lame_duck_grace_s",
        "lame_duck_s",
        "log",
        "max_closed_clients",
        "max_connections",
        "max_control_line",
        "max_payload",
        "max_pending",
        "max_subscription_tokens",
        "max_subscriptions",
        "no_auth_user",
        "pid_file",
        "ping_interval_s",
        "ping_max",
        "tls",
        "token",
        "write_deadline_s",
    }
)


_KEYS = {
    "auth_timeout_s": "authorization timeout",
    "lame_duck_grace_s": "lame_duck_grace_period",
    "lame_duck_s": "lame_duck_duration",
    "file": "log_file",
    "timestamps": "logtime",
    "utc": "logtime_utc",
    "size_limit": "log_size_limit",
    "traced_bytes_max": "max_traced_msg_len",
}
"""Names in the file of settings that have another name here, units aside."""


def describe_changes(old: ServerSettings, new: ServerSettings) -> list[str]:
    """Return the changes of a reload for the log; raise `ConfigurationRefused` where a change needs a restart.

    TLS is always among them, where it is used: its files may have changed under their names.
    """
    changed = [each.name for each in fields(ServerSettings) if getattr(old, each.name) != getattr(new, each.name)]
    fixed = [name for name in changed if name not in RELOADABLE]
    if (old.tls is None) != (new.tls is None):
        fixed.append("tls")
    if _with_jetstream(old) != _with_jetstream(new):
        fixed.append("accounts (JetStream of one begins or ends)")
    if _remotes(old) != _remotes(new) and "remotes" not in fixed:
        fixed.append("accounts (remotes of an account change)")
    if fixed:
        raise ConfigurationRefused(
            [f"config reload not supported for {name}" for name in fixed], hint="restart the server to change these"
        )
    texts = [text for name in changed if name != "tls" for text in _describe(name, old, new)]
    return [*texts, "tls = enabled"] if new.tls is not None else texts


def _describe(name: str, old: ServerSettings, new: ServerSettings) -> list[str]:
    match name:
        case "accounts":
            return ["accounts"]
        case "token":
            return ["authorization token"]
        case "log":
            names = [each.name for each in fields(LogSettings)]
            changed = [each for each in names if getattr(old.log, each) != getattr(new.log, each)]
            return [_format_change(each, getattr(new.log, each)) for each in changed]
        case _:
            return [_format_change(name, getattr(new, name))]


def _format_change(name: str, value: object) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case float():
            text = f"{value:g}s"
        case _:
            text = str(value or "")
    return f"{_KEYS.get(name, name.removesuffix('_s'))} = {text}"


def _with_jetstream(settings: ServerSettings) -> set[str]:
    named = {account.name for account in settings.accounts if account.jetstream is not None}
    return named if settings.jetstream is not None else set()


def _remotes(settings: ServerSettings) -> dict[str, object]:
    return {account.name: found for account in settings.accounts if (found := settings.remotes_of(account))}
