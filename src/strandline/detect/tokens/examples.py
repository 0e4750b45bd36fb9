"""Fake secrets, generated on demand: a rule names the shape of a token, and this module fills it in.

An example in a rule file is a text with placeholders, `{{name:argument}}`, which `expand` replaces:

    {{base62:36}}         thirty-six characters of a named character class (`CHARSETS`)
    {{github-crc32:ghp_}} a generated form (`FORMS`): the prefix, thirty characters, and a correct checksum

So no file of the repository holds anything that looks like a credential, and every expansion is realistic.

Invariants: the same text and seed give the same expansion on every machine; two placeholders of one text differ; an
error names an unknown placeholder; braces that are no placeholder (`{{ template }}`) stay unchanged. Nothing is random:
no provider ever issued a generated token.
"""

import base64
import hashlib
import json
import re
import string
import uuid
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from blake3 import blake3

from strandline.detect.tokens.encodings import BASE58, BASE62, BECH32, bech32_checksum, to_base
from strandline.errors import InvalidInput

_BASE64 = string.ascii_uppercase + string.ascii_lowercase + string.digits

CHARSETS: Mapping[str, str] = MappingProxyType(
    {
        "digits": string.digits,
        "upper": string.ascii_uppercase,
        "lower": string.ascii_lowercase,
        "letters": string.ascii_letters,
        "hex": "0123456789abcdef",
        "hexupper": "0123456789ABCDEF",
        "hexany": "0123456789abcdefABCDEF",
        "base32": string.ascii_uppercase + "234567",
        "base32lower": string.ascii_lowercase + "234567",
        "base36": string.digits + string.ascii_lowercase,
        "base36upper": string.digits + string.ascii_uppercase,
        "base58": BASE58,
        "base62": BASE62,
        "word": BASE62 + "_",
        "dashed": BASE62 + "-",
        "base64": _BASE64 + "+/",
        "base64pad": _BASE64 + "+/=",
        "base64url": _BASE64 + "-_",
        "graph": "".join(chr(code) for code in range(0x21, 0x7F)),
    }
)
"""Named character classes: what `{{name:count}}` draws from, and what a rule's `charset` holds a secret to."""

_PLACEHOLDER = re.compile(r"\{\{([a-z][a-z0-9-]*):([^{}\n]*)\}\}")
_COUNT_MAX = 65_536


class Stream:
    """A deterministic source of values, derived from a seed."""

    def __init__(self, seed: str) -> None:
        self._hash = blake3(seed.encode(), derive_key_context="strandline/scan/example/v1")
        self._drawn = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        data = self._hash.digest(length=count, seek=self._drawn)
        self._drawn += count
        return data

    def number(self, limit: int) -> int:
        """Return a number from 0 to below the limit."""
        return int.from_bytes(self.take(16), "big") % limit

    def text(self, alphabet: str, count: int) -> str:
        """Return characters of an alphabet."""
        return "".join(alphabet[self.number(len(alphabet))] for _ in range(count))


def expand(text: str, seed: str) -> str:
    """Return the text with its placeholders filled in, as the seed decides."""
    position = -1

    def fill(match: re.Match[str]) -> str:
        nonlocal position
        position += 1
        return make(match[1], match[2], Stream(f"{seed}/{position}"))

    return _PLACEHOLDER.sub(fill, text)


def make(name: str, argument: str, stream: Stream) -> str:
    """Return one value: characters of a named class, or a generated form."""
    if name in CHARSETS:
        return stream.text(CHARSETS[name], _count(name, argument))
    if name not in FORMS:
        raise InvalidInput(f"no placeholder is called {name!r}", hint=f"there are {', '.join([*CHARSETS, *FORMS])}")
    return FORMS[name](stream, argument)


def _count(name: str, argument: str) -> int:
    if not argument.isascii() or not argument.isdigit() or int(argument) > _COUNT_MAX:
        raise InvalidInput(f"the placeholder {name!r} takes a count up to {_COUNT_MAX}, not {argument!r}")
    return int(argument)


