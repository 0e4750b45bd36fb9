"""A limit on everything that waits."""

import time


class Deadline:
    """A moment after which nobody waits any longer."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return how long there still is, never below 0."""
        return max(self._at - time.monotonic(), 0.0)
