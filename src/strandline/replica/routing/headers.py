"""Headers that a forwarder checks, removes and adds; names are lower-case bytes.

Invariants: what is forwarded is written anew from what was parsed, with one framing; headers of the connection go no
further; a request that came by here before is refused.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.errors import InvalidInput

Headers = Sequence[tuple[bytes, bytes]]

VIA_HEADER = b"strandline-via"
EXPECT_LEADER_HEADER = b"strandline-expect-leader"
REFUSED_HEADER = b"strandline-refused"
IDEMPOTENCY_HEADER = b"idempotency-key"
HOPS_MAX = 4
_LENGTH = re.compile(rb"[0-9]{1,19}")
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# A client that lists one of these in `Connection` would have a header removed that its server relies on.
_KEPT = frozenset({b"host", b"content-length", b"cookie", b"authorization", IDEMPOTENCY_HEADER})


class Peer(NamedTuple):
    """The client of a request, as the headers `X-Forwarded-…` name it."""

    host: str
    scheme: str


def get_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the first value of a header; None where it is missing."""
    return next((value for known, value in headers if known == name), None)


def list_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the elements of a header that is a list."""
    return [item.strip() for known, value in headers if known == name for item in value.split(b",") if item.strip()]


def check_framing(headers: Headers, http_version: bytes) -> None:
    """Refuse a request whose end two readers may see in different places."""
    has_coding = get_header(headers, b"transfer-encoding") is not None
    if has_coding and get_header(headers, b"content-length") is not None:
        raise InvalidInput("the request has both Content-Length and Transfer-Encoding", hint="send one of them")
    if has_coding and http_version < b"1.1":
        raise InvalidInput(
            "the request of HTTP/1.0 has Transfer-Encoding", hint="send Content-Length, or speak HTTP/1.1"
        )


def check_length(headers: Headers) -> None:
    """Refuse a `Content-Length` that is not a number of bytes, as two servers may read it differently."""
    for name, value in headers:
        if name == b"content-length" and not _LENGTH.fullmatch(value):
            raise InvalidInput(f"Content-Length is {value[:40]!r}", hint="send the number of bytes of the body")


def body_size(headers: Headers) -> int | None:
    """Return the size of the body of a request with one framing; None where only its end tells."""
    if get_header(headers, b"transfer-encoding") is not None:
        return None
    return int(get_header(headers, b"content-length") or 0)


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return headers without those of the connection."""
    listed = {item.lower() for item in list_header(headers, b"connection")} - _KEPT
    dropped = _HOP_BY_HOP | {name for name in listed if not name.startswith((b"strandline-", b"x-forwarded-"))}
    return [(name, value) for name, value in headers if name not in dropped]


def check_hops(headers: Headers, identity: str) -> None:
    """Refuse a request that this forwarder has seen, or too many others have."""
    hops = list_header(headers, VIA_HEADER)
    if identity.encode() in hops or len(hops) >= HOPS_MAX:
        raise InvalidInput(
            "the request goes in a circle",
            hint="a node is registered under the address of a proxy; give it the address of its own server",
        )


def forwarded_headers(
    headers: Headers, peer: Peer, identity: str, *, to_leader: bool, trusts_peer: bool = True
) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as it is forwarded, without those that frame its body.

    What a peer that is not trusted says of where the request came from is dropped.
    """
    headers = [(name, value) for name, value in headers if not _is_alias(name)]
    if not trusts_peer:
        headers = [(name, value) for name, value in headers if not name.startswith((b"x-forwarded-", b"forwarded"))]
    ours = (VIA_HEADER, EXPECT_LEADER_HEADER, b"x-forwarded-for", b"content-length")
    kept = [(name, value) for name, value in end_to_end(headers) if name not in ours]
    known = {name for name, _ in kept}
    hops = [*list_header(headers, VIA_HEADER), identity.encode()]
    kept.append((VIA_HEADER, b", ".join(hops)))
    if to_leader:
        kept.append((EXPECT_LEADER_HEADER, b"1"))
    before = list_header(headers, b"x-forwarded-for")
    kept.append((b"x-forwarded-for", b", ".join([*before, peer.host.encode()])))
    if b"x-forwarded-proto" not in known:
        kept.append((b"x-forwarded-proto", peer.scheme.encode()))
    host = get_header(headers, b"host")
    if host is not None and b"x-forwarded-host" not in known:
        kept.append((b"x-forwarded-host", host))
    return kept


def _is_alias(name: bytes) -> bool:
    """Return whether a WSGI server would take a name for one of those that forwarders set."""
    return b"_" in name and name.replace(b"_", b"-").startswith((b"strandline-", b"x-forwarded-"))


def origin_form(method: bytes, target: bytes, host: bytes | None) -> bytes:
    """Return the target of a request as servers want it; `InvalidInput` for one that no server of ours answers.

    One that names another host than the header `Host` would be read in two ways.
    """
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return target
    if target.lower().startswith((b"http://", b"https://")):
        rest = target.split(b"://", 1)[1]
        authority, slash, path = rest.partition(b"/")
        if authority and authority.lower() == (host or authority).lower() and not {*b"?#@"} & {*authority}:
            return slash + path if slash else b"/"
    raise InvalidInput(f"cannot serve the target {target[:100]!r}", hint="ask for a path, such as /orders")
