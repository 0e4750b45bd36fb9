"""The position of a client's write, as a header and a cookie.

    Strandline-Position: 4711
    Set-Cookie: strandline-position=4711; Path=/; Max-Age=300; HttpOnly; SameSite=Lax

The number is a transaction of the replica that is in the object store and holds the write. The cookie may be `leader`
instead: the write is not in the store yet, and the client reads at the leader while the cookie lasts. Browsers send a
cookie to every port of a host: applications that share a host give the cookie names of their own (`RoutingRules`).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from strandline.errors import InvalidInput

POSITION_HEADER = b"strandline-position"
COOKIE = "strandline-position"
COOKIE_AGE_S = 300
PENDING_AGE_S = 10
"""How long a client reads at the leader after a write that was not waited for."""
_AT_LEADER = "leader"
_COOKIE_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_SECURE_PREFIXES = ("__host-", "__secure-")
_TXID = re.compile(r"[0-9]{1,19}", re.ASCII)
_TXID_MAX = 2**63 - 1


class ReadPosition(NamedTuple):
    """What a client has to see: a transaction, 0 for any; or whatever the leader has."""

    txid: int = 0
    at_leader: bool = False


def format_position(txid: int) -> bytes:
    """Return the value of the header."""
    return b"%d" % txid


def parse_position(value: str) -> int:
    """Return the transaction of a header."""
    if not _TXID.fullmatch(value) or int(value) > _TXID_MAX:
        raise InvalidInput(
            f"{value!r} is not a position", hint="send back the Strandline-Position of the answer to a write"
        )
    return int(value)


def check_cookie_name(name: str) -> None:
    """Refuse a name that a browser would not send back."""
    if not _COOKIE_NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not the name of a cookie", hint="use up to 64 letters, digits, '-' and '_'")
    if name.lower().startswith(_SECURE_PREFIXES):
        problem = f"browsers drop the cookie {name!r}: its prefix demands the attribute Secure"
        raise InvalidInput(problem, hint="use a name without the prefix")


def format_cookie(txid: int | None, name: str = COOKIE) -> bytes:
    """Return the value of `Set-Cookie` for a transaction, or for a write that is not in the store yet."""
    value, age_s = (_AT_LEADER, PENDING_AGE_S) if txid is None else (str(txid), COOKIE_AGE_S)
    return f"{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax".encode()


def parse_cookies(value: str, cookie: str = COOKIE) -> ReadPosition:
    """Return what the header `Cookie` asks for; a cookie that is not of this form asks for nothing."""
    wanted = ReadPosition()
    for pair in value.split(";"):
        name, _, given = pair.strip().partition("=")
        if name != cookie:
            continue
        if given == _AT_LEADER:
            wanted = wanted._replace(at_leader=True)
        elif _TXID.fullmatch(given) and int(given) <= _TXID_MAX:
            wanted = wanted._replace(txid=max(wanted.txid, int(given)))
    return wanted


def wanted_position(headers: Iterable[tuple[bytes, bytes]], cookie: str = COOKIE) -> ReadPosition:
    """Return what a request has to see; `InvalidInput` for a header that is no position."""
    wanted = ReadPosition()
    for name, value in headers:
        if name == POSITION_HEADER:
            wanted = wanted._replace(txid=max(wanted.txid, parse_position(value.decode("latin-1").strip())))
        elif name == b"cookie" and cookie.encode() in value:
            found = parse_cookies(value.decode("latin-1"), cookie)
            wanted = ReadPosition(max(wanted.txid, found.txid), wanted.at_leader or found.at_leader)
    return wanted
