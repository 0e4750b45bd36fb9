"""The options of a CONNECT frame.

Invariants: JSON is read as Go reads it. Field names are case-insensitive, the last of repeated fields counts, invalid
UTF-8 and lone surrogates become U+FFFD, and a value of another type makes the whole frame invalid.
"""

import json
import re
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The fields in use, by their protocol names; the defaults hold before CONNECT and for `{}`."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    pass_: str = ""
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    jwt: str = ""
    account: str = ""
    new_account: bool = False


_TYPES: dict[str, Any] = {field.name.rstrip("_"): field.type for field in fields(ConnectOptions)} | {
    "tls_required": bool,
    "remote_account": str,
    "proxy_sig": str,
}
"""The types of all known fields: nats-server refuses a frame in which one has another type."""
_HALF = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_INT_MAX = 1 << 63


class _Fields(list[tuple[str, Any]]):
    """A JSON object as a list of pairs."""


def parse_connect(text: bytes, before: ConnectOptions) -> ConnectOptions | None:
    """Return the options of a CONNECT, over those of the previous one; None where nats-server fails to parse it."""
    try:
        given = json.loads(text.decode(errors="replace"), object_pairs_hook=_Fields, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, _Fields):
        return None
    changes: dict[str, Any] = {}
    for key, value in given:
        name = key.lower()
        wanted = _TYPES.get(name)
        if wanted is None or value is None:
            continue
        if type(value) is not wanted or (wanted is int and not -_INT_MAX <= value < _INT_MAX):
            return None
        changes[name] = _HALF.sub(_REPLACEMENT, value) if wanted is str else value
    if "pass" in changes:
        changes["pass_"] = changes.pop("pass")
    own = {field.name for field in fields(ConnectOptions)}
    return replace(before, **{name: value for name, value in changes.items() if name in own})


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(constant)