def _github(stream: Stream, prefix: str) -> str:
    body = stream.text(BASE62, 30)
    return prefix + body + to_base(zlib.crc32(body.encode()), BASE62, 6)


def _gitlab(stream: Stream, prefix: str) -> str:
    routing = f"o:{stream.number(9) + 1}\nu:{_base36(stream.number(10**7), 1)}".encode()
    payload = base64.urlsafe_b64encode(stream.take(16) + routing + bytes([len(routing)])).decode().rstrip("=")
    begun = f"{prefix}{payload}.01.{_base36(len(payload), 2)}"
    return begun + _base36(zlib.crc32(begun.encode()), 7)


def _base36(value: int, width: int) -> str:
    return to_base(value, CHARSETS["base36"], width)


def _grafana(stream: Stream, prefix: str) -> str:
    begun = prefix + stream.text(BASE62, 32)
    return f"{begun}_{zlib.crc32(begun.encode()).to_bytes(4, 'little').hex()}"


def _aws_key_id(stream: Stream, prefix: str) -> str:
    account = 10**11 + stream.number(9 * 10**11)
    bits = (1 << 47) | (account << 7) | stream.number(1 << 7)
    body = base64.b32encode(bits.to_bytes(6, "big") + stream.take(4)).decode()
    return prefix + body


def _field(tag: int, data: bytes) -> bytes:
    return bytes([tag, len(data)]) + data


def _pypi(stream: Stream, location: str) -> str:
    identifier = str(uuid.UUID(bytes=stream.take(16), version=4)).encode()
    caveat = _field(2, json.dumps([3, str(uuid.UUID(bytes=stream.take(16), version=4))]).encode()) + b"\0"
    signed = _field(1, location.encode()) + _field(2, identifier) + b"\0" + caveat + b"\0"
    return "pypi-" + _base64url(b"\2" + signed + _field(6, stream.take(32)))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _compact_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _jwt(stream: Stream, algorithm: str) -> str:
    signature = {"HS256": 32, "HS512": 64, "ES256": 64, "RS256": 256}.get(algorithm, 32)
    claims = {"sub": stream.text(string.digits, 12), "jti": stream.text(BASE62, 16), "iat": 1_700_000_000}
    parts = [_compact_json({"alg": algorithm, "typ": "JWT"}), _compact_json(claims), stream.take(signature)]
    return ".".join(map(_base64url, parts))


def _sentry(stream: Stream, organisation: str) -> str:
    claims = {
        "iat": 1_700_000_000 + stream.number(10**6) / 1000,
        "url": "https://sentry.io",
        "region_url": "https://us.sentry.io",
        "org": organisation,
    }
    return f"sntrys_{base64.b64encode(_compact_json(claims)).decode()}_{stream.text(CHARSETS['base64'], 43)}"


def _age(stream: Stream, _: str) -> str:
    words = [stream.number(32) for _ in range(51)] + [stream.number(2) * 16]
    tail = bech32_checksum("age-secret-key-", words)
    return ("age-secret-key-1" + "".join(BECH32[word] for word in words + tail)).upper()


def _der(stream: Stream, size: int) -> bytes:
    body = b"\x02\x01\x00" + stream.take(size)
    return b"\x30\x82" + len(body).to_bytes(2, "big") + body


def _pem_body(stream: Stream, label: str) -> str:
    if label.startswith("OPENSSH"):
        return base64.b64encode(b"openssh-key-v1\0" + stream.take(320)).decode()
    if label.startswith("PGP"):
        return base64.b64encode(b"\x95" + stream.take(320)).decode()
    return base64.b64encode(_der(stream, 300)).decode()


def _pem(stream: Stream, label: str) -> str:
    body = _pem_body(stream, label)
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    # The dashes are joined at run time, so that scanners find no private key in this file.
    dashes = "-" * 5
    return "\n".join([f"{dashes}BEGIN {label}{dashes}", *lines, f"{dashes}END {label}{dashes}"])


