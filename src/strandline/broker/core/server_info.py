"""The identity and limits of a server, and its INFO frame."""

import secrets
from base64 import b32encode, urlsafe_b64encode
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.broker.settings import ServerSettings
from strandline.clock import NS_PER_S
from strandline.wire import WireLimits, format_info

SERVER_VERSION = "2.15.1"
"""The nats-server version whose behaviour this is; clients read it to know the available features."""

API_LEVEL = 5
FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
"""The defaults of nats-server."""
GIT_COMMIT = "strandline"
GO_VERSION = "none"
"""Clients expect the field and ignore its value."""

NONCE_BYTES = 11


def new_server_id() -> str:
    """Return an id in nats-server's form: 56 characters, N first."""
    return "N" + b32encode(secrets.token_bytes(35)).decode()[:55]


def new_nonce() -> str:
    """Return a fresh nonce for an nkey signature."""
    return urlsafe_b64encode(secrets.token_bytes(NONCE_BYTES)).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What sessions need from their server; a limit of None means unlimited."""

    server_id: str = field(default_factory=new_server_id)
    server_name: str = ""
    system_account: str = "$SYS"
    host: str = "127.0.0.1"
    port: int = 4222
    jetstream: bool = True
    domain: str = ""
    max_payload: int = 1 << 20
    max_control_line: int = 4096
    max_pending: int = 64 << 20
    max_subscriptions: int | None = None
    max_subscription_tokens: int | None = None
    ping_interval_ns: int = 120 * NS_PER_S
    ping_max: int = 2
    auth_timeout_ns: int = 2 * NS_PER_S
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    tls_verify: bool = False

    @property
    def wire_limits(self) -> WireLimits:
        """Return the limits of the frame parser."""
        return WireLimits(payload_bytes_max=self.max_payload, line_bytes_max=self.max_control_line)

    def format_info(self, client_id: int, client_ip: str, **more: Any) -> bytes:  # noqa: ANN401 - any field of INFO
        """Return the INFO frame for one client; `more` are extra fields, and false fields are left out."""
        optional = {
            "auth_required": more.pop("auth_required", self.auth_required),
            "tls_required": self.tls_required,
            "tls_verify": self.tls_verify,
            "tls_available": self.tls_available,
            "max_payload": self.max_payload,
            "jetstream": self.jetstream,
            "client_id": client_id,
            "client_ip": client_ip,
            "nonce": more.pop("nonce", ""),
            "domain": self.domain,
            **more,
            "api_lvl": API_LEVEL,
        }
        frame = format_info(
            {
                "server_id": self.server_id,
                "server_name": self.server_name or self.server_id,
                "version": SERVER_VERSION,
                "proto": 1,
                "git_commit": GIT_COMMIT,
                "go": GO_VERSION,
                "host": self.host,
                "port": self.port,
                "headers": True,
                **{key: value for key, value in optional.items() if value},
            }
        )
        return frame[:-2] + b" \r\n"  # as nats-server sends it


def make_server_info(settings: ServerSettings, *, auth_required: bool, port: int | None = None) -> ServerInfo:
    """Return the info of a server with these settings that listens on a port."""
    tls = settings.tls is not None
    server_info = ServerInfo(
        server_name=settings.server_name,
        system_account=settings.system_account,
        host=settings.host,
        port=settings.port if port is None else port,
        jetstream=settings.jetstream is not None,
        domain=settings.jetstream.domain if settings.jetstream is not None else "",
        max_payload=settings.max_payload,
        max_control_line=settings.max_control_line,
        max_pending=settings.max_pending,
        max_subscriptions=settings.max_subscriptions,
        max_subscription_tokens=settings.max_subscription_tokens,
        ping_interval_ns=int(settings.ping_interval_s * NS_PER_S),
        ping_max=settings.ping_max,
        auth_timeout_ns=int(settings.auth_timeout_s * NS_PER_S),
        auth_required=auth_required,
    )
    if settings.tls is None:
        return server_info
    return replace(
        server_info,
        tls_required=tls and not settings.allow_non_tls,
        tls_available=settings.allow_non_tls,
        tls_verify=settings.tls.verify,
    )
