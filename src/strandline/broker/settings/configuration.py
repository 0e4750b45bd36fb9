"""The keys of the configuration file, and the settings they become.

Invariants: `KEYS` has every key of nats-server 2.15.1, and our own `remotes`; each is supported, without effect on a
single server (`nothing`), or refused with a hint (`not_served`). Flags override the file. Keys are case-insensitive, as
in nats-server.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from strandline.broker.settings.errors import ConfigurationRefused
from strandline.broker.settings.identities import accounts, anonymous_user, authorization, check_names
from strandline.broker.settings.listeners import http, leafnodes, listen, tls, websocket
from strandline.broker.settings.model import (
    GLOBAL_ACCOUNT,
    AccountSettings,
    JetStreamLimits,
    JetStreamSettings,
    LogSettings,
    ServerSettings,
    UserSettings,
)
from strandline.broker.settings.remotes import remotes
from strandline.broker.settings.syntax import Value, parse_file
from strandline.broker.settings.values import (
    Fields,
    Table,
    duration_s,
    entries,
    integer,
    limit,
    not_served,
    nothing,
    path,
    read_block,
    refuse,
    size,
    text,
    to,
    to_duration,
    truth,
)
from strandline.errors import InvalidInput
from strandline.journal import SYNCED, WRITTEN, Durability

LAME_DUCK_MIN_S = 30.0
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - where nats-server listens by default
WRITTEN_WORD = "written"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings with their notes and warnings, both logged; a test (`-t`) refuses warnings."""

    settings: ServerSettings
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def refuse_doubts(self) -> None:
        """Raise if there are warnings."""
        if self.doubts:
            raise ConfigurationRefused(self.doubts)


def parse_durability(written: str) -> Durability:
    """Return the durability of publish acknowledgements: `written`, or SYNCED for every value of nats-server."""
    return WRITTEN if written == WRITTEN_WORD else SYNCED


def _sync(value: Value) -> Fields:
    if value.content in ("always", WRITTEN_WORD):
        return {"durability": parse_durability(text(value))}
    found = to_duration("durability", "sync_interval")(value)
    return {**found, "durability": SYNCED}


JETSTREAM_LIMITS: Table = {
    "max_ack_pending": not_served("limits of all consumers are not served; give accounts limits"),
    "duplicate_window": not_served("limits of all streams are not served"),
    **dict.fromkeys(("max_ha_assets", "max_request_batch", "batch"), nothing),
}
JETSTREAM: Table = {
    **dict.fromkeys(("store_dir", "store", "storedir"), to("store_dir", path)),
    **dict.fromkeys(("max_memory_store", "max_mem_store", "max_mem"), to("js_max_memory", size)),
    **dict.fromkeys(("max_file_store", "max_file"), to("js_max_storage", size)),
    "domain": to("js_domain", text),
    **dict.fromkeys(("enabled", "enable"), to("js", truth)),
    **dict.fromkeys(("sync_interval", "sync"), _sync),
    "limits": lambda value: read_block(entries(value), JETSTREAM_LIMITS),
    **dict.fromkeys(
        (
            "extension_hint",
            "info_queue_limit",
            "max_buffered_msgs",
            "max_buffered_size",
            "max_outstanding_catchup",
            "meta_compact",
            "meta_compact_size",
            "meta_compact_sync",
            "request_queue_limit",
            "strict",
            "unique_tag",
        ),
        nothing,
    ),
    **dict.fromkeys(
        ("cipher", "encryption_key", "ek", "key", "prev_encryption_key", "prev_ek", "prev_key", "tpm"),
        not_served("encryption of stored data is not served; encrypt the disk"),
    ),
}


def _jetstream(value: Value) -> Fields:
    match value.content:
        case bool(content):
            return {"js": content}
        case str("enabled" | "enable" | "disabled" | "disable" as content):
            return {"js": content.startswith("enable")}
        case dict(content):
            return {"js": True, **read_block(content, JETSTREAM)}
        case content:
            raise refuse(value, f"expected 'enabled' or 'disabled' or a map, got {content!r}")


