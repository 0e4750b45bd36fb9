"""Credential checks: plain secrets, bcrypt hashes, nkey signatures.

Invariants: secrets are compared in constant time. A bcrypt check is slow by design, so its result is cached (under a
keyed digest, never the password) and a reconnect costs nothing. Concurrent logins with the same password share one
check, a check whose clients have all left is skipped, and the number of pending checks is bounded.
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

CACHED_MAX = 1024
PENDING_CHECKS_MAX = 1024
"""How many distinct passwords may wait for a check; one more is refused."""
_BCRYPT = ("$2a$", "$2b$", "$2x$", "$2y$")


Background = Callable[[Callable[[], None], Callable[[], None]], object]
"""Runs the first call on another thread, then the second on the server's thread."""


class Waiter(NamedTuple):
    """A login that waits for a check: its callback, and whether its connection is open (any thread may ask)."""

    done: Callable[[], None]
    is_open: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class PendingCheck:
    """A check that runs in the background; ask again when the waiter is called."""

    start: Callable[[Waiter], None]


class Passwords:
    """Compares secrets with the settings, and caches the results of bcrypt checks.

    With a `background`, hashes are checked there; until then the answer is a `PendingCheck`.
    """

    def __init__(self, background: Background | None = None) -> None:
        self._background = background
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, bool] = {}
        self._checks: dict[bytes, list[Waiter]] = {}

    def match(self, expected: str, given: str) -> bool | PendingCheck:
        """Tell whether a secret equals the expected one, or has the expected hash."""
        if not expected.startswith(_BCRYPT):
            return hmac.compare_digest(expected.encode(), given.encode(errors="surrogatepass"))
        text = f"{expected}\0{given}".encode(errors="surrogatepass")
        digest = hmac.digest(self._key, text, hashlib.sha256)
        if digest in self._known:
            return self._known[digest]
        background = self._background
        if background is None:
            return self._remember(digest, found=_has_hash(expected, given))
        if digest not in self._checks and len(self._checks) >= PENDING_CHECKS_MAX:
            return False
        return PendingCheck(lambda waiter: self._check_in_background(background, digest, expected, given, waiter))

    def _check_in_background(
        self, background: Background, digest: bytes, expected: str, given: str, waiter: Waiter
    ) -> None:
        if digest in self._checks:
            self._checks[digest].append(waiter)
            return
        waiting = self._checks[digest] = [waiter]
        found: list[bool] = []

        def work() -> None:
            if any(each.is_open() for each in waiting):
                found.append(_has_hash(expected, given))

        def finish() -> None:
            del self._checks[digest]
            for answer in found:
                self._remember(digest, found=answer)
            for each in waiting:
                each.done()

        background(work, finish)

    def _remember(self, digest: bytes, *, found: bool) -> bool:
        if len(self._known) >= CACHED_MAX:
            self._known.clear()
        self._known[digest] = found
        return found


def load_signatures() -> None:
    """Import the signature library: only servers with nkeys need it, at start and not on the loop."""
    with needs("broker"):
        import nacl.signing  # noqa: F401, PLC0415


def signature_is_valid(public_key: str, signature: str, nonce: str) -> bool:
    """Tell whether a nonce was signed by the owner of an nkey; the signature is base64 of either alphabet."""
    from nacl.exceptions import CryptoError  # noqa: PLC0415 - `load_signatures` ran before
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
