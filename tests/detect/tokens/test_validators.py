"""A token's own bytes say whether it can be real; whatever they are, no validator raises or shows them."""

import base64
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.detect.tokens.examples import expand
from strandline.detect.tokens.validators import VALIDATORS, Judgement, Verdict, judge, validate
from strandline.errors import InvalidInput

VALID, INVALID, UNKNOWN, DOUBTFUL = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN, Verdict.DOUBTFUL
PROVEN = {
    "github-crc32": "{{github-crc32:ghp_}}",
    "npm-crc32": "{{github-crc32:npm_}}",
    "gitlab-crc32": "{{gitlab-crc32:glpat-}}",
    "grafana-crc32": "{{grafana-crc32:glsa_}}",
    "age-bech32": "{{age:}}",
    "base58check": "{{base58check:wif}}",
}
WELL_FORMED = {
    **PROVEN,
    "aws-key-id": "{{aws-key-id:AKIA}}",
    "jwt": "{{jwt:RS256}}",
    "pypi-macaroon": "{{pypi-macaroon:pypi.org}}",
    "sentry-org": "{{sentry-org:acme}}",
    "pem": "{{pem:RSA PRIVATE KEY}}",
    "slack": "xoxb-{{digits:12}}-{{digits:13}}-{{base62:24}}",
    "discord": "{{discord:}}",
    "onepassword": "{{onepassword:}}",
    "basic": "{{basic:jo}}",
    "key-32-bytes": "{{bytes64:32}}",
    "key-64-bytes": "{{bytes64:64}}",
}


def made(text: str, seed: str = "a") -> bytes:
    return expand(text, seed).encode()


