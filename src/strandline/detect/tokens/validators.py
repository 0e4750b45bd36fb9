"""Offline validators: they tell from a token's own bytes whether it can be real.

A checksum proves a token; a structure can refute one; a loose value may turn out to be a placeholder. A rule names its
validator, and the engine drops INVALID matches and raises the confidence of VALID ones. No validator uses a network,
so VALID means well-formed, never "still works".

A token of a provider's form whose checksum is wrong is DOUBTFUL: it was made up, cut off or mistyped, or the form is
newer than its rule. The engine keeps it with the lowest confidence.

Invariants: every validator accepts any bytes and never raises; the reason is a fixed sentence without any of them; in
doubt the verdict is UNKNOWN, because INVALID hides a finding.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from strandline.detect.tokens.encodings import BASE58, BASE62, from_base, from_base64, is_bech32, to_base
from strandline.detect.tokens.placeholders import (
    IDENTIFIER,
    chosen_reason,
    label_reason,
    placeholder_reason,
    quoted_reason,
    reference_reason,
    word_reason,
)
from strandline.errors import InvalidInput


class Verdict(Enum):
    """The result of a validator."""

    VALID = "valid"
    INVALID = "invalid"
    DOUBTFUL = "doubtful"
    UNKNOWN = "unknown"


class Judgement(NamedTuple):
    """A verdict and the fixed sentence that explains it."""

    verdict: Verdict
    reason: str


Validator: TypeAlias = Callable[[bytes], Judgement]


def validate(name: str, secret: bytes) -> Verdict:
    """Return the named validator's verdict on a secret."""
    return judge(name, secret).verdict


def judge(name: str, secret: bytes) -> Judgement:
    """Return the named validator's verdict on a secret, and the reason."""
    if name not in VALIDATORS:
        raise InvalidInput(f"no validator is called {name!r}", hint=f"there are {', '.join(sorted(VALIDATORS))}")
    return VALIDATORS[name](bytes(secret))


def _valid(reason: str) -> Judgement:
    return Judgement(Verdict.VALID, reason)


def _invalid(reason: str) -> Judgement:
    return Judgement(Verdict.INVALID, reason)


def _unknown(reason: str) -> Judgement:
    return Judgement(Verdict.UNKNOWN, reason)


def _either(holds: bool, what: str) -> Judgement:  # noqa: FBT001 - the verdict is the argument
    return _valid(f"{what} is right") if holds else _invalid(f"{what} is wrong")


def _proved(holds: bool, what: str, secret: bytes) -> Judgement:  # noqa: FBT001 - the verdict is the argument
    """Return the verdict of a checksum: without it a token of the form is doubtful, and a placeholder is none."""
    if holds:
        return _valid(f"{what} is right")
    reason = placeholder_reason(secret)
    if reason:
        return _invalid(f"{what} is wrong, and the token is a placeholder: {reason}")
    return Judgement(Verdict.DOUBTFUL, f"{what} is wrong")


_CRC32_BASE62 = re.compile(rb"[a-z]{2,8}_([0-9A-Za-z]{30})([0-9A-Za-z]{6})")


def _crc32_base62(secret: bytes) -> Judgement:
    """Judge GitHub's form, which npm took over: prefix, underscore, thirty characters, their CRC-32 in base 62."""
    match = _CRC32_BASE62.fullmatch(secret)
    if match is None:
        return _unknown("not of the checksummed form")
    return _proved(to_base(zlib.crc32(match[1]), BASE62, 6).encode() == match[2], "the CRC-32 in base 62", match[1])


_GITLAB = re.compile(rb"[\w-]{1,64}-([\w-]{20,300})\.(?:[0-9a-z]{2}\.)?([0-9a-z]{2})([0-9a-z]{7})")


def _gitlab_crc32(secret: bytes) -> Judgement:
    """Judge GitLab's routable form: payload, its length and the CRC-32 of all that, in base 36."""
    match = _GITLAB.fullmatch(secret)
    if match is None:
        return _unknown("not of the routable form")
    return _proved(int(match[3], 36) == zlib.crc32(secret[: match.start(3)]), "the CRC-32 in base 36", match[1])


