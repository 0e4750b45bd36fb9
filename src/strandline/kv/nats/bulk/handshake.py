"""The first lines of a connection: what INFO says of the server, and what CONNECT says of us.

Invariants: pure. The CONNECT line is the only place where a secret is written, and no error quotes it.
"""

import json
from dataclasses import dataclass
from typing import Any

from strandline.errors import FormatError
from strandline.kv.nats.logins import Login
from strandline.wire import format_connect

PAYLOAD_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself when somebody connects."""

    server_id: str = ""
    version: str = ""
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    nonce: str = ""
    tls_required: bool = False
    tls_available: bool = False
    auth_required: bool = False
    headers: bool = False
    jetstream: bool = False
    is_leaving: bool = False
    """Whether it asks its clients to go elsewhere, because it is about to stop."""


def parse_info(payload: bytes) -> ServerInfo:
    """Return what an INFO line tells; `FormatError` if it is not the JSON of an object."""
    try:
        told: dict[str, Any] = json.loads(payload)
        return ServerInfo(
            server_id=str(told.get("server_id", "")),
            version=str(told.get("version", "")),
            payload_bytes_max=int(told.get("max_payload", PAYLOAD_BYTES_MAX)),
            nonce=str(told.get("nonce", "")),
            tls_required=bool(told.get("tls_required", False)),
            tls_available=bool(told.get("tls_available", False)),
            auth_required=bool(told.get("auth_required", False)),
            headers=bool(told.get("headers", False)),
            jetstream=bool(told.get("jetstream", False)),
            is_leaving=bool(told.get("ldm", False)),
        )
    except (ValueError, TypeError, AttributeError):
        raise FormatError("NATS protocol", "the server's INFO is not the JSON of an object") from None


def format_login(info: ServerInfo, login: Login, *, name: str, tls: bool) -> bytes:
    """Return the CONNECT line of a login; a server that gives nothing to sign wants no signature."""
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "strandline",
        "name": name,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
        "tls_required": tls,
    }
    if login.signs:
        options |= {"sig": login.signature(info.nonce)} if info.nonce else {}
        options |= {"jwt": login.jwt} if login.jwt else {"nkey": login.public_key}
    elif login.token:
        options["auth_token"] = login.token
    elif login.user or login.password:
        options |= {"user": login.user, "pass": login.password}
    return format_connect(options)
