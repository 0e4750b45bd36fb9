"""The login of a connection: user and password, a token, or a key that signs the server's nonce.

Invariants: no secret is shown by `repr`, and no error quotes one. A `Login` pickles, unless a caller's own function
signs for it.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from strandline.errors import InvalidInput
from strandline.extras import needs

if TYPE_CHECKING:
    from nacl.signing import SigningKey

_BLOCK = r"-+BEGIN {name}-+\s+(\S+)\s+-+END {name}-+"
_JWT = re.compile(_BLOCK.format(name="NATS USER JWT"))
_SEED = re.compile(_BLOCK.format(name="USER NKEY SEED"))
_SEED_PREFIX = 18 << 3
_KEY_BYTES = 32
_CHECKSUM_BYTES = 2
_BARE_SEED = re.compile(r"\s*(SU[A-Z2-7]{56})\s*")


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials of a client; all empty is no login.

    `seed` is the nkey that signs, with the `jwt` it belongs to or alone. `signer` signs in its place: it takes the
    server's nonce and returns the signature in base64, as nats-py's `signature_cb` does.
    """

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    nkey: str = ""
    signer: Callable[[str], bytes] | None = field(default=None, repr=False)

    @property
    def signs(self) -> bool:
        """Tell whether it signs the server's nonce."""
        return bool(self.seed) or self.signer is not None

    @property
    def public_key(self) -> str:
        """Return the public half of the key, which a login without `jwt` names itself by; empty if there is none."""
        if self.nkey or not self.seed:
            return self.nkey
        prefix, key = _parse_seed(self.seed)
        return _format_key(prefix, bytes(_signing_key(key).verify_key))

    def signature(self, nonce: str) -> str:
        """Return the signature of the server's nonce, in base64."""
        if self.signer is not None:
            return bytes(self.signer(nonce)).decode()
        signed = _signing_key(_parse_seed(self.seed)[1]).sign(nonce.encode())
        return base64.b64encode(signed.signature).decode()


def parse_creds(text: str) -> Login:
    """Return the login of a creds file's text, or of a bare nkey seed; `InvalidInput` if it is neither."""
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt and seed:
        return _checked(Login(jwt=jwt[1], seed=seed[1]))
    if bare := seed or _BARE_SEED.fullmatch(text):
        return _checked(Login(seed=bare[1]))
    raise InvalidInput(
        "the credentials hold no token of a user and no seed", hint="give the file that `nsc generate creds` writes"
    )


def parse_creds_base64(text: str) -> Login:
    """Return the login of a creds file's text in base64; `InvalidInput` if it is not."""
    try:
        plain = base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidInput(
            "the credentials are not base64 of a text", hint="encode the file: base64 -w0 user.creds"
        ) from None
    return parse_creds(plain)


def parse_user_info(text: str) -> Login:
    """Return the login of a URL's `user:password` or token, percent-decoded."""
    user, colon, password = text.partition(":")
    return Login(user=unquote(user), password=unquote(password)) if colon else Login(token=unquote(user))


def _checked(login: Login) -> Login:
    """Return the login if its seed is whole."""
    try:
        _parse_seed(login.seed)
    except ValueError:
        raise InvalidInput("the credentials' seed is damaged", hint="generate or copy the file again") from None
    return login


def _parse_seed(seed: str) -> tuple[int, bytes]:
    """Return the prefix of a seed's public key, and the private key; `ValueError` if it is no seed.

    A seed is base32 of two bytes of prefixes (that of seeds, 5 bits, and that of the public key, 8 bits), 32 bytes of
    key, and a checksum.
    """
    raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    content, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if len(content) != 2 + _KEY_BYTES or _checksum(content) != checksum or content[0] & 0xF8 != _SEED_PREFIX:
        raise ValueError("this is no seed")
    return (content[0] & 0x07) << 5 | content[1] >> 3, content[2:]


def _format_key(prefix: int, key: bytes) -> str:
    """Return a public key as nkeys write it."""
    content = bytes([prefix]) + key
    return base64.b32encode(content + _checksum(content)).decode().rstrip("=")


def _checksum(content: bytes) -> bytes:
    return binascii.crc_hqx(content, 0).to_bytes(_CHECKSUM_BYTES, "little")


def _signing_key(key: bytes) -> "SigningKey":
    with needs("nats"):
        from nacl.signing import SigningKey  # noqa: PLC0415 - only logins that sign need it

    return SigningKey(key)
