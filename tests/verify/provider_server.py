"""A server on this machine that speaks the documented answers of every provider, and misbehaves when told to."""

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from strandline.detect import expand
from strandline.verify import PROVIDERS, Addresses
from strandline.verify.aws_signature import signed_headers

_STS = "<ErrorResponse><Error><Type>Sender</Type><Code>{}</Code><Message>no</Message></Error></ErrorResponse>"
LIVE: Mapping[str, object] = {
    "aws": "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::1:user/a</Arn>"
    "</GetCallerIdentityResult></GetCallerIdentityResponse>",
    "github": {"login": "octocat", "id": 1},
    "gitlab": {"id": 4, "name": "t", "revoked": False, "active": True, "scopes": ["api"]},
    "slack": {"ok": True, "url": "https://x.slack.com/", "team": "x", "user": "bot"},
    "stripe": {"object": "balance", "available": []},
    "npm": {"username": "npmer"},
    "sendgrid": {"scopes": ["mail.send"]},
    "twilio": {"sid": "AC0", "status": "active"},
    "openai": {"object": "list", "data": []},
    "anthropic": {"data": [], "has_more": False},
    "digitalocean": {"account": {"status": "active"}},
    "cloudflare": {"success": True, "result": {"id": "1", "status": "active"}},
    "huggingface": {"type": "user", "name": "hugger"},
    "telegram": {"ok": True, "result": {"id": 1, "is_bot": True}},
    "discord": {"id": "1", "username": "bot"},
}
REVOKED: Mapping[str, tuple[int, object]] = {
    "aws": (403, _STS.format("InvalidClientTokenId")),
    "github": (401, {"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest"}),
    "gitlab": (401, {"message": "401 Unauthorized"}),
    "slack": (200, {"ok": False, "error": "invalid_auth"}),
    "stripe": (401, {"error": {"message": "Invalid API Key provided", "type": "invalid_request_error"}}),
    "npm": (401, {}),
    "sendgrid": (401, {"errors": [{"field": None, "message": "authorization required"}]}),
    "twilio": (401, {"code": 20003, "message": "Authenticate", "status": 401}),
    "openai": (401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}),
    "anthropic": (401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
    "digitalocean": (401, {"id": "Unauthorized", "message": "Unable to authenticate you"}),
    "cloudflare": (401, {"success": False, "errors": [{"code": 1000, "message": "Invalid API Token"}]}),
    "huggingface": (401, {"error": "Invalid username or password."}),
    "telegram": (401, {"ok": False, "error_code": 401, "description": "Unauthorized"}),
    "discord": (401, {"message": "401: Unauthorized", "code": 0}),
}
LIMITED: Mapping[str, object] = {
    "github": {"message": "Resource not accessible by integration"},
    "gitlab": {"error": "insufficient_scope", "scope": "api"},
    "stripe": {"error": {"message": "The provided key does not have the required permissions"}},
    "openai": {"error": {"message": "You have insufficient permissions. Missing scopes: api.model.read"}},
    "anthropic": {"type": "error", "error": {"type": "permission_error", "message": "no"}},
    "digitalocean": {"id": "forbidden", "message": "You are not authorized to perform this operation"},
}
"""Bodies of a 403 to a secret that is known, and has fewer permissions."""

EXAMPLES: Mapping[str, str] = {
    "aws": "aws_access_key_id = {{aws-key-id:AKIA}}\naws_secret_access_key = {{base64:40}}",
    "github": "GITHUB_TOKEN={{github-crc32:ghp_}}",
    "gitlab": "GITLAB_TOKEN=glpat-{{base64url:20}}",
    "slack": "SLACK_BOT_TOKEN=xoxb-{{digits:12}}-{{digits:13}}-{{base62:24}}",
    "stripe": 'Stripe.api_key = "sk_live_{{base62:24}}"',
    "npm": "NPM_TOKEN={{github-crc32:npm_}}",
    "sendgrid": "SENDGRID_API_KEY=SG.{{base64url:22}}.{{base64url:43}}",
    "twilio": "TWILIO_ACCOUNT_SID=AC{{hex:32}}\nTWILIO_AUTH_TOKEN={{hex:32}}",
    "openai": "OPENAI_API_KEY=sk-proj-{{base64url:74}}T3BlbkFJ{{base64url:74}}",
    "anthropic": "ANTHROPIC_API_KEY=sk-ant-api03-{{base64url:93}}AA",
    "digitalocean": "export DIGITALOCEAN_TOKEN=dop_v1_{{hex:64}}",
    "cloudflare": "CLOUDFLARE_API_TOKEN=cfut_{{base62:40}}{{hex:8}}",
    "huggingface": "export HF_TOKEN=hf_{{letters:34}}",
    "telegram": "TELEGRAM_TOKEN={{digits:9}}1:AA{{base64url:33}}",
    "discord": "DISCORD_TOKEN={{discord:}}",
}
"""Texts with a secret of each provider, as they stand in files; the secret is the last word."""


