"""Retries of idempotent calls to stores, with growing pauses, for a minute."""

import time
from collections.abc import Callable
from typing import TypeVar

from strandline.errors import Unavailable, UnknownOutcome

T = TypeVar("T")

PATIENCE_S = 60.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 2.0


def retried(call: Callable[[], T]) -> T:
    """Call, and repeat the call while the store is unavailable or the outcome is unknown.

    A conflict is an answer and is raised at once.
    """
    give_up_s = time.monotonic() + PATIENCE_S
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            return call()
        except (Unavailable, UnknownOutcome) as error:
            may_pass = error.retryable or isinstance(error, UnknownOutcome)
            if not may_pass or time.monotonic() >= give_up_s:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
