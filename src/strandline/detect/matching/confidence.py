"""Confidence: how much speaks for a match being a secret, from 0 to 10.

    +1  the rule asks for entropy, and the secret has it
    +2  a keyword of the rule stands in the match or close to it
    +2  the secret is assigned to something: after `=`, `:` or the like, quoted or not
    +5  the secret proves itself: its checksum holds

Invariants: it depends on the bytes around the secret and on nothing else.
"""

import re

CLOSE_BYTES = 32
_ASSIGNED = re.compile(rb"(?:=|:|=>|:=|<-|->|,|\()[ \t]{0,8}[a-zA-Z]{0,2}[\"'`]{0,3}\Z")
_BEFORE_BYTES = 16


def confidence(data: bytes, start: int, keyword_distance: int | None, *, entropy: bool, valid: bool) -> int:
    """Return the confidence in a secret that begins at `start`."""
    assigned = _ASSIGNED.search(data[max(0, start - _BEFORE_BYTES) : start]) is not None
    is_close = keyword_distance is not None and keyword_distance <= CLOSE_BYTES
    return 1 * entropy + 2 * is_close + 2 * assigned + 5 * valid
