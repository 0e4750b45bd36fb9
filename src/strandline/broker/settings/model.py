"""The settings of a broker, as frozen values with nats-server's defaults.

Invariants: nothing here was read from a command line or a file (`flags` and `configuration` do that); a value that
cannot work is refused where it is made; sizes are bytes, times are seconds, and None or 0 of a limit means that there
is none. Only `host`, `jetstream` and `durability` differ from nats-server by default: this one listens on the loopback
address, has JetStream, and syncs before it acknowledges.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.errors import InvalidInput
from strandline.journal import SYNCED, Durability

if TYPE_CHECKING:  # slow to import, and seldom wanted
    from strandline.nats.settings import NatsSettings

KiB = 1024
MiB = 1024 * KiB

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Rule:
    """Allowed and denied subjects; `allow` is None where all are allowed.

    A subject of a subscribe rule may name a queue after a space: `orders.> workers`.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseRule:
    """Permission to answer received requests: messages for each request, and a time limit; -1 is no limit."""

    max_messages: int = 1
    expires_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Permissions:
    """Publish and subscribe permissions of a user; None allows everything."""

    publish: Rule | None = None
    subscribe: Rule | None = None
    responses: ResponseRule | None = None


@dataclass(frozen=True, slots=True)
class UserSettings:
    """A user with name and password (plain, or a bcrypt hash `$2a$…`), or with a public `nkey`."""

    user: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()
    """Allowed connection types (`STANDARD`, `WEBSOCKET`); empty allows all."""

    def __post_init__(self) -> None:
        """Refuse a user of no name, or of two kinds."""
        if bool(self.user) == bool(self.nkey):
            raise InvalidInput("a user has either a name or an nkey")


