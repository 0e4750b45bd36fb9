"""When to look for consumers that nobody uses.

Invariants: pure; looked at several times within the shortest time that a consumer may be left alone, and not at all
where none minds.
"""

LOOK_MIN_NS, LOOK_MAX_NS = 20_000_000, 500_000_000


class IdleWatch:
    """Knows when to look next."""

    def __init__(self) -> None:
        self.next_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Tell whether it is time to look."""
        return self.next_ns is not None and now_ns >= self.next_ns

    def note(self, threshold_ns: int, now_ns: int) -> None:
        """Note a consumer that may be left alone for so long; 0 if for ever."""
        if threshold_ns > 0:
            due_ns = now_ns + min(max(LOOK_MIN_NS, threshold_ns // 4), LOOK_MAX_NS)
            self.next_ns = due_ns if self.next_ns is None else min(due_ns, self.next_ns)

    def begin(self) -> None:
        """Begin to look: who is to be looked at again is noted anew."""
        self.next_ns = None
