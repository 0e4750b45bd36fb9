"""Listeners: the blocks `tls`, `websocket`, `http` and `leafnodes`.

Invariants: a certificate needs its key; a WebSocket listener must state whether it uses TLS; leaf nodes are not
supported, and a block with port -1 (as test suites write it) is only noted.
"""

from typing import Any

from strandline.broker.settings.errors import NotServed
from strandline.broker.settings.model import TlsSettings, WebsocketSettings
from strandline.broker.settings.syntax import Value
from strandline.broker.settings.values import (
    SERVED_ELSEWHERE,
    Fields,
    Table,
    address,
    duration_s,
    entries,
    integer,
    not_served,
    nothing,
    path,
    read_block,
    refuse,
    seconds,
    text,
    texts,
    to,
    truth,
)

HANDSHAKE_FALLBACK_S = 0.05
FREE_PORTS = (0, -1)


def listen(value: Value) -> Fields:
    """Read the client address; without a host, all interfaces."""
    host, port = address(value)
    return {"port": port, **({"host": host} if host else {})}


def http(value: Value) -> Fields:
    """Read the monitoring address."""
    host, port = address(value)
    return {"http_port": port, **({"http_host": host} if host else {})}


def _handshake_first(value: Value) -> Fields:
    match value.content:
        case bool(content):
            return {"handshake_first": content}
        case "auto":
            return {"handshake_first": True, "handshake_first_fallback_s": HANDSHAKE_FALLBACK_S}
        case _:
            return {"handshake_first": True, "handshake_first_fallback_s": duration_s(value)}


def _min_version(value: Value) -> str:
    version = text(value)
    if version not in ("1.2", "1.3"):
        raise refuse(value, f"min_version must be '1.2' or '1.3', not {version!r}")
    return version


TLS: Table = {
    "cert_file": to("cert_file", path),
    "key_file": to("key_file", path),
    "ca_file": to("ca_file", path),
    "verify": to("verify", truth),
    "timeout": to("timeout_s", seconds),
    **dict.fromkeys(("handshake_first", "first", "immediate"), _handshake_first),
    "min_version": to("min_version", _min_version),
    **dict.fromkeys(("insecure", "allow_insecure_cipher_suites"), nothing),
    "verify_and_map": not_served("users by their certificates (verify_and_map) are not served"),
    "verify_cert_and_check_known_urls": not_served("known URLs of certificates are not served"),
    **dict.fromkeys(("cipher_suites", "curve_preferences"), not_served("a choice of ciphers or curves is not served")),
    "pinned_certs": not_served("pinned certificates are not served"),
    "connection_rate_limit": not_served("a limit of the rate of connections is not served"),
    "certs": not_served("several certificates are not served"),
    "ocsp_peer": not_served("OCSP is not served"),
    **dict.fromkeys(
        ("cert_store", "cert_match", "cert_match_by", "cert_match_skip_invalid", "ca_certs_match"),
        not_served("stores of certificates are not served"),
    ),
}


def tls(value: Value) -> TlsSettings:
    """Read a TLS block."""
    fields = read_block(entries(value), TLS)
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if fields.get(one) is None:
            found = f"missing '{one}' in TLS configuration" if fields.get(other) else "TLS needs cert_file and key_file"
            raise refuse(value, found)
    for name in ("cert_file", "key_file", "ca_file"):
        if fields.get(name) is not None and not fields[name].is_file():
            raise refuse(value, f"{name}: no such file: {str(fields[name])!r}")
    return TlsSettings(**fields)


WEBSOCKET: Table = {
    "listen": listen,
    "port": to("port", integer),
    **dict.fromkeys(("host", "net"), to("host", text)),
    "no_tls": to("no_tls", truth),
    "tls": to("tls", tls),
    "same_origin": to("same_origin", truth),
    **dict.fromkeys(
        ("allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin"),
        to("allowed_origins", texts),
    ),
    **dict.fromkeys(("compression", "compress"), to("compression", truth)),
    "handshake_timeout": to("handshake_timeout_s", seconds),
    "no_auth_user": to("no_auth_user", text),
    **dict.fromkeys(("advertise", "headers", "ping_interval"), nothing),
    **dict.fromkeys(
        ("jwt_cookie", "user_cookie", "pass_cookie", "token_cookie"),
        not_served("credentials in cookies are not served"),
    ),
    **dict.fromkeys(
        ("authorization", "authentication"),
        not_served("an authorization of the WebSocket listener's own is not served"),
    ),
}


def websocket(value: Value) -> WebsocketSettings | None:
    """Read the WebSocket listener; None without a port."""
    fields: dict[str, Any] = {"host": "0.0.0.0", **read_block(entries(value), WEBSOCKET)}  # noqa: S104 - as nats-server
    if not fields.get("port"):
        return None
    if not fields.pop("no_tls", False) and fields.get("tls") is None:
        raise refuse(value, "websocket requires TLS configuration, or no_tls: true")
    return WebsocketSettings(**fields)


LEAFNODES: Table = {
    "listen": to("port", lambda value: address(value)[1]),
    "port": to("port", integer),
    **dict.fromkeys(("host", "net"), nothing),
}


def leafnodes(value: Value) -> Fields:
    """Read a leaf node block, which is refused or noted."""
    block = entries(value)
    if all(name.lower() in LEAFNODES for name in block) and read_block(block, LEAFNODES).get("port", 0) in FREE_PORTS:
        return {"notes": (f"{value.place}: leaf nodes are not served: the listener is ignored",)}
    raise NotServed([f"{value.place}: leaf nodes are not served"], hint=SERVED_ELSEWHERE)
