"""The guard before every page: it decides by `Access`, and no page is reached without it.

    /healthz, /readyz      no token is asked for: they say "ok", and nothing of what is kept
    everything else        the site's own name in `Host`, and the token (once, in the address), its cookie, or a bearer
    anything but GET       changes allowed, an origin of this site, and the CSRF value in the form or in a header

Invariants: a request that is refused reaches no page; every answer has the headers that keep a browser from running,
framing, caching or leaking what it shows; a token in an address is answered by a cookie and an address without it.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from strandline.extras import needs
from strandline.web.access import Access

with needs("web"):
    from starlette.datastructures import Headers
    from starlette.requests import cookie_parser
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
READING = frozenset({"GET", "HEAD"})
BODY_BYTES_MAX = 4 * 1024 * 1024
FIELDS_MAX = 20_000
CSRF_HEADER, CSRF_FIELD = "x-strandline-csrf", "csrf"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # `no-referrer` would hide the origin of our own forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    text: str


NO_TOKEN = Refusal(401, "This page needs its token: open the address that `strandline ui` printed.\n")
WRONG_TOKEN = Refusal(401, "The token is wrong: open the address that `strandline ui` printed last.\n")
FOREIGN_HOST = Refusal(403, "This server does not answer to this name.\n")
READ_ONLY = Refusal(403, "Changes are off: start `strandline ui` with --allow-changes.\n")
CROSS_SITE = Refusal(403, "This change was sent by a page of another site.\n")
NO_CSRF = Refusal(403, "This change lacks the value that pages of this site send along: load the page again.\n")
TOO_LARGE = Refusal(413, "The form is too large.\n")
BAD_METHOD = Refusal(405, "Only GET, HEAD and POST are known here.\n")


class Guard:
    """The outermost application: it refuses, or passes on to the pages."""

    def __init__(self, pages: ASGIApp, access: Access) -> None:
        self._pages = pages
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._pages(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websocket is offered
        sending = _with_headers(send)
        scope = {**scope, "path": self._without_prefix(scope["path"]), "root_path": ""}
        if scope["path"] in OPEN_PATHS and scope["method"] in READING:
            await self._pages(scope, receive, sending)
            return
        headers = Headers(scope=scope)
        if self._access.is_for_us(headers) and self._entered(scope):
            await self._enter(scope, sending)
            return
        refusal = self._refusal(scope, headers)
        if refusal is None and scope["method"] == "POST":
            body = await _read_body(receive)
            refusal = TOO_LARGE if body is None else self._forged(headers, body)
            receive = _replayed(body or b"", receive)
        if refusal is not None:
            await _answer(sending, refusal)
            return
        await self._pages(scope, receive, sending)

    def _without_prefix(self, path: str) -> str:
        prefix = self._access.prefix
        return (path[len(prefix) :] or "/") if prefix and (path + "/").startswith(prefix + "/") else path

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> Refusal | None:
        if not self._access.is_for_us(headers):
            return FOREIGN_HOST
        if _token_of(scope) is not None:
            return WRONG_TOKEN
        if not self._is_known(headers):
            return NO_TOKEN
        return None if scope["method"] in READING else self._refused_change(scope, headers)

    def _refused_change(self, scope: Scope, headers: Mapping[str, str]) -> Refusal | None:
        if scope["method"] != "POST":
            return BAD_METHOD
        if not self._access.is_from_us(headers):
            return CROSS_SITE
        return None if self._access.allow_changes else READ_ONLY

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._access.is_token(bearer.strip())
        cookies = cookie_parser(headers.get("cookie", ""))  # `http.cookies` drops all where one of another site is odd
        return self._access.is_cookie(cookies.get(self._access.cookie_name, ""))

    def _entered(self, scope: Scope) -> bool:
        """Return whether the address has the right token."""
        token = _token_of(scope)
        return scope["method"] in READING and token is not None and self._access.is_token(token)

    async def _enter(self, scope: Scope, send: Send) -> None:
        """Give the browser its cookie, and an address without the token."""
        rest = [pair for pair in parse_qsl(scope["query_string"].decode("latin-1")) if pair[0] != "token"]
        path = "/" + scope["path"].lstrip("/\\")  # two slashes would name another host
        place = self._access.prefix + quote(path) + (f"?{urlencode(rest)}" if rest else "")
        secure = "; Secure" if self._access.is_secure else ""
        where = self._access.prefix or "/"
        cookie = f"{self._access.cookie_name}={self._access.cookie}; Path={where}; HttpOnly; SameSite=Strict{secure}"
        headers = [(b"location", place.encode()), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _forged(self, headers: Mapping[str, str], body: bytes) -> Refusal | None:
        given = headers.get(CSRF_HEADER)
        if given is None:
            try:
                fields = parse_qs(body.decode("latin-1"), max_num_fields=FIELDS_MAX)
            except ValueError:
                return TOO_LARGE
            given = fields.get(CSRF_FIELD, [""])[0]
        return None if self._access.is_csrf(given) else NO_CSRF


def _token_of(scope: Scope) -> str | None:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)).get("token")


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            named = {name.lower() for name, _ in given}
            kept = [] if b"cache-control" in named else [(b"cache-control", b"no-store")]
            message = {**message, "headers": [*given, *HEADERS, *kept]}
        await send(message)

    return sending


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body; None for one that is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a stream that gives a body which was read, and then what comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _answer(send: Send, refusal: Refusal) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if refusal.status == NO_TOKEN.status:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.text.encode()})
