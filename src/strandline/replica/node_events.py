"""What a node tells: that its role changed, that commits were set aside, what fails; and how it is doing."""

from dataclasses import dataclass
from pathlib import Path

from strandline.events import Event
from strandline.replica.roles import Role


@dataclass(frozen=True, slots=True)
class RoleChanged(Event):
    """A node has another role; `epoch` is the one under which it leads, 0 where it does not."""

    name: str
    role: Role
    epoch: int
    txid: int


@dataclass(frozen=True, slots=True)
class DatabaseSetAside(Event):
    """Commits after a transaction were not shipped, or may not have been: the whole database is kept as a file."""

    name: str
    file: Path
    txid: int


@dataclass(frozen=True, slots=True)
class NodeTrouble(Event):
    """Something failed; it is tried again."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """How a node is doing. `lag_s` is the age of what a follower has seen, or of a leader's oldest unshipped commit."""

    name: str
    role: Role
    epoch: int
    leader: str
    leader_address: str
    txid: int
    lag_s: float | None
    set_aside: tuple[str, ...]
    last_error: str
    failovers: int
    """How often this node began to lead."""
    errors: int
    """How many steps of it failed."""
    is_refused: bool = False
    """Whether the store refuses the credential or the bucket: it is tried again, and needs an operator."""
