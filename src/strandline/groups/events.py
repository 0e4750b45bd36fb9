"""Events of a group."""

from dataclasses import dataclass

from strandline.events import Event


@dataclass(frozen=True, slots=True)
class GroupOpened(Event):
    """A group was opened; `frames` were replayed and `torn_bytes` of a torn tail left out."""

    name: str
    created: bool
    frames: int
    torn_bytes: int


@dataclass(frozen=True, slots=True)
class GroupCompacted(Event):
    """A snapshot took the place of the frames before it."""

    name: str
    snapshot_bytes: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class GroupPoisoned(Event):
    """A write or fsync failed; the group changes nothing more until it is opened again."""

    name: str
    reason: str
