"""The roles of a node, and what routing asks of one.

Invariants: a node is the leader only between the publication of its first transaction under a new epoch and the moment
at which it stops writes. In between two roles it is `CHANGING`: it takes no writes, and readers see its last state.
"""

from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol


class Role(Enum):
    """What a node does now."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CHANGING = "changing"


class ReplicaNode(Protocol):
    """A node as routing sees it. Calls come from any thread; those with a timeout block."""

    @property
    def role(self) -> Role:
        """Return the role at this moment."""
        ...

    @property
    def epoch(self) -> int:
        """Return the epoch under which this node leads; 0 where it does not."""
        ...

    def leader_address(self) -> str | None:
        """Return the address of the leader, of this node too if it leads; None where no leader is known."""
        ...

    def position(self) -> int:
        """Return the last transaction: applied by a follower, in the object store for a leader; 0 before the first."""
        ...

    def wait_for(self, txid: int, timeout_s: float) -> bool:
        """Wait until `position` has reached a transaction; return whether it has."""
        ...

    def wait_for_leader(self, timeout_s: float) -> str | None:
        """Wait until a leader is known, and return its address; None after the timeout."""
        ...

    def serving_write(self) -> AbstractContextManager[int]:
        """Return a context in which the application serves a write; it gives the epoch, 0 where this node leads not.

        A hand-over waits for such writes before it stops others, so that none of them finds its database locked.
        """
        ...

    def wait_durable(self, timeout_s: float, *, epoch: int | None = None) -> int:
        """Return a transaction that holds everything which was committed here before the call, once it is stored.

        Give the `epoch` that was read before the commit: `NotLeading` where this node does not lead, or under another
        epoch by now, since commits of an earlier tenure may have been set aside. `Unavailable` after the timeout.
        """
        ...
