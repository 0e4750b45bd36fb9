"""When a worker whose claims failed may claim again: later after each failure, up to a limit.

Invariants: nobody claims before `until`; the pause doubles from 25 ms to 2 s, and a success forgets it.
"""

from typing import NamedTuple

COOLDOWN_FIRST_NS = 25_000_000
COOLDOWN_MAX_NS = 2_000_000_000


class Cooldown(NamedTuple):
    """How often a worker failed in a row, and until when it waits."""

    failures: int = 0
    until: int = 0


def remaining_ns(cooldown: Cooldown, now: int) -> int:
    """Return how long a worker has still to wait; 0 is now."""
    return max(0, cooldown.until - now)


def after_failure(cooldown: Cooldown, now: int) -> Cooldown:
    """Return the pause after one more failure."""
    doubled = COOLDOWN_FIRST_NS << min(cooldown.failures, 16)
    return Cooldown(cooldown.failures + 1, now + min(doubled, COOLDOWN_MAX_NS))