def _pem_escaped(stream: Stream, label: str) -> str:
    return _pem(stream, label).replace("\n", "\\n")


def _base58check(stream: Stream, kind: str) -> str:
    heads = {"wif": b"\x80", "xprv": bytes.fromhex("0488ade4")}
    if kind not in heads:
        raise InvalidInput(f"a base58 form is one of {', '.join(heads)}, not {kind!r}")
    data = heads[kind] + (stream.take(32) + b"\1" if kind == "wif" else stream.take(41) + b"\0" + stream.take(32))
    data += hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4]
    return to_base(int.from_bytes(data, "big"), BASE58, 1)


def _discord(stream: Stream, _: str) -> str:
    user = base64.b64encode(str(10**17 + stream.number(9 * 10**17)).encode()).decode().rstrip("=")
    return f"{user}.{stream.text(_BASE64, 6)}.{stream.text(_BASE64, 38)}"


def _onepassword(stream: Stream, _: str) -> str:
    claims = {
        "signInAddress": "strandline.1password.com",
        "userAuth": {"method": "SRPg-4096", "alg": "PBES2g-HS256", "iterations": 650_000},
        "email": f"{stream.text(BASE62, 12)}@1passwordserviceaccounts.com",
        "srpX": stream.take(32).hex(),
        "muk": {"alg": "A256GCM", "k": _base64url(stream.take(32)), "kty": "oct"},
        "secretKey": f"A3-{stream.text(CHARSETS['base32'], 34)}",
    }
    return "ops_" + _base64url(_compact_json(claims))


def _basic(stream: Stream, user: str) -> str:
    return base64.b64encode(f"{user}:{stream.text(BASE62, 18)}".encode()).decode()


def _bytes64(stream: Stream, argument: str) -> str:
    return base64.b64encode(stream.take(_count("bytes64", argument))).decode()


def _bytes64url(stream: Stream, argument: str) -> str:
    return _base64url(stream.take(_count("bytes64url", argument)))


def _run(_: Stream, argument: str) -> str:
    """Return a repeated text, like a placeholder in documentation."""
    match = re.fullmatch(r"([0-9]{1,5})(.{1,16})", argument)
    if match is None or int(match[1]) > _COUNT_MAX:
        raise InvalidInput(f"the placeholder 'run' takes a count and a text, such as 40x, not {argument!r}")
    return int(match[1]) * match[2]


def _uuid(stream: Stream, _: str) -> str:
    return str(uuid.UUID(bytes=stream.take(16), version=4))


def _password(stream: Stream, argument: str) -> str:
    """Return a password like a password manager's: every kind of character, and none that ends a quoted string."""
    count = max(_count("password", argument), 4)
    kinds = [string.ascii_lowercase, string.ascii_uppercase, string.digits, "!#%*+-_"]
    drawn = [stream.text(kind, 1) for kind in kinds] + [stream.text("".join(kinds), 1) for _ in range(count - 4)]
    return "".join(sorted(drawn[1:], key=lambda _: stream.number(2**32))) + drawn[0]


FORMS: Mapping[str, Callable[[Stream, str], str]] = MappingProxyType(
    {
        "github-crc32": _github,
        "gitlab-crc32": _gitlab,
        "grafana-crc32": _grafana,
        "aws-key-id": _aws_key_id,
        "pypi-macaroon": _pypi,
        "jwt": _jwt,
        "sentry-org": _sentry,
        "age": _age,
        "pem": _pem,
        "pem-escaped": _pem_escaped,
        "base58check": _base58check,
        "discord": _discord,
        "onepassword": _onepassword,
        "basic": _basic,
        "bytes64": _bytes64,
        "bytes64url": _bytes64url,
        "uuid": _uuid,
        "run": _run,
        "password": _password,
    }
)
"""Generated forms: tokens with a structure or a checksum, by name."""
