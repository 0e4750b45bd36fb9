"""Placeholders are told from what somebody generated."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.tokens.examples import expand
from strandline.detect.tokens.placeholders import placeholder_reason, reference_reason, word_reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"xxxxxxxx", "too few different characters"),
        (b"${DB_PASSWORD}", "a template's variable"),
        (b"{{ token }}", "a template's variable"),
        (b"<your-token>", "a template's variable"),
        (b"%API_KEY%", "a template's variable"),
        (b"sk-abc...xyz", "a template's variable"),
        (b"changeme", "a word of documentation"),
        (b"your-api-key-here", "a word of documentation"),
        (b"insert_your_api_key_here", "a word of documentation"),
        (b"P@ssw0rd", "a word of documentation"),
        (b"process.env.TOKEN", "a word of documentation"),
        (b"A1b2xxxxxx99", "a run or a sequence"),
        (b"Q9_0123456789", "a run or a sequence"),
        (b"abababababab1Zq", "a run or a sequence"),
        (b"database-credentials", "an identifier, a path or an address"),
        (b"DATABASE_CREDENTIALS", "an identifier, a path or an address"),
        (b"databaseCredentialsFile", "an identifier, a path or an address"),
        (b"oauth2client.client.OAuth2Credentials", "an identifier, a path or an address"),
        (b"PKCS7PrivateKeyTypes", "an identifier, a path or an address"),
        (b"rust_openssl.hpke.MLKEM768X25519PrivateKey", "an identifier, a path or an address"),
        (b"typing.Optional[bytes]", "an identifier, a path or an address"),
        (b"/run/secrets/token", "an identifier, a path or an address"),
        (b"https://acme.io/t0k3n", "an identifier, a path or an address"),
        (b"Required.", "an identifier, a path or an address"),
        (b"550e8400-e29b-41d4-a716-446655440000", "a UUID"),
        (b"2026-11-15T10:00:00Z", "a date, a version or a number"),
        (b"aB3\x00\x01xyz9Q", "control characters"),
    ],
)
def test_a_placeholder_is_told_with_the_reason(value: bytes, reason: str) -> None:
    assert placeholder_reason(value) == reason


@pytest.mark.parametrize(
    "form", ["{{base62:20}}", "{{hex:32}}", "{{base64:40}}", "{{password:14}}", "{{base64url:43}}"]
)
def test_what_was_generated_is_hardly_ever_taken_for_a_placeholder(form: str) -> None:
    taken = [seed for seed in range(2_000) if placeholder_reason(expand(form, str(seed)).encode())]
    assert len(taken) <= 2


@pytest.mark.parametrize(
    "value",
    [
        *(b"internal-service-2", b"prod/shop/db.v2", b"jo@acme.io", b"./data/set-1.csv", b"cert2024Xy.pem"),
        *(b"mock_access_key/20220524/us-east-1/aws4_request", b"greengrass-TwilioAuthToken-nt5lp6"),
    ],
)
def test_words_with_something_between_them_are_names(value: bytes) -> None:
    assert word_reason(value)


def test_a_generated_token_is_no_name() -> None:
    assert not [seed for seed in range(2_000) if word_reason(expand("{{base64url:32}}", str(seed)).encode())]


@given(value=st.binary(max_size=600))
def test_any_bytes_are_taken(value: bytes) -> None:
    for reason in (placeholder_reason(value), word_reason(value)):
        assert reason is None or value not in reason.encode() or len(value) < 8


@pytest.mark.parametrize("part", [b"a.", b"aA", b"a-", b"/a", b"a1", b"(", b"abc/", b"A", b"{", b"%", b"your-"])
def test_no_value_takes_long(part: bytes) -> None:
    value = part * 5_000 + b"\xff"
    begun = time.process_time()
    placeholder_reason(value)
    word_reason(value)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "value",
    [
        b"$2b$12$abcdefghijkLMNOPqrstu.V1w2x3y4z5A6B7C8D9E0F1G2H3I4J5K",
        b"$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub",
        b"pbkdf2_sha256$600000$Zs81kQ$8fk2",
        b"{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g",
        b"sha256$Zs81kQ$9f86d081884c7d65",
    ],
)
def test_the_hash_of_a_password_is_no_password(value: bytes) -> None:
    assert placeholder_reason(value) == "a hash of a password"


@pytest.mark.parametrize(
    "value", [b"${DB}", b"getenv('X')", b"true", b"null", b"your-password", b"/run/secrets/db", b"changeme"]
)
def test_a_reference_is_no_stored_secret(value: bytes) -> None:
    assert reference_reason(value) is not None


@pytest.mark.parametrize("value", [b"password", b"swordfish", b"harbor22", b"7a(b", b"admin"])
def test_a_weak_password_is_a_stored_secret(value: bytes) -> None:
    assert reference_reason(value) is None


def test_bytes_that_are_no_text_are_no_password() -> None:
    assert placeholder_reason(b"Xe8\xd3\xc0Y\xc2k2Q") == "bytes of no text"
    assert placeholder_reason("gr\u00fcn7Xq2K".encode()) is None
    assert placeholder_reason(b"k7Qx" * 127 + b"z91" + "\u00fc".encode()) != "bytes of no text"
