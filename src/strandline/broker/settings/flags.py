"""The command line of nats-server: its flags, in the syntax of Go.

One dash or two, `-p 4222` or `-p=4222`, a boolean alone or with `=false`. `BY_NAME` has every flag that nats-server
2.15.1 knows, and some of our own: `--sync`, `--log-format`, `--metrics-port` and `--metrics-host`. Pure: the result is
a `CommandLine`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from strandline.broker.settings.configuration import Configuration, parse_durability, read_configuration
from strandline.broker.settings.errors import FlagRefused, NotServed
from strandline.broker.settings.model import TlsSettings, UserSettings
from strandline.broker.settings.values import SERVED_ELSEWHERE, Fields
from strandline.errors import InvalidInput

TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
SIGNALS = ("ldm", "stop", "quit", "term", "reopen", "reload")


class Flag(NamedTuple):
    """A flag: its names, its metavariable in help (empty for a boolean), its reader, its description."""

    names: tuple[str, ...]
    value: str
    read: Callable[[str], Fields]
    help: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A parsed command line; `action` is `serve`, `test`, `help`, `version` or `signal`."""

    action: str = "serve"
    config: Path | None = None
    signal: str = ""
    pid: str = ""
    fields: Fields = field(default_factory=dict)

    def settings(self) -> Configuration:
        """Return the settings of the flags and of the configuration file, if there is one."""
        return read_configuration(self.config, flags=dict(self.fields))


def _text(name: str) -> Callable[[str], Fields]:
    return lambda written: {name: written}


def _path(name: str) -> Callable[[str], Fields]:
    return lambda written: {name: Path(written)}


def _number(name: str) -> Callable[[str], Fields]:
    def read(written: str) -> Fields:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", written):
            raise InvalidInput("parse error")
        return {name: int(written)}

    return read


def _truth(*names: str) -> Callable[[str], Fields]:
    def read(written: str) -> Fields:
        if written.lower() not in TRUTHS:
            raise InvalidInput("parse error")
        return dict.fromkeys(names, TRUTHS[written.lower()])

    return read


def _action(name: str) -> Callable[[str], Fields]:
    return lambda written: {"action": name} if _truth("it")(written)["it"] else {}


def _signal(written: str) -> Fields:
    name, _, pid = written.partition("=")
    if name not in SIGNALS:
        raise InvalidInput(f"unknown signal {name!r}", hint=f"signals are {', '.join(SIGNALS)}")
    return {"action": "signal", "signal": name, "pid": pid}


def _sync(written: str) -> Fields:
    if written not in ("always", "written"):
        raise InvalidInput("parse error", hint="use `always` or `written`")
    return {"durability": parse_durability(written)}


def _log_format(written: str) -> Fields:
    if written not in ("text", "json"):
        raise InvalidInput("parse error", hint="use `text` or `json`")
    return {"form": written}


def _metrics_port(written: str) -> Fields:
    return {"metrics_port": max(0, _number("port")(written)["port"])}


def _missing(what: str) -> Callable[[str], Fields]:
    def read(written: str) -> Fields:
        if written in ("", "0", "false"):
            return {}
        raise NotServed([what], hint=SERVED_ELSEWHERE)

    return read


def _nothing(_: str) -> Fields:
    return {}