def example(provider: str, seed: str) -> tuple[str, str]:
    """Return a text with a secret of a provider, and the secret."""
    text = expand(EXAMPLES[provider], seed)
    return text + "\n", re.split(r'[="\s]+', text.rstrip('"'))[-1]


@dataclass
class ProviderServer:
    """The server; `live` and `limited` are secrets, `modes` what it does for a provider, whatever it is asked."""

    port: int
    live: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    modes: dict[str, list[str]] = field(default_factory=dict)
    """For each provider: how to misbehave at the next requests; the last one stays."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Provider, method and path of each request, without its prefix."""
    hanging: threading.Event = field(default_factory=threading.Event)

    @property
    def addresses(self) -> Addresses:
        """The addresses that lead here."""
        return Addresses({one.name: f"http://127.0.0.1:{self.port}/{one.name}" for one in PROVIDERS})

    @property
    def options(self) -> list[str]:
        """The options that lead a command here."""
        return [word for name, url in self.addresses.given.items() for word in ("--verify-host", f"{name}={url}")]

    def names(self) -> list[str]:
        """Return the providers that were asked, in order."""
        return [name for name, _, _ in self.asked]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:  # noqa: C901 - one for each mode
        """Answer a request."""
        _, name, rest = handler.path.split("/", 2)
        self.asked.append((name, handler.command, f"/{rest}"))
        modes = self.modes.get(name, ["documented"])
        mode = modes.pop(0) if len(modes) > 1 else modes[0]
        match mode:
            case "documented":
                self._documented(handler, name, rest)
            case "429":
                _send(handler, 429, {"message": "slow down"}, {"Retry-After": "7"})
            case "500":
                _send(handler, 500, {"message": "Server Error"})
            case "403":
                _send(handler, 403, {"message": "who knows"})
            case "garbage":
                handler.wfile.write(b"\0\1\2 this is no HTTP\r\n\r\n")
            case "portal":
                _send(handler, 200, "<html><form>Please log in to the hotel's network</form></html>")
            case "portal 401":
                _send(handler, 401, "<html>log in</html>")
            case "redirect":
                _send(handler, 302, {}, {"Location": f"http://127.0.0.1:{self.port}/elsewhere/x"})
            case "drip":
                while not self.hanging.wait(0.02):
                    handler.wfile.write(b"H")
            case "hang":
                self.hanging.wait()
            case _:
                raise AssertionError(mode)

    def _documented(self, handler: BaseHTTPRequestHandler, name: str, rest: str) -> None:
        given = self._given(handler, name, rest)
        if given in self.live:
            _send(handler, 200, LIVE[name])
        elif given in self.limited:
            _send(handler, 403, LIMITED[name])
        elif name == "aws" and given == "wrong signature":
            _send(handler, 403, _STS.format("SignatureDoesNotMatch"))
        else:
            _send(handler, *REVOKED[name])

    def _given(  # noqa: PLR0911 - one for each way to give a secret
        self, handler: BaseHTTPRequestHandler, name: str, rest: str
    ) -> str:
        """Return the secret that a request gives."""
        login = handler.headers.get("Authorization", "")
        match name:
            case "aws":
                return self._signer(handler, login)
            case "gitlab":
                return handler.headers["PRIVATE-TOKEN"]
            case "anthropic":
                return handler.headers["x-api-key"] if handler.headers["anthropic-version"] else ""
            case "telegram":
                return rest.removeprefix("bot").partition("/")[0]
            case "twilio":
                account, _, token = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
                return token if rest == f"2010-04-01/Accounts/{account}.json" else ""
            case "discord":
                return login.removeprefix("Bot ")
            case _:
                return login.removeprefix("Bearer ")

    def _signer(self, handler: BaseHTTPRequestHandler, login: str) -> str:
        """Return the secret key, among the live ones, that signed a request; a live one has the form `id secret`."""
        key_id = login.partition("Credential=")[2].partition("/")[0]
        when = datetime.strptime(handler.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        for pair in (one for one in self.live if one.startswith(f"{key_id} ")):
            url = f"http://127.0.0.1:{self.port}{handler.path}"
            made = signed_headers(url, when, key_id, pair.partition(" ")[2].encode())
            return pair if made["Authorization"] == login else "wrong signature"
        return key_id


def _send(handler: BaseHTTPRequestHandler, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def provider_server() -> Iterator[ProviderServer]:
    """Run a server until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(BrokenPipeError, ConnectionResetError):  # the client was told to give up
                server.answer(self)

        do_POST = do_GET  # noqa: N815 - as its base calls it

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base calls it
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = ProviderServer(http.server_address[1])
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.hanging.set()
            http.shutdown()
            thread.join()