_GRAFANA = re.compile(rb"(gl[a-z]{1,8}_[0-9A-Za-z]{32})_([0-9a-f]{8})")


def _grafana_crc32(secret: bytes) -> Judgement:
    """Judge Grafana's form: prefix, thirty-two characters, and the CRC-32 of both in hex, lowest byte first."""
    match = _GRAFANA.fullmatch(secret)
    if match is None:
        return _unknown("not of the checksummed form")
    return _proved(zlib.crc32(match[1]).to_bytes(4, "little").hex().encode() == match[2], "the CRC-32 in hex", match[1])


_ACCOUNT_MAX = 10**12
_PLAIN_ID = 6


def _aws_key_id(secret: bytes) -> Judgement:
    """Judge an access key id, which holds the account's number in base 32."""
    match = re.fullmatch(rb"(?:AKIA|ASIA|ABIA|ACCA)([A-Z2-7]{16})", secret)
    if match is None:
        return _unknown("not of the form that holds an account")
    if len(set(match[1])) < _PLAIN_ID or b"EXAMPLE" in match[1]:
        return _invalid("a placeholder of documentation")
    value = from_base(match[1][:10], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") or 0
    account = (value >> 2 >> 7) & ((1 << 40) - 1)
    return _valid("it holds an account's number") if 0 < account < _ACCOUNT_MAX else _unknown("it holds no account")


def _object(text: bytes) -> dict[str, object] | None:
    data = from_base64(text)
    if data is None or not data.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _jwt(secret: bytes) -> Judgement:
    """Judge a JSON web token: a header that names its algorithm, claims, and a signature."""
    first, _, rest = secret.partition(b".")
    second, mark, signature = rest.partition(b".")
    if not mark or b"." in signature:
        return _invalid("a signed token has three parts")
    header, claims = _object(first), _object(second)
    if header is None or claims is None:
        return _invalid("header or claims are no JSON object")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        return _invalid("the header names no algorithm")
    if algorithm.lower() == "none" or from_base64(signature) in (None, b""):
        return _invalid("the token is not signed")
    if claims.get("name") == "John Doe":
        return _invalid("a sample of the documentation")
    return _valid("header and claims are JSON objects")


_MACAROON = re.compile(rb"\x02\x01(?:\x08pypi\.org|\x0dtest\.pypi\.org)\x02.{20,}\x06\x20.{32}", re.DOTALL)


def _pypi(secret: bytes) -> Judgement:
    """Judge a PyPI token: a version 2 macaroon whose location is PyPI, whole down to its signature."""
    text = secret.removeprefix(b"pypi-")
    data = from_base64(text)
    return _proved(data is not None and _MACAROON.fullmatch(data) is not None, "the macaroon", text)


def _sentry(secret: bytes) -> Judgement:
    """Judge a Sentry organisation token: base64 of JSON with the time and the site, then a secret."""
    claims, _, _ = secret.removeprefix(b"sntrys_").rpartition(b"_")
    value = _object(claims)
    return _proved(value is not None and {"iat", "url", "org"} <= value.keys(), "the set of claims", secret)


def _age(secret: bytes) -> Judgement:
    holds = re.fullmatch(rb"AGE-SECRET-KEY-1[0-9A-Z]{58}", secret) is not None and is_bech32(secret)
    return _proved(holds, "the bech32 checksum", secret.removeprefix(b"AGE-SECRET-KEY-1").lower())


_BASE58_MAX = 128


def _base58check(secret: bytes) -> Judgement:
    """Judge Bitcoin's form: a number in base 58 whose last four bytes are a double SHA-256 of the rest."""
    value = from_base(secret, BASE58) if len(secret) <= _BASE58_MAX else None
    if value is None:
        return _invalid("not in base 58")
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    digest = hashlib.sha256(hashlib.sha256(data[:-4]).digest()).digest()
    return _either(digest[:4] == data[-4:], "the base58 checksum")


_PEM = re.compile(
    rb"-----BEGIN ((?:[A-Z0-9]+ )*)PRIVATE KEY(?: BLOCK)?-----(.*?)-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    re.DOTALL,
)
# Escapes, quotes and operators of the surrounding code, headers, and OpenPGP's checksum occur between a key's lines.
_PEM_NOISE = re.compile(
    rb"[\"']\s*\+\s*[\"']|\\+[nrt]|\\+$|[A-Za-z-]+: [^\n\\]*|^=[A-Za-z0-9+/]{4}|[\s\"',#>|*\\]", re.MULTILINE
)
_PEM_BODIES = {b"OPENSSH ": rb"openssh-key-v1\0", b"PGP ": rb"[\x80-\xff]"}
_DER = rb"\x30"
_KEY_BYTES_MIN, _KEY_BYTES_DOUBTED = 32, 96


def _pem(secret: bytes) -> Judgement:
    """Judge a private key in PEM: its body is base64 of DER, of OpenSSH's format, of OpenPGP packets, or encrypted."""
    match = _PEM.search(secret)
    if match is None:
        return _unknown("the end of the key is not in sight")
    data = from_base64(_PEM_NOISE.sub(b"", match[2]))
    if data is None or len(data) < _KEY_BYTES_MIN or len(set(data)) < _KEY_BYTES_MIN // 2:
        return _invalid("the body is no base64, or too short or plain to be a key")
    if b"ENCRYPTED" in match[2]:
        return _unknown("the body is encrypted")
    holds = re.match(_PEM_BODIES.get(match[1], _DER), data) is not None
    if not holds and len(data) >= _KEY_BYTES_DOUBTED and len(set(data)) > _KEY_BYTES_MIN:
        return Judgement(Verdict.DOUBTFUL, "the beginning of the body is wrong")
    return _either(holds, "the beginning of the body")


_SLACK = tuple(
    re.compile(form)
    for form in (
        rb"xox[bpaor]-[0-9]{8,14}-[0-9]{8,14}(?:-[0-9]{8,14})?-[0-9A-Za-z]{24,34}",
        rb"xox[as]-2?-?[0-9]{8,14}-[0-9]{8,14}-[0-9]{8,14}-[0-9a-f]{32,64}",
        rb"xoxe(?:\.xox[bp])?-1-[0-9A-Za-z]{140,180}",
        rb"xapp-[0-9]-A[0-9A-Z]{8,12}-[0-9]{10,14}-[0-9a-f]{64}",
    )
)


_PLAIN_TOKEN = 10


def _slack(secret: bytes) -> Judgement:
    if len(set(secret)) < _PLAIN_TOKEN:
        return _invalid("too plain to be a token")
    return _valid("a known shape") if any(form.fullmatch(secret) for form in _SLACK) else _unknown("an unlisted shape")


def _discord(secret: bytes) -> Judgement:
    """Judge a bot's token: its first part is the bot's number, a snowflake, in base64."""
    user = from_base64(secret.split(b".")[0])
    return _proved(user is not None and re.fullmatch(rb"[0-9]{17,20}", user) is not None, "the bot's number", secret)


def _onepassword(secret: bytes) -> Judgement:
    claims = _object(secret.removeprefix(b"ops_"))
    if claims is None:
        return _unknown("the claims are cut off")
    return _either("secretKey" in claims or "email" in claims, "the set of claims")


def _basic(secret: bytes) -> Judgement:
    """Judge base64 of `user:password`."""
    pair = from_base64(secret)
    user, mark, password = (pair or b"").partition(b":")
    if not mark or not user or not password or not pair or not re.fullmatch(rb"[\x20-\x7e\x80-\xff]+", pair):
        return _invalid("not a user and a password")
    reason = placeholder_reason(password)
    return _invalid(reason) if reason else _valid("a user and a password")


def _base64_value(secret: bytes) -> Judgement:
    """Judge base64 of a value that its name calls a secret: decoded text is judged as a password."""
    data = from_base64(secret)
    if data is None or len(secret) % 4:
        return _invalid("not base64")
    if not re.fullmatch(rb"[\t\n\r\x20-\x7e]+", data):
        return _unknown("base64 of no text")
    return _generic_password(data.strip())


def _key_of(size: int) -> Validator:
    def judged(secret: bytes) -> Judgement:
        data = from_base64(secret)
        if data is None or len(data) != size:
            return _invalid("not base64 of a key of that size")
        return _either(len(set(data)) > size // 3, "the spread of bytes")

    return judged


def _not_placeholder(secret: bytes) -> Judgement:
    reason = placeholder_reason(secret)
    return _invalid(reason) if reason else _unknown("no placeholder")


def _stored_secret(secret: bytes) -> Judgement:
    """Judge a value in a file that exists to hold credentials: a weak password counts, a reference to one does not."""
    reason = reference_reason(secret)
    return _invalid(reason) if reason else _unknown("no reference")


def _uri_password(secret: bytes) -> Judgement:
    """Judge the password of an address, which may be words."""
    reason = placeholder_reason(secret)
    if reason == IDENTIFIER:
        reason = chosen_reason(secret)
    return _invalid(reason) if reason else _unknown("no placeholder")


def _argument_password(secret: bytes) -> Judgement:
    """Judge a value in the place of a password in a call or a statement, which may be words."""
    return _generic_password(secret) if chosen_reason(secret) else _unknown("words that a person may have chosen")


def _state_secret(secret: bytes) -> Judgement:
    """Judge an attribute of a stored state: a weak password counts, a name or a reference does not."""
    reason = reference_reason(secret) or word_reason(secret)
    return _invalid(reason) if reason else _unknown("no reference")


def _command_password(secret: bytes) -> Judgement:
    """Judge a value in the place of a password on a command line."""
    if chosen_reason(secret) is None:
        return _unknown("words that a person may have chosen")
    reason = placeholder_reason(secret) or reference_reason(secret)
    if reason or not (_case_changes(secret) > _RANDOM_CASE or re.search(rb"[0-9]", secret)):
        return _invalid(reason or "a word")
    return _unknown("no placeholder")


def _header_token(secret: bytes) -> Judgement:
    """Judge a value of an Authorization header; there a UUID is a token."""
    if _UUID.match(secret):
        return _unknown("a UUID in the place of a token")
    return _generic_token(secret)


def _generic_token(secret: bytes) -> Judgement:
    """Judge a value that only its name makes a secret: a generated one mixes letters with digits, or the cases."""
    if _SMALL_WORDS.fullmatch(secret):  # names of code are many, and this costs least
        return _invalid("letters and digits are not mixed")
    reason = placeholder_reason(secret) or word_reason(secret)
    if reason:
        return _invalid(reason)
    if any(secret.startswith(prefixes) and judged(secret).verdict in _REFUTED for prefixes, judged in _PROVING):
        return _invalid("a provider's form with a wrong checksum")
    if _SHORT_HEX.fullmatch(secret):
        return _invalid("an identifier or a short hash")
    letters = sum(bytes([byte]).isalpha() for byte in secret)
    digits = sum(bytes([byte]).isdigit() for byte in secret)
    if not letters or not (digits or _case_changes(secret) > _RANDOM_CASE):
        return _invalid("letters and digits are not mixed")
    return _unknown("no placeholder")


_PROVING: tuple[tuple[tuple[bytes, ...], Validator], ...] = (
    ((b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"npm_"), _crc32_base62),
    ((b"glpat-", b"gldt-", b"glrt-"), _gitlab_crc32),
    ((b"glsa_",), _grafana_crc32),
    ((b"pypi-AgE",), _pypi),
)
_REFUTED = (Verdict.INVALID, Verdict.DOUBTFUL)
_RANDOM_CASE = 0.35
_UUID = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?::fx)?\Z")
_SMALL_WORDS = re.compile(rb"[a-z_.-]+")
_SHORT_HEX = re.compile(rb"[0-9a-f]{1,19}|[0-9A-F]{1,19}")
_LONG_PASSWORD = 16
_RANDOM_CHANGES = 3
_CHANGES = re.compile(rb"(?<=[a-zA-Z])(?=[0-9])|(?<=[0-9])(?=[a-zA-Z])")
# Letters and digits, a digit before the end, and a run of consonants that no word has.
_NO_LANGUAGE = re.compile(
    rb"(?=.*[0-9][a-z])(?=.*[bcdfghjklmnpqrstvwxz0-9]{5})(?=.*[bcdfghjklmnpqrstvwxz]{4})[a-z0-9]{10,}"
)
_QUOTED_KINDS, _QUOTED_SIGNS, _QUOTED_LETTERS = 2, 2, 7
_ALPHANUMERIC = frozenset(BASE62.encode())
_SIGNS = re.compile(rb"[^0-9A-Za-z_\s]")
_WORD = re.compile(rb"[a-z]{5}|[A-Z]{5}")
_WORDS_AND_NUMBER = re.compile(
    rb"[a-zA-Z]{3,}(?:[-_@][a-zA-Z]{3,}){0,3}[-_@#]?[0-9]{2,4}[!?]?|[a-zA-Z]{3,}[@#!][a-zA-Z]{3,}[0-9]{1,4}"
)
_WORDS_AND_SIGNS = re.compile(rb"[A-Za-z]{3,}[!@#$%^*?~](?:[A-Za-z]{3,}[!@#$%^*?~])?[A-Za-z]{3,}[!@#$%^*?~]?")
_CHOSEN = re.compile(rb"[0-9]{2}[!?]?\Z|[!@#$%^*?~]")


def _case_changes(secret: bytes) -> float:
    """Return how often the case changes from one letter to the next."""
    pairs = [pair for pair in pairwise(secret) if bytes(pair).isalpha()]
    return sum(bytes([a]).islower() != bytes([b]).islower() for a, b in pairs) / (len(pairs) or 1)


def _generic_password(secret: bytes) -> Judgement:
    """Judge a password that only its name makes one.

    It has digits and two more kinds of characters, one if it is long; or words with signs or a number that people
    choose; or its letters, cases and digits follow no order.
    """
    if _WORDS_AND_NUMBER.fullmatch(secret) or _WORDS_AND_SIGNS.fullmatch(secret):
        reason = placeholder_reason(secret)
        is_name = reason == IDENTIFIER and not _CHOSEN.search(secret)
        return _invalid(reason) if reason and (is_name or reason != IDENTIFIER) else _unknown("words as people choose")
    reason = placeholder_reason(secret) or word_reason(secret)
    if reason:
        return _invalid(reason)
    kinds = [re.search(kind, secret) is not None for kind in (rb"[0-9]", rb"[a-z]", rb"[A-Z]", rb"[^a-zA-Z0-9]")]
    if kinds[0] and sum(kinds) >= (2 if len(secret) >= _LONG_PASSWORD else 3):
        return _unknown("no placeholder")
    if len(_CHANGES.findall(secret)) >= _RANDOM_CHANGES or _case_changes(secret) > _RANDOM_CASE:
        return _unknown("letters and digits in no order")
    if kinds[0] and _NO_LANGUAGE.fullmatch(secret):
        return _unknown("letters of no language")
    return _invalid("too few kinds of characters")


def _quoted_password(secret: bytes) -> Judgement:
    """Judge a password between quotes that has brackets, commas or blanks' neighbours: signs among mixed letters."""
    reason = quoted_reason(secret)
    if reason:
        return _invalid(reason)
    letters = set(secret) & _ALPHANUMERIC
    if len(letters) < _QUOTED_LETTERS or len(_SIGNS.findall(secret)) < _QUOTED_SIGNS:
        return _invalid("too few letters or signs")
    kinds = [re.search(kind, secret) is not None for kind in (rb"[0-9]", rb"[a-z]", rb"[A-Z]")]
    if sum(kinds) < _QUOTED_KINDS:
        return _invalid("too few kinds of characters")
    if _WORD.search(secret) and len(_CHANGES.findall(secret)) < _RANDOM_CHANGES - 1:
        return _invalid("words with signs between them")
    return _unknown("signs among mixed letters")


def _chosen_password(secret: bytes) -> Judgement:
    """Judge a value that a pair, a default or a definition names: a password, a token, or a UUID."""
    if _UUID.match(secret):
        return _unknown("a UUID in the place of a token")
    reason = reference_reason(secret)
    return _invalid(reason) if reason else _generic_password(secret)


def _weak_password(secret: bytes) -> Judgement:
    """Judge words in the place of a password; a label or a word of code is none."""
    reason = chosen_reason(secret)
    return _invalid(reason) if reason else _unknown("words that a person may have chosen")


def _weak_passphrase(secret: bytes) -> Judgement:
    """Judge some words as a passphrase: none of them is a word of a label or of code."""
    words = secret.replace(b" ", b"-").split(b"-")
    reason = label_reason(secret) or ("one word again and again" if len(set(words)) < len(words) - 1 else None)
    return _invalid(reason) if reason else _unknown("words that a person may have chosen")


_KNOWN_WEAK = re.compile(
    rb"(?i:admin|root|postgres|mysql|mariadb|mongo|redis|rabbitmq|guest|minio|secret|sa)[0-9!]{0,4}"
)


def _config_password(secret: bytes) -> Judgement:
    """Judge words in the place of a password in a file of settings, where the well-known weak ones count too."""
    return _unknown("a well-known weak password") if _KNOWN_WEAK.fullmatch(secret) else _weak_password(secret)


_VARIABLE_BYTES_MIN = 8


def _weak_variable(secret: bytes) -> Judgement:
    """Judge words that stand in a variable without quotes, where a short word is a switch or a name."""
    if len(secret) < _VARIABLE_BYTES_MIN:
        return _invalid("a short word")
    return _weak_password(secret)


_SETTING_TEMPLATE = re.compile(rb"\A[$%]?[({<]|\{\{|\}\}|<%|\$\{|\Aenv|\.{3}|[ ]")


def _setting_key(secret: bytes) -> Judgement:
    """Judge a framework's key, which may hold any sign: only a template, words or a sequence are none."""
    if _SETTING_TEMPLATE.search(secret):
        return _invalid("a template's variable")
    letters = re.sub(rb"[^0-9A-Za-z]+", b"_", secret)
    reason = placeholder_reason(letters) or word_reason(letters)
    return _invalid(reason) if reason else _unknown("no placeholder")


VALIDATORS: Mapping[str, Validator] = MappingProxyType(
    {
        "github-crc32": _crc32_base62,
        "npm-crc32": _crc32_base62,
        "gitlab-crc32": _gitlab_crc32,
        "grafana-crc32": _grafana_crc32,
        "aws-key-id": _aws_key_id,
        "jwt": _jwt,
        "pypi-macaroon": _pypi,
        "sentry-org": _sentry,
        "age-bech32": _age,
        "base58check": _base58check,
        "pem": _pem,
        "slack": _slack,
        "discord": _discord,
        "onepassword": _onepassword,
        "basic": _basic,
        "base64-value": _base64_value,
        "key-32-bytes": _key_of(32),
        "key-64-bytes": _key_of(64),
        "not-placeholder": _not_placeholder,
        "uri-password": _uri_password,
        "argument-password": _argument_password,
        "state-secret": _state_secret,
        "stored-secret": _stored_secret,
        "command-password": _command_password,
        "header-token": _header_token,
        "generic-token": _generic_token,
        "generic-password": _generic_password,
        "chosen-password": _chosen_password,
        "quoted-password": _quoted_password,
        "weak-password": _weak_password,
        "config-password": _config_password,
        "weak-passphrase": _weak_passphrase,
        "weak-variable": _weak_variable,
        "setting-key": _setting_key,
    }
)
"""The validators a rule can name."""
