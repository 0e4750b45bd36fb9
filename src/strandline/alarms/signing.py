"""The signature of a webhook: HMAC-SHA256 over the time of the attempt and the body, as Stripe signs.

    Strandline-Signature: t=1700000000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd

Invariants: the signed bytes are the time in digits, a dot, and the body as sent. `verify` compares in constant time,
and refuses a time that is too far from now, so that an old message cannot be sent again later.
"""

import hmac
from hashlib import sha256

SIGNATURE = "Strandline-Signature"
TOLERANCE_S = 300
_DIGITS_MAX = 19


def sign(secret: str, body: bytes, now_s: int) -> str:
    """Return the value of the header."""
    digest = hmac.new(secret.encode(), b"%d." % now_s + body, sha256).hexdigest()
    return f"t={now_s},v1={digest}"


def verify(secret: str, header: str, body: bytes, now_s: int, tolerance_s: int = TOLERANCE_S) -> bool:
    """Return whether a body was signed with a secret, not long ago."""
    parts = [part.partition("=")[::2] for part in header.split(",")]
    times = [value for name, value in parts if name == "t" and value.isascii() and value.isdigit()]
    if len(times) != 1 or len(times[0]) > _DIGITS_MAX or abs(now_s - int(times[0])) > tolerance_s:
        return False
    expected = sign(secret, body, int(times[0])).partition("v1=")[2]
    return any(hmac.compare_digest(expected, value) for name, value in parts if name == "v1" and value.isascii())
