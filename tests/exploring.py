"""The explorer, with the states that it visits counted for the summary of a run."""

from collections.abc import Hashable
from typing import Any, TypeVar

from strandline.sim import explore as explorer
from strandline.sim import explore_large as large_explorer
from strandline.sim.explore import Exploration, Model
from tests import tally

State = TypeVar("State", bound=Hashable)


def explore(model: Model[State], **bounds: Any) -> Exploration:  # noqa: ANN401 - those of the explorer
    """Visit every state of a model that can be reached within the bounds."""
    found = explorer.explore(model, **bounds)
    tally.count(tally.STATES, found.states)
    return found


def explore_large(model: Model[State], **bounds: Any) -> Exploration:  # noqa: ANN401 - those of the explorer
    """Visit the states of a large model in bounded memory; each level is printed."""
    found = large_explorer.explore_large(model, on_level=print, **bounds)
    tally.count(tally.STATES, found.states)
    return found
