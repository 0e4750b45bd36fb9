"""What a broker is told before it starts, as frozen values with nats-server's defaults.

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
    """Subjects that may be used, and those among them that may not; `allow` is None where all may.

    A subject of a subscribe rule may name a queue after a space: `orders.> workers`.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseRule:
    """A user may answer requests that it was sent: so many messages for each, within some time; -1 is no limit."""

    max_messages: int = 1
    expires_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may publish and subscribe to; None is everything."""

    publish: Rule | None = None
    subscribe: Rule | None = None
    responses: ResponseRule | None = None


@dataclass(frozen=True, slots=True)
class UserSettings:
    """Somebody who may connect: by name and password (plain, or a bcrypt hash `$2a$…`), or by the public `nkey`."""

    user: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()
    """Kinds of connections (`STANDARD`, `WEBSOCKET`) that the user may use; empty is all."""

    def __post_init__(self) -> None:
        """Refuse a user of no name, or of two kinds."""
        if bool(self.user) == bool(self.nkey):
            raise InvalidInput("a user has either a name or an nkey")


@dataclass(frozen=True, slots=True)
class JetStreamLimits:
    """How much JetStream an account may keep; -1 is as much as the server has."""

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
    """A space of subjects of its own, and who may connect to it; `jetstream` is None where it has none."""

    name: str = GLOBAL_ACCOUNT
    users: tuple[UserSettings, ...] = ()
    jetstream: JetStreamLimits | None = field(default_factory=JetStreamLimits)
    max_connections: int | None = None
    max_subscriptions: int | None = None
    max_payload: int | None = None
    trace_dest: str = ""
    """Where messages with a sampled `traceparent` are traced to; empty if they are not."""
    trace_sampling: int = 100
    """How many of a hundred of them are."""
    remotes: "Mapping[str, NatsSettings]" = field(default_factory=dict)
    """Other servers that its mirrors and sources copy from, by the API prefix that their `external` names."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The server's certificate; with `verify` a client needs one too, signed by `ca_file`."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None
    verify: bool = False
    timeout_s: float = 2.0
    handshake_first: bool = False
    """The handshake comes before INFO."""
    handshake_first_fallback_s: float | None = None
    """With `handshake_first`: INFO is sent in the clear after all to a client that has said nothing for so long."""
    min_version: str = "1.2"


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """A second listener, for WebSocket clients; without `tls` it is in the clear."""

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
    """Streams and consumers; -1 is as much as the machine has."""

    max_memory: int = -1
    max_storage: int = -1
    domain: str = ""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Where the log goes (standard error without a `file`) and what it tells."""

    file: Path | None = None
    debug: bool = False
    trace: bool = False
    timestamps: bool = True
    utc: bool = False
    size_limit: int = 0
    traced_bytes_max: int = 0
    """How much of a message a trace shows; 0 is all of it."""
    trace_headers: bool = False
    """A trace shows the headers of a message and nothing else."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All of it. A port of 0 or -1 is one that is free; no `store_dir` is a temporary folder, gone at the end."""

    host: str = "127.0.0.1"
    port: int = 4222
    server_name: str = ""
    """Empty: its server id is its name."""
    store_dir: Path | None = None
    jetstream: JetStreamSettings | None = field(default_factory=JetStreamSettings)
    durability: Durability = SYNCED
    """When a publish is acknowledged."""
    remotes: "Mapping[str, NatsSettings]" = field(default_factory=dict)
    """Those of the global account; the other accounts have their own, as whoever uses one has its credentials."""

    accounts: tuple[AccountSettings, ...] = (AccountSettings(),)
    """Always with the one whose name is `GLOBAL_ACCOUNT`."""
    system_account: str = SYSTEM_ACCOUNT
    token: str = field(default="", repr=False)
    """Who knows it may connect, to the global account; plain or a bcrypt hash."""
    no_auth_user: str = ""
    """The user that a client without credentials is taken for."""
    auth_timeout_s: float = 2.0
    tls: TlsSettings | None = None
    allow_non_tls: bool = False
    """With `tls`: clients may do without it."""
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
    """Empty: that of clients."""
    http_port: int | None = None
    """Where the monitoring endpoints are; None for nowhere."""
    http_base_path: str = ""
    max_closed_clients: int = 10_000
    """How many ended connections `/connz` remembers."""
    pid_file: Path | None = None
    ports_file_dir: Path | None = None
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        """Refuse what cannot work, whoever asked for it."""
        check_port("port", self.port)
        check_port("http_port", self.http_port or 0)
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
        if self.no_auth_user and self.no_auth_user not in users:
            raise InvalidInput(
                f"no_auth_user: {self.no_auth_user!r} not present as user or nkey in authorization block or account"
            )

    def remotes_of(self, account: AccountSettings) -> "Mapping[str, NatsSettings]":
        """Return the other servers that mirrors and sources of an account may copy from."""
        return {**self.remotes, **account.remotes} if account.name == GLOBAL_ACCOUNT else account.remotes


def format_address(scheme: str, host: str, port: int) -> str:
    """Return the address at which this machine's clients reach a listener, also one that listens everywhere."""
    reached = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - compared, not bound
    return f"{scheme}://{f'[{reached}]' if ':' in reached else reached}:{port}"


def check_port(name: str, port: int) -> None:
    """Raise `InvalidInput` for a number that is no port, nor 0 or -1 for a free one."""
    if not -1 <= port <= PORT_MAX:
        raise InvalidInput(f"{name} must be at most {PORT_MAX}, or -1 for a free one, not {port}")
