"""Providers: the one read-only request that each is asked, the rules whose secrets it takes, and what answers mean.

Invariants: a request changes nothing at the provider; it is sent only for a secret of the provider's own form, whatever
the rule that found it says; a state other than `unknown` needs the documented status and a body of the documented
shape, so that a portal or a proxy that answers for everything decides nothing. Reasons are our words, never the
answer's.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from strandline.detect.revealed import Revealed
from strandline.pipeline.verifications import Liveness
from strandline.verify.aws_signature import signed_headers
from strandline.verify.credentials import Credential, Partner, matches_near, pair
from strandline.verify.http_client import Answer, Request
from strandline.version import __version__

_USER_AGENT = f"strandline/{__version__}"
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403

Body = Mapping[str, Any]
Check = Callable[[Body], bool]
Headers = Callable[[Credential], Mapping[str, str]]


class Judged(NamedTuple):
    """What an answer means; `is_answer` unless the provider said nothing about the secret."""

    state: Liveness
    reason: str
    is_answer: bool = True


def unanswered(reason: str) -> Judged:
    """Return the meaning of no answer."""
    return Judged(Liveness.UNKNOWN, reason, is_answer=False)


def _never(_: Body) -> bool:
    """No body means this."""
    return False


def _always(_: Body) -> bool:
    """Any object means this, under the status for it."""
    return True


def _has(*names: str) -> Check:
    return lambda body: all(name in body for name in names)


def _bearer(credential: Credential) -> Mapping[str, str]:
    """Give the secret as a bearer token."""
    return {"Authorization": f"Bearer {credential.text}"}


def _basic(credential: Credential) -> Mapping[str, str]:
    login = base64.b64encode(credential.partner + b":" + credential.secret).decode()
    return {"Authorization": f"Basic {login}"}


@dataclass(frozen=True)
class Provider:
    """A provider that answers in JSON; `path` is that of its request, with `{secret}` and `{partner}` in their places.

    A 200 whose body fits `is_live` means live, and so does a 403 that fits `is_limited`: the secret is known, and has
    fewer permissions. A 401 that fits `is_revoked` means revoked, and so does a 200 that fits `is_ended`.
    """

    name: str
    base: str
    path: str
    rules: tuple[str, ...]
    form: re.Pattern[bytes]
    is_live: Check
    is_revoked: Check = _always
    is_limited: Check = _never
    is_ended: Check = _never
    headers: Headers = _bearer
    partner: Partner | None = None
    sends: str = "the token, as the header Authorization"
    method: str = "GET"
    extra: Mapping[str, str] = field(default_factory=dict)

    def credential(self, found: Revealed) -> Credential | None:
        """Return the credential of a secret; None if its other part is not near."""
        return Credential(found.data) if self.partner is None else pair(found, self.partner)

    def missing(self) -> str:
        """Say what a secret without its other part lacks."""
        return f"no {self.partner.what if self.partner else 'other part'} stands near it"

    def request(self, base: str, credential: Credential, when: datetime) -> Request:  # noqa: ARG002 - AWS signs the time
        """Return the request at an address."""
        path = self.path.replace("{partner}", credential.partner_text).replace("{secret}", credential.text)
        headers = {"User-Agent": _USER_AGENT, "Accept": "application/json", **self.extra, **self.headers(credential)}
        return Request(self.method, base + path, headers)

    def judge(self, answer: Answer, credential: Credential) -> Judged:
        """Return what an answer means."""
        body = _object(answer.body)
        if body is not None and answer.status == _OK and self.is_live(body):
            return Judged(Liveness.LIVE, "the provider accepts it")
        if body is not None and answer.status == _FORBIDDEN and self.is_limited(body):
            return Judged(Liveness.LIVE, "the provider knows it, and it lacks permissions")
        is_refusal = {_UNAUTHORIZED: self.is_revoked, _OK: self.is_ended}.get(answer.status, _never)
        if body is not None and is_refusal(body):
            return revoked(credential)
        return unclear(answer)


def revoked(credential: Credential) -> Judged:
    """Return the meaning of a refusal: nothing for sure, if the other part of the credential may be a wrong one."""
    if credential.is_certain:
        return Judged(Liveness.REVOKED, "the provider refuses it")
    return Judged(Liveness.UNKNOWN, "refused, but several values near it could be its other part")


def unclear(answer: Answer) -> Judged:
    """Return the meaning of an answer that says nothing about the secret."""
    if 300 <= answer.status < 400:  # noqa: PLR2004 - redirects
        return unanswered(f"the host answers with a redirect ({answer.status}), which is not followed")
    what = "with something else than is documented" if answer.status in {_OK, _UNAUTHORIZED} else "neither yes nor no"
    return unanswered(f"the host answers {answer.status}, {what}")


def _object(body: bytes) -> Body | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class AwsProvider(Provider):
    """AWS: a signed `GetCallerIdentity`, which needs no permission; the secret key is not sent."""

    def credential(self, found: Revealed) -> Credential | None:
        """Return the secret key with its key id, whichever of them was found."""
        if _AWS_ID.fullmatch(found.data):
            made = pair(found, _AWS_SECRET_PARTNER)
            made = made and Credential(made.partner, found.data, made.is_certain)
        else:
            made = pair(found, _AWS_ID_PARTNER)
        if made is None or not made.partner.startswith(b"ASIA"):  # a session of another key makes a live one invalid
            return made
        sessions = list(dict.fromkeys(matches_near(found, _AWS_SESSION)))
        is_certain = made.is_certain and len(sessions) <= 1
        return replace(made, session=sessions[0] if sessions else b"", is_certain=is_certain)

    def missing(self) -> str:
        """Say what a part of a key lacks."""
        return "its access key id or its secret key does not stand near it"

    def request(self, base: str, credential: Credential, when: datetime) -> Request:
        """Return the signed request."""
        url = base + self.path
        session = credential.session.decode("ascii")
        signed = signed_headers(url, when, credential.partner_text, credential.secret, session)
        return Request(self.method, url, {"User-Agent": _USER_AGENT, **signed})

    def judge(self, answer: Answer, credential: Credential) -> Judged:
        """Return what an answer means: STS answers in XML, with a code for each error."""
        if answer.status == _OK and b"<GetCallerIdentityResult>" in answer.body:
            return Judged(Liveness.LIVE, "the provider accepts it")
        found = _AWS_CODE.search(answer.body)
        code = found[1] if found and answer.status in {400, _FORBIDDEN} else b""
        if code == b"InvalidClientTokenId" and credential.partner.startswith(b"ASIA") and not credential.session:
            return Judged(Liveness.UNKNOWN, "a temporary key, and its session token is not near")
        if code in {b"InvalidClientTokenId", b"ExpiredToken"}:
            return revoked(credential)
        if code == b"SignatureDoesNotMatch":
            return Judged(Liveness.UNKNOWN, "the key id is known, and the secret key near it is not that of this id")
        return unclear(answer)


@dataclass(frozen=True)
class CloudflareProvider(Provider):
    """Cloudflare: what it is asked is about tokens of users, and the older form is also that of tokens of accounts."""

    def judge(self, answer: Answer, credential: Credential) -> Judged:
        """Return what an answer means; a token of an account is refused here, live or not."""
        found = super().judge(answer, credential)
        is_of_user = credential.secret.startswith(_CLOUDFLARE_USER)
        if found.state is Liveness.REVOKED and answer.status == _UNAUTHORIZED and not is_of_user:
            return Judged(Liveness.UNKNOWN, "no token of a user; it may be one of an account, which is not asked about")
        return found


_CLOUDFLARE_USER = b"cfut_"
_AWS_ID = re.compile(rb"(?<![A-Z0-9])((?:AKIA|ASIA)[A-Z2-7]{16})(?![A-Z0-9])")
_AWS_ID_PARTNER = Partner("access key id", _AWS_ID, ("aws-access-key-id",))
_AWS_SECRET_PARTNER = Partner(
    "secret key", re.compile(rb"[0-9A-Za-z/+]{40}"), ("aws-secret-access-key",), in_text=False
)
_AWS_CODE = re.compile(rb"<Code>(\w+)</Code>")
_AWS_SESSION = re.compile(rb"(?i:session_?token|security_?token)[\"'\s:=>]{1,8}([A-Za-z0-9/+=]{100,2000})")
_TWILIO_SID = re.compile(rb"(?<![0-9A-Za-z])(AC[0-9a-f]{32})(?![0-9A-Za-z])")
_NOT_FOR_APPS = "not accessible by"
# Tuples: what a host answers in the place of a word need not be hashable.
_OPENAI_REVOKED = ("invalid_api_key", "account_deactivated")
_SLACK_REVOKED = ("invalid_auth", "token_revoked", "token_expired", "account_inactive")
_CLOUDFLARE_ENDED = ("disabled", "expired")


def _slack_refuses(body: Body) -> bool:
    return body.get("ok") is False and body.get("error") in _SLACK_REVOKED


def _error(body: Body) -> Body:
    found = body.get("error")
    return found if isinstance(found, dict) else {}


def _result(body: Body) -> Body:
    found = body.get("result")
    return found if isinstance(found, dict) else {}


PROVIDERS: tuple[Provider, ...] = (
    AwsProvider(
        "aws",
        "https://sts.amazonaws.com",
        "/?Action=GetCallerIdentity&Version=2011-06-15",
        ("aws-access-key-id", "aws-secret-access-key"),
        re.compile(rb"(?:AKIA|ASIA)[A-Z2-7]{16}|[0-9A-Za-z/+]{40}"),
        _never,
        partner=_AWS_ID_PARTNER,
        sends="the access key id, and a signature made with the secret key",
    ),
    Provider(
        "github",
        "https://api.github.com",
        "/user",
        (
            *("github-pat", "github-fine-grained-pat", "github-oauth-token", "github-user-token"),
            *("github-server-token", "github-stateless-server-token"),
        ),
        re.compile(rb"gh[pous]_[0-9A-Za-z_.-]{36,2000}|github_pat_[0-9A-Za-z_]{82}"),
        _has("login", "id"),
        _has("message"),
        # Tokens of apps are no users: they are known, and may not ask who they are.
        lambda body: _NOT_FOR_APPS in str(body.get("message")),
        extra={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
    ),
    Provider(
        "gitlab",
        "https://gitlab.com",
        "/api/v4/personal_access_tokens/self",
        ("gitlab-pat",),
        re.compile(rb"glpat-[\w.-]{20,100}"),
        lambda body: body.get("active") is True,
        lambda body: "message" in body or "error" in body,
        lambda body: body.get("error") == "insufficient_scope",
        lambda body: body.get("active") is False,
        headers=lambda credential: {"PRIVATE-TOKEN": credential.text},
        sends="the token, as the header PRIVATE-TOKEN",
    ),
    Provider(
        "slack",
        "https://slack.com",
        "/api/auth.test",
        ("slack-bot-token", "slack-user-token", "slack-workspace-token"),
        re.compile(rb"xox[abopr]-[0-9A-Za-z-]{20,200}"),
        lambda body: body.get("ok") is True,
        is_revoked=_slack_refuses,
        is_ended=_slack_refuses,
        method="POST",
        extra={"Content-Length": "0"},
    ),
    Provider(
        "stripe",
        "https://api.stripe.com",
        "/v1/balance",
        ("stripe-secret-key", "stripe-restricted-key", "stripe-test-key"),
        re.compile(rb"[sr]k_(?:live|test)_[0-9A-Za-z]{24,247}"),
        lambda body: body.get("object") == "balance",
        lambda body: bool(_error(body)),
        lambda body: bool(_error(body)),
    ),
    Provider(
        "npm",
        "https://registry.npmjs.org",
        "/-/whoami",
        ("npm-token",),
        re.compile(rb"npm_[0-9A-Za-z]{36}"),
        _has("username"),
    ),
    Provider(
        "sendgrid",
        "https://api.sendgrid.com",
        "/v3/scopes",
        ("sendgrid-key",),
        re.compile(rb"SG\.[\w-]{22}\.[\w-]{43}"),
        _has("scopes"),
        _has("errors"),
    ),
    Provider(
        "twilio",
        "https://api.twilio.com",
        "/2010-04-01/Accounts/{partner}.json",
        ("twilio-auth-token",),
        re.compile(rb"[0-9a-f]{32}"),
        _has("sid", "status"),
        _has("code"),
        headers=_basic,
        partner=Partner("account SID (AC…)", form=_TWILIO_SID),
        sends="the account SID and the token, as the header Authorization",
    ),
    Provider(
        "openai",
        "https://api.openai.com",
        "/v1/models",
        ("openai-key", "openai-legacy-key"),
        re.compile(rb"sk-[\w-]{40,300}"),
        lambda body: body.get("object") == "list",
        # Other errors of a 401 are about the caller: its network address, its organization.
        lambda body: _error(body).get("code") in _OPENAI_REVOKED,
        lambda body: "issing scopes" in str(_error(body).get("message", body.get("error"))),
    ),
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        "/v1/models",
        ("anthropic-api-key",),
        re.compile(rb"sk-ant-api03-[\w-]{95}"),
        _has("data"),
        lambda body: _error(body).get("type") == "authentication_error",
        lambda body: _error(body).get("type") == "permission_error",
        headers=lambda credential: {"x-api-key": credential.text},
        extra={"anthropic-version": "2023-06-01"},
        sends="the key, as the header x-api-key",
    ),
    Provider(
        "digitalocean",
        "https://api.digitalocean.com",
        "/v2/account",
        ("digitalocean-token", "digitalocean-oauth-token"),
        re.compile(rb"do[op]_v1_[0-9a-f]{64}"),
        _has("account"),
        lambda body: str(body.get("id")).lower() == "unauthorized",
        lambda body: str(body.get("id")).lower() == "forbidden",
    ),
    CloudflareProvider(
        "cloudflare",
        "https://api.cloudflare.com",
        "/client/v4/user/tokens/verify",
        ("cloudflare-api-token", "cloudflare-user-token"),
        re.compile(rb"[\w-]{40}|cfut_[0-9A-Za-z]{48}"),
        lambda body: _result(body).get("status") == "active",
        lambda body: body.get("success") is False,
        is_ended=lambda body: _result(body).get("status") in _CLOUDFLARE_ENDED,
    ),
    Provider(
        "huggingface",
        "https://huggingface.co",
        "/api/whoami-v2",
        ("huggingface-token",),
        re.compile(rb"hf_[A-Za-z]{34}"),
        _has("name"),
        _has("error"),
    ),
    Provider(
        "telegram",
        "https://api.telegram.org",
        "/bot{secret}/getMe",
        ("telegram-bot-token",),
        re.compile(rb"[0-9]{8,10}:AA[\w-]{33}"),
        lambda body: body.get("ok") is True,
        lambda body: body.get("ok") is False,
        headers=lambda _: {},
        sends="the token, in the path of the address",
    ),
    Provider(
        "discord",
        "https://discord.com",
        "/api/v10/users/@me",
        ("discord-bot-token",),
        re.compile(rb"[MNO][0-9A-Za-z_-]{23,27}\.[\w-]{6}\.[\w-]{27,38}"),
        _has("id", "username"),
        _has("message"),
        headers=lambda credential: {"Authorization": f"Bot {credential.text}"},
    ),
)

_BY_RULE = {rule: provider for provider in PROVIDERS for rule in provider.rules}


def provider_of(rule_id: str) -> Provider | None:
    """Return the provider of a rule's secrets, None if no provider is asked about them."""
    return _BY_RULE.get(rule_id)
