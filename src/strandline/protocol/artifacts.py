"""Decisions about published artifacts: when a pointer may move, and what may be removed; pure.

Invariants that follow, whatever exporters and removals do side by side: the pointer never moves back, and what it names
is there. A payload below the pointer's rank can never be published again, so it may go; one that a later artifact
shares stays in the chain of pointers, because only files of the pointer's present target may be shared.
"""

from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

POINTER_ATTEMPTS_MAX = 8
GRACE_TTLS = 4
"""Payloads that nothing points to are kept for so many durations of a lease: one for a publisher, three for readers."""


class PointerState(NamedTuple):
    """A pointer that is there; its rank, None if it cannot be read."""

    rank: int | None


def pointer_publish_allowed(current: PointerState | None, candidate: int) -> bool:
    """Tell whether a pointer may name an artifact of this rank; `current` is None where there is no pointer.

    A pointer that cannot be read may be replaced: otherwise one bad write would stop the fleet for good. Its rank is
    known from the manifests that are there (`rank_of_unreadable`), and None only if there is none.
    """
    return current is None or current.rank is None or candidate >= current.rank


def rank_of_unreadable(manifest_ranks: Iterable[int | None]) -> int | None:
    """Return the rank below which no artifact may take the place of a pointer that cannot be read.

    No removal takes the manifest of the greatest rank that a pointer ever had, for only lower ones are removed. So the
    pointer does not move back, and a removal that was planned by the pointer before takes nothing of the new artifact.
    """
    return max((rank for rank in manifest_ranks if rank is not None), default=None)


def payload_prunable(rank: int | None, pointer_rank: int, *, is_target: bool, is_aged: bool) -> bool:
    """Tell whether a payload may be removed: aged, not what the pointer names, and of a rank strictly below it.

    An artifact of the pointer's own rank may still be published over it, so its payload stays.
    """
    return not is_target and is_aged and rank is not None and rank < pointer_rank


def shared_files_allowed(shared: AbstractSet[str], target_files: AbstractSet[str]) -> bool:
    """Tell whether an artifact may go on from files that it does not bring: all are those of the pointer's target.

    The pointer is then moved only if it still names that target, so that no removal can come between.
    """
    return shared <= target_files


def marked_files(kept: Iterable[AbstractSet[str]]) -> AbstractSet[str]:
    """Return the files that stay whatever their rank and age: those of every manifest that is kept."""
    return frozenset[str]().union(*kept)


def marks_are_whole(kept: AbstractSet[Hashable], read: AbstractSet[Hashable]) -> bool:
    """Tell whether unmarked files may be removed: every manifest that is kept could be read.

    One that is gone was removed by another, because the pointer has moved on. The new target may share its files, and
    is not among what was listed: these files would look unmarked.
    """
    return kept <= read


def lease_is_free(now_s: float, expires_s: float, *, released: bool) -> bool:
    """Tell whether a round may be taken over: its lease was given back, or has expired by the clock of the taker."""
    return released or now_s >= expires_s
