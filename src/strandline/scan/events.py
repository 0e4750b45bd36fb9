"""Events of a scan, for displays of its progress."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from strandline.scan.plan.planner import Plan
from strandline.scan.run.progress import Progress


class Listed(NamedTuple):
    """A number of listed items."""

    items: int


class Resumed(NamedTuple):
    """An interrupted run is resumed."""

    run_id: int


class Planned(NamedTuple):
    """The plan is made."""

    plan: Plan


class NoExecutor(NamedTuple):
    """The cluster has granted no executor for some seconds."""

    seconds: float
    reason: str


class StateNearby(NamedTuple):
    """The state is at an address of this machine alone, and workers may be on other machines."""

    place: str


Event: TypeAlias = Listed | Resumed | Planned | Progress | NoExecutor | StateNearby
Tell: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event."""
