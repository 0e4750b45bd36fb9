"""The backoff of a worker whose claims failed: longer after each failure, up to a limit.

Invariants: a worker does not claim before `until`; the pause doubles from 25 ms to 2 s, and a success resets it.
"""

from typing import NamedTuple

COOLDOWN_FIRST_NS = 25_000_000
COOLDOWN_MAX_NS = 2_000_000_000


class Cooldown(NamedTuple):
    """A worker's failures in a row, and the end of its pause."""

    failures: int = 0
    until: int = 0


def remaining_ns(cooldown: Cooldown, now: int) -> int:
    """Return the rest of a worker's pause; 0 means that it may claim now."""
    return max(0, cooldown.until - now)


def after_failure(cooldown: Cooldown, now: int) -> Cooldown:
    """Return the pause after one more failure."""
    doubled = COOLDOWN_FIRST_NS << min(cooldown.failures, 16)
    return Cooldown(cooldown.failures + 1, now + min(doubled, COOLDOWN_MAX_NS))