@dataclass(frozen=True, slots=True)
class JetStreamLimits:
    """JetStream limits of an account; -1 is the server's limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """An account with its users; `jetstream` is None where it is disabled."""

    name: str = GLOBAL_ACCOUNT
    users: tuple[UserSettings, ...] = ()
    jetstream: JetStreamLimits | None = field(default_factory=JetStreamLimits)
    max_connections: int | None = None
    max_subscriptions: int | None = None
    max_payload: int | None = None
    trace_dest: str = ""
    """Trace destination of messages with a sampled `traceparent`; empty for none."""
    trace_sampling: int = 100
    """Percentage of those messages that are traced."""
    remotes: "Mapping[str, NatsSettings]" = field(default_factory=dict)
    """Remote servers of mirrors and sources, by the API prefix of their `external`."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The server's certificate; with `verify` a client needs one too, signed by `ca_file`."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None
    verify: bool = False
    timeout_s: float = 2.0
    handshake_first: bool = False
    """The TLS handshake precedes INFO."""
    handshake_first_fallback_s: float | None = None
    """With `handshake_first`: INFO is sent in plain text to a client that was silent for this long."""
    min_version: str = "1.2"


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """The WebSocket listener; without `tls` it is plain text."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsSettings | None = None
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    compression: bool = False
    handshake_timeout_s: float = 2.0
    no_auth_user: str = ""

    def __post_init__(self) -> None:
        """Refuse a port that is none."""
        check_port("websocket port", self.port)


@dataclass(frozen=True, slots=True)
class JetStreamSettings:
    """JetStream limits of the server; -1 is the capacity of the machine."""

    max_memory: int = -1
    max_storage: int = -1
    domain: str = ""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Destination of the log (standard error without a `file`) and its verbosity."""

    file: Path | None = None
    debug: bool = False
    trace: bool = False
    timestamps: bool = True
    utc: bool = False
    size_limit: int = 0
    form: str = "text"
    """`text` as nats-server writes lines, or `json`."""
    traced_bytes_max: int = 0
    """Bytes of a message shown in a trace; 0 for all."""
    trace_headers: bool = False
    """Show only the headers of messages in a trace."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All settings. Port 0 or -1 picks a free one; without a `store_dir` data is temporary and removed at the end."""

    host: str = "127.0.0.1"
    port: int = 4222
    server_name: str = ""
    """Empty: the server id is the name."""
    store_dir: Path | None = None
    jetstream: JetStreamSettings | None = field(default_factory=JetStreamSettings)
    durability: Durability = SYNCED
    """When a publish is acknowledged."""
    remotes: "Mapping[str, NatsSettings]" = field(default_factory=dict)
    """Remotes of the global account; other accounts have their own, because a remote includes credentials."""

    accounts: tuple[AccountSettings, ...] = (AccountSettings(),)
    """Always includes `GLOBAL_ACCOUNT`."""
    system_account: str = SYSTEM_ACCOUNT
    token: str = field(default="", repr=False)
    """Token for the global account; plain or a bcrypt hash."""
    no_auth_user: str = ""
    """The user of clients without credentials."""
    auth_timeout_s: float = 2.0
    tls: TlsSettings | None = None
    allow_non_tls: bool = False
    """With `tls`: clients may connect without it."""
    websocket: WebsocketSettings | None = None

    max_payload: int = MiB
    max_connections: int | None = 65_536
    max_subscriptions: int | None = None
    max_subscription_tokens: int | None = None
    max_control_line: int = 4 * KiB
    max_pending: int = 64 * MiB
    ping_interval_s: float = 120.0
    ping_max: int = 2
    write_deadline_s: float = 10.0
    lame_duck_s: float = 120.0
    lame_duck_grace_s: float = 10.0

    http_host: str = ""
    """Empty: the client host."""
    http_port: int | None = None
    """Port of the monitoring endpoints; None disables them."""
    http_base_path: str = ""
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """Port of metrics for Prometheus, 0 for a free one; None serves none. `strandline serve` alone opens it."""
    max_closed_clients: int = 10_000
    """How many closed connections `/connz` keeps."""
    pid_file: Path | None = None
    ports_file_dir: Path | None = None
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        check_port("port", self.port)
        check_port("http_port", self.http_port or 0)
        check_port("metrics-port", self.metrics_port or 0)
        names = [account.name for account in self.accounts]
        if GLOBAL_ACCOUNT not in names or len(set(names)) != len(names):
            raise InvalidInput(f"accounts need different names, {GLOBAL_ACCOUNT} among them, not {names}")
        if self.max_payload < 1:
            raise InvalidInput(f"max_payload must be at least 1, not {self.max_payload}")
        if self.max_pending < self.max_payload:
            raise InvalidInput(
                f"max_payload ({self.max_payload}) cannot be higher than max_pending ({self.max_pending})",
                hint="raise max_pending, or lower max_payload",
            )
        users = {user.user or user.nkey for account in self.accounts for user in account.users}
        for name in (self.no_auth_user, self.websocket.no_auth_user if self.websocket else ""):
            if name and name not in users:
                known = "not present as user or nkey in authorization block or account configuration"
                raise InvalidInput(
                    f'no_auth_user: "{name}" {known if users else "present, but users/nkeys are not defined"}'
                )
        system = [each for each in self.accounts if each.name == self.system_account and each.jetstream is not None]
        if self.jetstream is not None and system:
            raise InvalidInput(
                "Not allowed to enable JetStream on the system account",
                hint="leave `jetstream` out of the account; in Python, give its AccountSettings jetstream=None",
            )

    def remotes_of(self, account: AccountSettings) -> "Mapping[str, NatsSettings]":
        """Return the other servers that mirrors and sources of an account may copy from."""
        return {**self.remotes, **account.remotes} if account.name == GLOBAL_ACCOUNT else account.remotes


def format_address(scheme: str, host: str, port: int) -> str:
    """Return the URL at which local clients reach a listener, also one on all interfaces."""
    reached = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - compared, not bound
    return f"{scheme}://{f'[{reached}]' if ':' in reached else reached}:{port}"


def check_port(name: str, port: int) -> None:
    """Raise `InvalidInput` unless a number is a port, 0 or -1."""
    if not -1 <= port <= PORT_MAX:
        raise InvalidInput(f"{name} must be at most {PORT_MAX}, or -1 for a free one, not {port}")
