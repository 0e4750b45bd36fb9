"""What a client says of itself in CONNECT."""

import json
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The fields that matter, under their names of the protocol; the defaults are those before CONNECT and in `{}`."""

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


_TYPES = {field.name: field.type for field in fields(ConnectOptions)}


def parse_connect(text: bytes, before: ConnectOptions) -> ConnectOptions | None:
    """Return the options of a CONNECT, over those of the one before; None for what nats-server does not read either."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    changes = {}
    for key, value in given.items():
        name = "pass_" if key == "pass" else key
        wanted = _TYPES.get(name)
        if wanted is None or value is None:
            continue
        if type(value) is not wanted:
            return None
        changes[name] = value
    return replace(before, **changes)
