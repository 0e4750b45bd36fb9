"""Who connects to a NATS server: a user and password, a token, or a key that signs what the server asks.

Invariants: no secret is shown by `repr`, and no error quotes one. A `Login` pickles, unless a caller's own function
signs for it.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from strandline.errors import InvalidInput

_BLOCK = r"-+BEGIN {name}-+\s+(\S+)\s+-+END {name}-+"
_JWT = re.compile(_BLOCK.format(name="NATS USER JWT"))
_SEED = re.compile(_BLOCK.format(name="USER NKEY SEED"))
_BARE_SEED = re.compile(r"\s*(SU[A-Z2-7]{56})\s*")


@dataclass(frozen=True, slots=True)
class Login:
    """What a client says of itself; all empty is nobody in particular.

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
        import nkeys  # noqa: PLC0415 - only those who sign need it

        public: bytes = nkeys.from_seed(bytearray(self.seed.encode())).public_key
        return public.decode()

    def signature(self, nonce: str) -> str:
        """Return the signature of the server's nonce, in base64."""
        if self.signer is not None:
            return bytes(self.signer(nonce)).decode()
        import nkeys  # noqa: PLC0415 - only those who sign need it

        signed: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(nonce.encode())
        return base64.b64encode(signed).decode()


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
    """Return the login if its seed is whole; nkeys itself does not look at the checksum."""
    import nkeys  # noqa: PLC0415 - only those who sign need it

    try:
        nkeys.from_seed(bytearray(login.seed.encode()))
        raw = base64.b32decode(login.seed + "=" * (-len(login.seed) % 8))
        is_whole = nkeys.crc16_checksum(raw[:-2]) == raw[-2:]
    except (nkeys.NkeysError, ValueError):
        is_whole = False
    if not is_whole:
        raise InvalidInput("the credentials' seed is damaged", hint="generate or copy the file again")
    return login
