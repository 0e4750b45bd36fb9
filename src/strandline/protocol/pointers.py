"""Which artifact is the newest: when the pointer to it may move, and when what it pointed to may go.

Invariants: the pointer never moves to an older artifact; what it points to is always there. The two guards need each
other: a payload is pruned only below the pointer, and what is below the pointer can never be published again.
"""

from typing import NamedTuple


class Pointer(NamedTuple):
    """A pointer that is there, and the rank of the artifact it names; None if it cannot be read."""

    rank: int | None


def pointer_publish_allowed(current: Pointer | None, candidate: int) -> bool:
    """Return whether an artifact may become the newest; no pointer and an unreadable one stand in nobody's way.

    It protects against a slow exporter that publishes after a quick one. The same rank may be published again.
    """
    return current is None or current.rank is None or candidate >= current.rank


def payload_prunable(rank: int | None, pointer: int, *, target: bool, aged: bool) -> bool:
    """Return whether a payload may be deleted: not the pointer's target, past its grace, known to be older.

    Older means strictly: a payload of the pointer's own rank may still be published. It protects the pointer against
    naming what is gone, and objects that are not ours against us.
    """
    return not target and aged and rank is not None and rank < pointer
