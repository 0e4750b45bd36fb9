"""What answers of providers mean."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from strandline.detect import load_builtin
from strandline.pipeline.verifications import Liveness
from strandline.verify import PROVIDERS, Provider, provider_of
from strandline.verify.credentials import Credential
from strandline.verify.http_client import Answer
from tests.verify.provider_server import LIMITED, LIVE, REVOKED

by_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda one: one.name)
CREDENTIAL = Credential(b"cfut_a", b"AKIA")


def judged(provider: Provider, status: int, body: object, credential: Credential = CREDENTIAL) -> Liveness:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return provider.judge(Answer(status, {}, data), credential).state


@by_provider
def test_documented_answers_are_understood(provider: Provider) -> None:
    assert judged(provider, 200, LIVE[provider.name]) is Liveness.LIVE
    assert judged(provider, *REVOKED[provider.name]) is Liveness.REVOKED
    if provider.name in LIMITED:
        assert judged(provider, 403, LIMITED[provider.name]) is Liveness.LIVE


@by_provider
def test_an_answer_of_another_shape_decides_nothing(provider: Provider) -> None:
    for status in (200, 204, 301, 302, 400, 401, 403, 404, 407, 429, 500, 503):
        for body in ("", "<html>log in</html>", "[]", "null", '"ok"', "{", "[" * 100_000):
            assert judged(provider, status, body) is Liveness.UNKNOWN, (status, body[:20])
    odd: dict[str, object] = {
        name: [] for name in ("ok", "error", "result", "status", "code", "message", "id", "active")
    }
    nested: list[dict[str, object]] = [{"error": {"code": [], "type": {}}}, {"result": {"status": []}}]
    for one in (odd, {"ok": False, "error": []}, *nested):
        assert judged(provider, 200, one) is not Liveness.REVOKED


@by_provider
def test_a_refusal_has_the_documented_status(provider: Provider) -> None:
    status, body = REVOKED[provider.name]
    for other in {200, 401, 403} - {status}:
        if (provider.name, other) not in {("slack", 401), ("stripe", 403)}:  # of Stripe, a key that is known
            assert judged(provider, other, body) is Liveness.UNKNOWN, other


def test_tokens_that_were_ended_are_revoked() -> None:
    known = {one.name: one for one in PROVIDERS}
    assert judged(known["gitlab"], 200, {"active": False, "revoked": True}) is Liveness.REVOKED
    assert judged(known["cloudflare"], 200, {"success": True, "result": {"status": "expired"}}) is Liveness.REVOKED


def test_a_refusal_of_the_caller_says_nothing_about_the_secret() -> None:
    known = {one.name: one for one in PROVIDERS}
    refused = {"error": {"message": "Your IP is not authorized", "code": "ip_not_authorized"}}
    assert judged(known["openai"], 401, refused) is Liveness.UNKNOWN
    # The older form of a token is also that of an account's, which this request does not know.
    of_account = Credential(b"x" * 40)
    assert judged(known["cloudflare"], *REVOKED["cloudflare"], of_account) is Liveness.UNKNOWN
    assert judged(known["cloudflare"], 200, LIVE["cloudflare"], of_account) is Liveness.LIVE


@by_provider
def test_an_answer_of_a_host_in_trouble_decides_nothing(provider: Provider) -> None:
    for status in (400, 404, 429, 500, 502, 503):
        if (status, provider.name) != (400, "aws"):  # STS has codes under it too
            assert judged(provider, status, REVOKED[provider.name][1]) is Liveness.UNKNOWN
            assert judged(provider, status, LIVE[provider.name]) is Liveness.UNKNOWN


@by_provider
def test_a_refusal_is_unknown_if_the_other_part_may_be_a_wrong_one(provider: Provider) -> None:
    doubtful = Credential(b"a", b"AKIA", is_certain=False)
    assert judged(provider, *REVOKED[provider.name], doubtful) is Liveness.UNKNOWN


def test_a_temporary_key_without_its_session_is_unknown() -> None:
    aws = PROVIDERS[0]
    assert judged(aws, *REVOKED["aws"], Credential(b"a", b"ASIA")) is Liveness.UNKNOWN
    assert judged(aws, *REVOKED["aws"], Credential(b"a", b"ASIA", session=b"s")) is Liveness.REVOKED


@by_provider
def test_every_rule_of_a_provider_is_there_and_is_its_own(provider: Provider) -> None:
    known = load_builtin().by_id
    for rule in provider.rules:
        assert f"provider:{provider.name}" in known[rule].tags
        assert provider_of(rule) is provider


@by_provider
def test_neither_requests_nor_credentials_show_what_they_hold(provider: Provider) -> None:
    credential = Credential(b"hidden-one", b"hidden-two", session=b"hidden-three")
    request = provider.request(provider.base, credential, datetime(2030, 1, 1, tzinfo=UTC))
    assert "hidden" not in f"{credential!r} {request!r} {Answer(200, {'a': 'hidden'}, b'hidden')!r}"
    assert request.method in {"GET", "POST"}
    assert request.url.startswith("https://")


def test_the_documentation_lists_every_request() -> None:
    page = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
    for one in PROVIDERS:
        assert f"| `{one.name}` | `{one.method} {one.base}{one.path}` | {one.sends} |" in page