def _lame_duck(value: Value) -> float:
    found = duration_s(value)
    if found < LAME_DUCK_MIN_S:
        raise refuse(value, f"invalid lame_duck_duration of {text(value)}, minimum is 30 seconds")
    return found


def _server_name(value: Value) -> str:
    name = text(value)
    if " " in name:
        raise refuse(value, "server name cannot contain spaces")
    return name


KEYS: Table = {
    "listen": listen,
    "port": to("port", integer),
    **dict.fromkeys(("host", "net"), to("host", text)),
    "server_name": to("server_name", _server_name),
    "authorization": authorization,
    "accounts": to("accounts", accounts),
    "no_auth_user": to("no_auth_user", text),
    **dict.fromkeys(("system_account", "system"), to("system_account", text)),
    "tls": to("tls", tls),
    "allow_non_tls": to("allow_non_tls", truth),
    **dict.fromkeys(("websocket", "ws"), to("websocket", websocket)),
    "jetstream": _jetstream,
    **dict.fromkeys(("store_dir", "storedir"), to("store_dir", path)),
    "http": http,
    **dict.fromkeys(("http_port", "monitor_port"), to("http_port", integer)),
    "http_base_path": to("http_base_path", text),
    "max_payload": to("max_payload", integer),
    "max_pending": to("max_pending", integer),
    **dict.fromkeys(("max_connections", "max_conn"), to("max_connections", limit)),
    **dict.fromkeys(("max_subscriptions", "max_subs"), to("max_subscriptions", limit)),
    **dict.fromkeys(("max_subscription_tokens", "max_sub_tokens"), to("max_subscription_tokens", limit)),
    "max_control_line": to("max_control_line", integer),
    "max_closed_clients": to("max_closed_clients", integer),
    "ping_interval": to_duration("ping_interval_s", "ping_interval"),
    "ping_max": to("ping_max", integer),
    "write_deadline": to_duration("write_deadline_s", "write_deadline"),
    "lame_duck_duration": to("lame_duck_s", _lame_duck),
    "lame_duck_grace_period": to("lame_duck_grace_s", duration_s),
    "debug": to("debug", truth),
    **dict.fromkeys(("trace", "trace_verbose"), to("trace", truth)),
    "trace_headers": to("trace_headers", truth),
    "max_traced_msg_len": to("traced_bytes_max", integer),
    "logtime": to("timestamps", truth),
    "logtime_utc": to("utc", truth),
    **dict.fromkeys(("log_file", "logfile"), to("log_file", path)),
    **dict.fromkeys(("log_size_limit", "logfile_size_limit"), to("size_limit", integer)),
    **dict.fromkeys(("pid_file", "pidfile"), to("pid_file", path)),
    "ports_file_dir": to("ports_file_dir", path),
    "remotes": to("remotes", remotes),
    **dict.fromkeys(("leafnodes", "leaf"), leafnodes),
    **dict.fromkeys(
        (
            "client_advertise",
            "connect_error_reports",
            "default_js_domain",
            "disable_sublist_cache",
            "feature_flags",
            "log_max_num",
            "logfile_max_num",
            "no_fast_producer_stall",
            "no_sublist_cache",
            "no_sys_acc",
            "no_system",
            "no_system_account",
            "ocsp_cache",
            "prof_block_rate",
            "reconnect_error_reports",
            "server_metadata",
            "server_tags",
            "write_timeout",
        ),
        nothing,
    ),
    "cluster": not_served("clusters are not served"),
    "gateway": not_served("gateways are not served"),
    "mqtt": not_served("MQTT is not served"),
    **dict.fromkeys(
        (
            "default_sentinel",
            "operator",
            "operators",
            "resolver",
            "resolver_pinned_accounts",
            "resolver_preload",
            "resolver_tls",
            "root",
            "root_operator",
            "root_operators",
            "roots",
            "trusted",
            "trusted_keys",
        ),
        not_served("operators, account resolvers and JWTs are not served; name accounts and users in `accounts`"),
    ),
    **dict.fromkeys(("mappings", "maps"), not_served("mappings of subjects are not served")),
    **dict.fromkeys(("https", "https_port"), not_served("monitoring over TLS is not served; use http")),
    "no_header_support": not_served("headers cannot be switched off"),
    "ocsp": not_served("OCSP is not served"),
    **dict.fromkeys(("proxies", "proxy_protocol"), not_served("proxies are not served")),
    "prof_port": not_served("profiling over HTTP is not served"),
    **dict.fromkeys(("syslog", "remote_syslog"), not_served("syslog is not served; use log_file")),
}


