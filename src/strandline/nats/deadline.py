"""A limit on everything that waits."""

import time


class Deadline:
    """The end of a time limit."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds that are left, never below 0."""
        return max(self._at - time.monotonic(), 0.0)