def encoded(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_well_formed_token_is_valid(name: str) -> None:
    for seed in range(50):
        assert validate(name, made(WELL_FORMED[name], str(seed))) is VALID


@pytest.mark.parametrize("name", PROVEN)
def test_a_token_with_one_character_changed_is_not_valid(name: str) -> None:
    token = made(PROVEN[name])
    for at in range(len(token)):
        other = b"Z" if token[at : at + 1] != b"Z" else b"Y"
        assert validate(name, token[:at] + other + token[at + 1 :]) is not VALID


@pytest.mark.parametrize("name", PROVEN)
def test_the_last_character_of_a_checksum_counts(name: str) -> None:
    token = made(PROVEN[name])
    other = b"2" if token[-1:] != b"2" else b"3"
    assert validate(name, token[:-1] + other) is (INVALID if name == "base58check" else DOUBTFUL)


@pytest.mark.parametrize(
    ("name", "begun", "checksum"),
    [
        ("npm-crc32", b"npm_qkJaB6MffYVzZXWqmcoF49yrUxP3wf", b"0LsakP"),
        ("grafana-crc32", b"glsa_yscW25imSKJIuav8zF37RZmnbiDvB05G", b"_fcaaf58a"),
    ],
)
def test_the_checksums_are_those_that_are_published_with_dummy_tokens(name: str, begun: bytes, checksum: bytes) -> None:
    assert validate(name, begun + checksum) is VALID


def test_the_account_of_an_access_key_id_is_read_as_published() -> None:
    token = made("{{aws-key-id:ASIA}}")
    head = int.from_bytes(base64.b32decode(token[4:])[:6], "big")
    assert 0 < (head & 0x7FFFFFFFFF80) >> 7 < 10**12
    assert validate("aws-key-id", token) is VALID
    assert validate("aws-key-id", b"AKIA" + b"7" * 8 + b"ABCDEFGH") is UNKNOWN
    assert validate("aws-key-id", b"AKIAIOSFODNN7EXAMPLE") is INVALID


def test_a_web_token_needs_two_objects_an_algorithm_and_a_signature() -> None:
    header, claims = encoded({"alg": "HS256"}), encoded({"sub": "1"})
    assert validate("jwt", b".".join([header, claims, b"c2lnbmF0dXJl"])) is VALID
    assert validate("jwt", b".".join([header, claims, b""])) is INVALID
    assert validate("jwt", b".".join([header, claims])) is INVALID
    assert validate("jwt", b".".join([encoded({"typ": "JWT"}), claims, b"c2ln"])) is INVALID
    assert validate("jwt", b".".join([encoded({"alg": "none"}), claims, b"c2ln"])) is INVALID
    assert validate("jwt", b".".join([header, encoded([1]), b"c2ln"])) is INVALID
    assert validate("jwt", b".".join([header, encoded({"name": "John Doe"}), b"c2ln"])) is INVALID


@pytest.mark.parametrize("label", ["PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_is_valid_plain_escaped_and_quoted_line_by_line(label: str) -> None:
    for seed in range(20):
        assert validate("pem", made(f"{{{{pem:{label}}}}}", str(seed))) is VALID
        assert validate("pem", made(f"{{{{pem-escaped:{label}}}}}", str(seed))) is VALID
        lines = made(f"{{{{pem:{label}}}}}", str(seed)).split(b"\n")
        assert validate("pem", b'"' + b'\\n" +\n  "'.join(lines) + b'"') is VALID


def test_a_private_key_without_a_key_is_invalid_and_one_without_an_end_is_unknown() -> None:
    whole = made("{{pem:RSA PRIVATE KEY}}")
    lines = whole.split(b"\n")
    assert validate("pem", b"\n".join([lines[0], b"...", lines[-1]])) is INVALID
    plain = base64.b64encode(b"\x30\x82" + bytes(60))
    assert validate("pem", b"\n".join([lines[0], plain, lines[-1]])) is INVALID
    assert validate("pem", b"\n".join(lines[:-1])) is UNKNOWN
    header = b"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n"
    assert validate("pem", b"\n".join([lines[0], header, *lines[1:]])) is UNKNOWN
    assert validate("pem", whole.replace(b"RSA ", b"OPENSSH ")) is DOUBTFUL


@pytest.mark.parametrize(
    "value",
    [
        b"changeme-now-1",
        b"${TOKEN_123}",
        b"your-api-key-1",
        b"config.token2",
        b"aaaaaaaaaaaa1A",
        b"12345678901234567890",
    ],
)
def test_what_only_stands_for_a_secret_is_invalid_to_every_loose_validator(value: bytes) -> None:
    for name in ("not-placeholder", "uri-password", "generic-token", "generic-password"):
        assert validate(name, value) is INVALID, name


def test_a_generated_value_is_unknown_to_every_loose_validator() -> None:
    for seed in range(200):
        assert validate("not-placeholder", made("{{base62:32}}", str(seed))) is UNKNOWN
        assert validate("generic-token", made("{{hex:40}}", str(seed))) is UNKNOWN
        assert validate("generic-password", made("{{password:14}}", str(seed))) is UNKNOWN


def test_a_generic_token_mixes_letters_and_digits_or_cases() -> None:
    assert validate("generic-token", b"kQzXvWbNmPrTgHjLsDfYcA") is UNKNOWN
    assert validate("generic-token", b"internal-service-name-2") is INVALID
    assert validate("generic-token", b"certificates.prod.json") is INVALID
    assert validate("generic-token", b"48151623421081516") is INVALID


def test_a_generic_token_of_few_hexadecimal_digits_is_an_identifier() -> None:
    assert validate("generic-token", b"62d91b17309e76c8") is INVALID
    assert validate("generic-token", b"62d91b17309e76c8a1b0") is UNKNOWN


def test_base64_of_a_value_is_judged_by_what_it_holds() -> None:
    def judged(value: bytes) -> Verdict:
        return validate("base64-value", base64.b64encode(value))

    assert judged(b"Kx7#mQ2vTz9") is UNKNOWN
    assert judged(bytes(range(128, 160))) is UNKNOWN
    assert judged(b"/run/secrets/db_password") is INVALID
    assert judged(b"https://login.acme.io/oauth2/v1/token") is INVALID
    assert judged(b"changeme") is INVALID
    assert validate("base64-value", b"S3g3I21RMnZUej") is INVALID


def test_a_generic_token_of_a_provider_with_a_wrong_checksum_is_invalid() -> None:
    assert validate("generic-token", made("ghp_{{base62:36}}")) is INVALID
    assert validate("generic-token", made("{{github-crc32:ghp_}}")) is UNKNOWN


def test_a_generic_password_needs_digits_and_kinds_of_characters() -> None:
    assert validate("generic-password", b"Tr0ub4dor&3x") is UNKNOWN
    assert validate("generic-password", b"hunter22x") is INVALID
    assert validate("generic-password", b"simplify.now") is INVALID


@pytest.mark.parametrize("chosen", [b"harbor2031", b"Blue@Monkey", b"acme-Prod-2023", b"Lamp!Shade!", b"TLSharbor12"])
def test_a_password_that_people_choose_is_words_with_signs_or_a_number(chosen: bytes) -> None:
    assert validate("generic-password", chosen) is UNKNOWN


@pytest.mark.parametrize("name", [b"harbor-lamp", b"config.password", b"HARBOR_LAMP", b"harborLamp", b"Passw0rd2031"])
def test_names_and_words_of_documentation_are_no_passwords(name: bytes) -> None:
    assert validate("generic-password", name) is INVALID


def test_a_macaroon_ends_with_its_signature() -> None:
    token = made("{{pypi-macaroon:pypi.org}}").removeprefix(b"pypi-")
    data = base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4))
    for other in (data[:-1], data + b"x", data.replace(b"pypi.org", b"pypi.net")):
        assert validate("pypi-macaroon", b"pypi-" + base64.urlsafe_b64encode(other).rstrip(b"=")) is DOUBTFUL


def test_a_placeholder_of_a_checksummed_form_is_invalid() -> None:
    assert validate("github-crc32", b"ghp_" + b"abc123def456" * 3) is INVALID
    assert validate("npm-crc32", b"npm_" + b"x" * 36) is INVALID
    assert validate("pypi-macaroon", b"pypi-AgEIcHlwaS5vcmcXXXXXXXXXXXXXXXXXXXX") is INVALID


@pytest.mark.parametrize("value", [b"r7<Kq{2,xT;9mB", b"wh[a]6<ao)Q)0]iS", b"c(L{or0,c)hA?p~", b"p|7uL&Xz,k1$x^!{"])
def test_a_generated_password_between_quotes_may_have_any_sign(value: bytes) -> None:
    assert validate("quoted-password", value) is UNKNOWN


@pytest.mark.parametrize(
    "value",
    [
        *(b"<your password>", b"${DB_PASSWORD}", b"{{ password }}", b"Optional[str]", b"get(Config.Pass1)", b"{0},{1}"),
        *(b"[a-zA-Z0-9]{8,}", b"(e,t)=>e[t]+1", b"List<String1>,int", b"./data/set-1.csv',", b"$2b$12$Kx8,;Qw2(7mZ"),
        *(b"%(user)s,%(pass)s", b"harbor,lamp;river1"),
    ],
)
def test_what_is_evaluated_is_no_password_between_quotes(value: bytes) -> None:
    assert validate("quoted-password", value) is INVALID


@pytest.mark.parametrize("value", [b"canyon-meadow-tiger", b"latestharvest", b"shadowcanyon"])
def test_a_short_label_inside_of_a_word_is_no_label(value: bytes) -> None:
    assert validate("weak-password", value) is UNKNOWN


@pytest.mark.parametrize("value", [b"any-value", b"userName", b"login_form", b"filename", b"test2", b"no_config"])
def test_a_short_label_at_the_edge_of_a_word_is_a_label(value: bytes) -> None:
    assert validate("weak-password", value) is INVALID


def test_a_generated_part_behind_a_word_and_a_dot_is_no_identifier() -> None:
    assert validate("generic-token", b"prd.zVgPRTgc18uWJOyZzRfCnHoQ") is UNKNOWN
    assert validate("generic-token", b"config.passwordOfTheDatabase") is INVALID


def test_basic_credentials_are_a_user_and_a_password() -> None:
    assert validate("basic", base64.b64encode(b"jo:s8Fk2mQz91")) is VALID
    assert validate("basic", base64.b64encode(b"jo:password")) is INVALID
    assert validate("basic", base64.b64encode(b"no colon here")) is INVALID
    assert validate("basic", base64.b64encode(b"\x00\x01:\x02\x03")) is INVALID


@pytest.mark.parametrize("name", VALIDATORS)
@given(secret=st.binary(max_size=300))
@example(secret=b"")
@example(secret=b"." * 40)
@example(secret=b"\xff" * 64)
@example(secret=b"[" * 5_000)
@example(secret=base64.b64encode(b'{"a":' * 5_000) + b".e30.e30")
@example(secret=base64.b64encode(b'{"a":' + b"9" * 9_000 + b"}") + b".e30.e30")
@example(secret=b"-----BEGIN PRIVATE KEY-----" + b"A \\n" * 3_000 + b"-----END PRIVATE KEY-----")
def test_no_bytes_make_a_validator_raise_or_show_them(name: str, secret: bytes) -> None:
    judgement = judge(name, secret)
    assert isinstance(judgement, Judgement)
    assert judgement.verdict in Verdict
    assert len(secret) < 8 or secret not in judgement.reason.encode()


@pytest.mark.parametrize("name", WELL_FORMED)
@given(data=st.data())
def test_no_change_to_a_well_formed_token_makes_a_validator_raise(name: str, data: st.DataObject) -> None:
    token = bytearray(made(WELL_FORMED[name]))
    for _ in range(data.draw(st.integers(1, 4))):
        token[data.draw(st.integers(0, len(token) - 1))] = data.draw(st.integers(0, 255))
    assert judge(name, bytes(token)).verdict in Verdict


def test_an_unknown_validator_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'no-such'"):
        validate("no-such", b"x")
