"""Events of a scan, told to whoever shows its progress."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from strandline.scan.plan.planner import Plan
from strandline.scan.run.progress import Progress


class Listed(NamedTuple):
    """So many items are listed."""

    items: int


class Resumed(NamedTuple):
    """A run that was begun before is gone on with."""

    run_id: int


class Planned(NamedTuple):
    """It is known what is left to do."""

    plan: Plan


class NoExecutor(NamedTuple):
    """The cluster has granted no executor for some time."""

    seconds: float
    reason: str


class StateNearby(NamedTuple):
    """The state was reached at a place of this machine alone, and the workers may be on others."""

    place: str


Event: TypeAlias = Listed | Resumed | Planned | Progress | NoExecutor | StateNearby
Tell: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event."""