CLUSTERS = "clusters are not served"
FLAGS = (
    Flag(("a", "addr", "net"), "<host>", _text("host"), "Bind to host address (default: 0.0.0.0)"),
    Flag(("p", "port"), "<port>", _number("port"), "Use port for clients (default: 4222; -1: a free one)"),
    Flag(("n", "name", "server_name"), "<name>", _text("server_name"), "Server name (default: its id)"),
    Flag(("P", "pid"), "<file>", _path("pid_file"), "File to store PID"),
    Flag(("m", "http_port"), "<port>", _number("http_port"), "Use port for http monitoring"),
    Flag(("metrics-port", "metrics_port"), "<port>", _metrics_port, "Use port for metrics and health (0: a free one)"),
    Flag(("metrics-host", "metrics_host"), "<host>", _text("metrics_host"), "Address of metrics (default: 127.0.0.1)"),
    Flag(("c", "config"), "<file>", _path("config"), "Configuration file"),
    Flag(("t",), "", _action("test"), "Test configuration and exit"),
    Flag(
        ("sl", "signal"),
        "<signal>=<pid>",
        _signal,
        f"Send signal ({', '.join(SIGNALS)}) to a pid, or a file's",
    ),
    Flag(("ports_file_dir",), "<dir>", _path("ports_file_dir"), "Create nats-server_<pid>.ports in this folder"),
    Flag(("l", "log"), "<file>", _path("log_file"), "File to redirect log output"),
    Flag(("T", "logtime"), "", _truth("timestamps"), "Timestamp log entries (default: true)"),
    Flag(("logtime_utc",), "", _truth("utc"), "Timestamps in UTC instead of local timezone"),
    Flag(("log_size_limit",), "<limit>", _number("size_limit"), "Logfile size limit"),
    Flag(("log-format", "log_format"), "<format>", _log_format, "Log as text (default), or as json, an object a line"),
    Flag(("D", "debug"), "", _truth("debug"), "Enable debugging output"),
    Flag(("V", "trace", "VV"), "", _truth("trace"), "Trace the raw protocol"),
    Flag(("DV", "DVV"), "", _truth("debug", "trace"), "Debug and trace"),
    Flag(("max_traced_msg_len",), "<len>", _number("traced_bytes_max"), "Maximum printable length for traced messages"),
    Flag(("js", "jetstream"), "", _truth("js"), "Enable JetStream functionality"),
    Flag(("sd", "store_dir"), "<dir>", _path("store_dir"), "Set the storage directory"),
    Flag(("sync",), "<when>", _sync, "Acknowledge publishes when synced (always) or in the page cache (written)"),
    Flag(("user",), "<user>", _text("user"), "User required for connections"),
    Flag(("pass",), "<password>", _text("password"), "Password required for connections"),
    Flag(("auth",), "<token>", _text("token"), "Authorization token required for connections"),
    Flag(("tls",), "", _truth("tls"), "Enable TLS, do not verify clients"),
    Flag(("tlscert",), "<file>", _path("tls_cert"), "Server certificate file"),
    Flag(("tlskey",), "<file>", _path("tls_key"), "Private key for server certificate"),
    Flag(("tlsverify",), "", _truth("tls_verify"), "Enable TLS, verify client certificates"),
    Flag(("tlscacert",), "<file>", _path("tls_ca"), "Client certificate CA for verification"),
    Flag(("h", "help", "help_tls"), "", _action("help"), "Show this message"),
    Flag(("v", "version"), "", _action("version"), "Show version"),
)
UNSERVED_FLAGS = (
    Flag(("ms", "https_port"), "<port>", _missing("monitoring over TLS is not served; use -m"), ""),
    Flag(("s", "syslog"), "", _missing("syslog is not served; use -l"), ""),
    Flag(("r", "remote_syslog"), "<addr>", _missing("syslog is not served; use -l"), ""),
    Flag(("routes",), "<urls>", _missing(CLUSTERS), ""),
    Flag(("cluster",), "<url>", _missing(CLUSTERS), ""),
    Flag(("cluster_listen",), "<url>", _missing(CLUSTERS), ""),
    Flag(("cluster_name",), "<name>", _missing(CLUSTERS), ""),
    Flag(("profile",), "<port>", _missing("profiling over HTTP is not served"), ""),
    Flag(("client_advertise",), "<url>", _nothing, ""),
    Flag(("cluster_advertise",), "<url>", _nothing, ""),
    Flag(("connect_retries",), "<number>", _nothing, ""),
    Flag(("no_advertise",), "", _nothing, ""),
)
BY_NAME = {name: flag for flag in (*FLAGS, *UNSERVED_FLAGS) for name in flag.names}


def parse_command_line(arguments: Sequence[str]) -> CommandLine:
    """Parse a command line; raise `FlagRefused` or `NotServed` if it cannot be used."""
    given: Fields = {}
    left = list(arguments)
    while left:
        name, flag, written = _split(left.pop(0))
        if flag is None:
            return _word(name, left)
        if written is None:
            if flag.value and not left:
                raise FlagRefused(f"flag needs an argument: -{name}")
            written = left.pop(0) if flag.value else "true"
        try:
            given |= flag.read(written)
        except NotServed:
            raise
        except InvalidInput as error:
            raise FlagRefused(f"invalid value {written!r} for flag -{name}: {error}", hint=error.hint) from error
    return _command_line(given)


def _split(argument: str) -> tuple[str, Flag | None, str | None]:
    """Split an argument into name, flag and attached value; no flag for a plain word."""
    if not argument.startswith("-") or argument in ("-", "--"):
        return argument, None, None
    name, equals, value = re.sub("^--?", "", argument).partition("=")
    if name not in BY_NAME:
        raise FlagRefused(f"flag provided but not defined: -{name}")
    return name, BY_NAME[name], value if equals else None


def _word(word: str, rest: Sequence[str]) -> CommandLine:
    if word == "--" and not rest:
        return CommandLine()
    if word in ("help", "version"):
        return CommandLine(action=word)
    raise FlagRefused(f"unrecognized command: {word!r}")


def _command_line(given: Fields) -> CommandLine:
    top = {name: given.pop(name) for name in ("action", "config", "signal", "pid") if name in given}
    user, password = given.pop("user", ""), given.pop("password", "")
    if user:
        given["users"] = (UserSettings(user=user, password=password),)
    tls = {name: given.pop(name, None) for name in ("tls", "tls_cert", "tls_key", "tls_verify", "tls_ca")}
    if tls["tls"] or tls["tls_verify"]:
        given["tls"] = _tls(tls)
    if top.get("action") == "test" and "config" not in top:
        raise FlagRefused("must specify a configuration file to test", hint="-c FILE")
    return CommandLine(**top, fields=given)


def _tls(given: Fields) -> TlsSettings:
    for name, what in (("tls_cert", "certificate"), ("tls_key", "private key")):
        if given[name] is None or not given[name].is_file():
            raise FlagRefused(f"TLS Server {what} must be present and valid", hint="--tlscert FILE --tlskey FILE")
    return TlsSettings(given["tls_cert"], given["tls_key"], given["tls_ca"], bool(given["tls_verify"]))


def usage(program: str) -> str:
    """Return the text of `-h`."""
    rows = [(", ".join(_dashed(name) for name in flag.names) + f" {flag.value}", flag.help) for flag in FLAGS]
    width = max(len(left) for left, _ in rows)
    lines = [f"    {left:<{width}}  {right}".rstrip() for left, right in rows]
    return "\n".join([f"Usage: {program} [options]", "", *lines, ""])


def _dashed(name: str) -> str:
    return f"-{name}" if len(name) <= 2 or name.isupper() else f"--{name}"  # noqa: PLR2004 - as nats-server writes them
