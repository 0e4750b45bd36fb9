"""Whether credentials are what they should be: plain secrets, bcrypt hashes, signatures.

Invariants: secrets are compared in constant time. A bcrypt hash is slow to check by design; what was found for one is
remembered (by a keyed digest, never the password), so a client that comes again costs nothing. Many who wait for the
same one wait together, nothing is looked at for those who are gone, and only so many wait.
"""

import hashlib
import hmac
import secrets
from base64 import b32decode, b64decode, urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from strandline.extras import needs

with needs("broker"):
    import bcrypt

REMEMBERED_MAX = 1024
LOOKING_MAX = 1024
"""How many passwords wait to be looked at; whoever comes with one more is refused."""
_BCRYPT = ("$2a$", "$2b$", "$2x$", "$2y$")


Background = Callable[[Callable[[], None], Callable[[], None]], object]
"""Does work on another thread, and then calls somebody on the server's own."""


class Waiter(NamedTuple):
    """Who waits for an answer: what to call, and whether he is still there, which any thread may ask."""

    done: Callable[[], None]
    is_there: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class CheckLater:
    """An answer that takes a while to find; ask again once somebody who waits is called."""

    start: Callable[[Waiter], None]


class Passwords:
    """Compares secrets with what the settings hold, and remembers what it found for hashes.

    With a `background`, hashes are looked at there: until then the answer is `CheckLater`.
    """

    def __init__(self, background: Background | None = None) -> None:
        self._background = background
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, bool] = {}
        self._looking: dict[bytes, list[Waiter]] = {}

    def match(self, expected: str, given: str) -> bool | CheckLater:
        """Tell whether a secret is the expected one, or has the expected hash."""
        if not expected.startswith(_BCRYPT):
            return hmac.compare_digest(expected.encode(), given.encode(errors="surrogatepass"))
        text = f"{expected}\0{given}".encode(errors="surrogatepass")
        digest = hmac.digest(self._key, text, hashlib.sha256)
        if digest in self._known:
            return self._known[digest]
        background = self._background
        if background is None:
            return self._remember(digest, found=_has_hash(expected, given))
        if digest not in self._looking and len(self._looking) >= LOOKING_MAX:
            return False
        return CheckLater(lambda waiter: self._look(background, digest, expected, given, waiter))

    def _look(self, background: Background, digest: bytes, expected: str, given: str, waiter: Waiter) -> None:
        if digest in self._looking:
            self._looking[digest].append(waiter)
            return
        waiting = self._looking[digest] = [waiter]
        found: list[bool] = []

        def work() -> None:
            if any(each.is_there() for each in waiting):
                found.append(_has_hash(expected, given))

        def finish() -> None:
            del self._looking[digest]
            for answer in found:
                self._remember(digest, found=answer)
            for each in waiting:
                each.done()

        background(work, finish)

    def _remember(self, digest: bytes, *, found: bool) -> bool:
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[digest] = found
        return found


def load_signatures() -> None:
    """Import what checks signatures: only servers with nkeys need it, and they when they start, not on the loop."""
    with needs("broker"):
        import nacl.signing  # noqa: F401, PLC0415


def signature_is_valid(public_key: str, signature: str, nonce: str) -> bool:
    """Tell whether the owner of an nkey has signed a nonce; the signature is base64, of either alphabet."""
    from nacl.exceptions import CryptoError  # noqa: PLC0415 - `load_signatures` was before
    from nacl.signing import VerifyKey  # noqa: PLC0415 - as above

    try:
        # A public nkey is base32 of a prefix, the key and a checksum.
        key = b32decode(public_key)[1:-2]
        VerifyKey(key).verify(nonce.encode(), _decode(signature))
    except (ValueError, TypeError, CryptoError):
        return False
    return True


def _decode(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    return urlsafe_b64decode(padded) if "-" in text or "_" in text else b64decode(padded)


def _has_hash(expected: str, given: str) -> bool:
    try:
        return bcrypt.checkpw(given.encode(errors="surrogatepass"), expected.encode())
    except ValueError:
        return False