def read_configuration(
    file: Path | None,
    environment: Mapping[str, str] | None = None,
    flags: Fields | None = None,
    read: Callable[[Path], str] | None = None,
) -> Configuration:
    """Return the settings of a file and a command line; raise `ConfigurationRefused` with all problems."""
    given: Fields = {}
    if file is not None:
        block = parse_file(file, environment or os.environ, read or _read_text)
        given = read_block(block, KEYS)
        if not block:
            raise ConfigurationRefused([f"{file}: config has no values or is empty"])
    overrides = flags or {}
    if overrides.get("users") or overrides.get("token"):  # one user or token replaces those of the file
        given |= {"users": (), "token": "", "accounts": (), "single": ""}
    return assemble({**given, **overrides})


def assemble(given: Fields) -> Configuration:
    """Return settings from given fields, with nats-server's defaults for the others."""
    has_authorization = "users" in given
    users: tuple[UserSettings, ...] = given.pop("users", ())
    named: tuple[AccountSettings, ...] = given.pop("accounts", ())
    notes: tuple[str, ...] = given.pop("notes", ())
    doubts: tuple[str, ...] = given.pop("doubts", ())
    single: str = given.pop("single", "")
    if single and given.get("no_auth_user"):
        problem = f'no_auth_user: "{given["no_auth_user"]}" present, but users/nkeys are not defined'
        raise ConfigurationRefused([problem])
    others = [each for each in named if each.name != given.get("system_account", "$SYS")]
    limits = None if others else JetStreamLimits()
    if named and not others and not has_authorization and not given.get("no_auth_user"):
        users = (anonymous_user(),)
        given["no_auth_user"] = users[0].user
    given["accounts"] = (AccountSettings(GLOBAL_ACCOUNT, users, limits), *named)
    check_names(given["accounts"], single)
    log = {name: given.pop(name) for name in _names(LogSettings) if name in given}
    if "log_file" in given:
        log["file"] = given.pop("log_file")
    given["log"] = LogSettings(**log)
    enabled = given.pop("js", False)
    jetstream_limits = {name: given.pop(f"js_{name}") for name in _names(JetStreamSettings) if f"js_{name}" in given}
    given["jetstream"] = JetStreamSettings(**jetstream_limits) if enabled else None
    if enabled and not given.get("store_dir"):
        given["store_dir"] = Path(tempfile.gettempdir()) / "nats"
        notes = (*notes, "Temporary storage directory used, data could be lost on system reboot")
    if given.get("port") == 0:
        given["port"] = 4222
    if given.get("http_port") == 0:
        given["http_port"] = None
    system = given.get("system_account")
    if system and system not in [each.name for each in given["accounts"]] and system != "$SYS":
        raise ConfigurationRefused([f"system_account: there is no account {system!r}"])
    _complete_tls(given)
    if any(user.password and not user.password.startswith("$2") for each in given["accounts"] for user in each.users):
        notes = (*notes, "Plaintext passwords detected, use nkeys or bcrypt")
    if given.get("websocket") is not None and given["websocket"].tls is None:
        notes = (*notes, "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
    return Configuration(ServerSettings(**{"host": ALL_INTERFACES, **given}), notes, doubts)


def _complete_tls(given: Fields) -> None:
    if given.get("tls") is not None and "auth_timeout_s" not in given:
        given["auth_timeout_s"] = given["tls"].timeout_s + 1.0  # it includes the handshake


def _names(kind: Any) -> list[str]:  # noqa: ANN401 - any dataclass
    return [each.name for each in fields(kind)]


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"open {file}: {reason}", hint="give the path of a configuration file") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8 text") from error
