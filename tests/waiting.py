"""Waiting in tests: for events, never for seconds.

Invariants: the only limit is one that a healthy run never meets, on a machine that is slow and busy as well. It ends a
test that hangs, and says nothing of speed. Where an event cannot be waited for, because nothing must happen, a test
says why it sleeps.
"""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 180.0
"""How long a test waits for what has to come: an answer, a started process, an end."""

_PAUSE_S = 0.01

Found = TypeVar("Found")


def eventually(condition: Callable[[], Found], why: str = "") -> Found:
    """Return what a condition gives as soon as that is true."""
    give_up = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < give_up, f"it did not come to pass: {why or condition}"
        time.sleep(_PAUSE_S)
    return found
