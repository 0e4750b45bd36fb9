"""Models so small that their states are known without an explorer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from strandline.sim.explore import Exploration, Step


class Jugs(NamedTuple):
    small: int
    large: int


SIZES = Jugs(3, 5)


@dataclass(frozen=True)
class Pouring:
    """Two jugs of 3 and 5 and a well: measuring 4 takes six steps."""

    unwanted: int | None = 4
    sizes: Jugs = SIZES

    def initial(self) -> list[Jugs]:
        return [Jugs(0, 0)]

    def steps(self, state: Jugs) -> Iterator[Step[Jugs]]:
        small, large = state
        yield "fill small", Jugs(self.sizes.small, large), None
        yield "fill large", Jugs(small, self.sizes.large), None
        yield "empty small", Jugs(0, large), None
        yield "empty large", Jugs(small, 0), None
        poured = min(small, self.sizes.large - large)
        yield "pour into large", Jugs(small - poured, large + poured), None
        poured = min(large, self.sizes.small - small)
        yield "pour into small", Jugs(small + poured, large - poured), None

    def broken(self, state: Jugs) -> str | None:
        return "measured" if state.large == self.unwanted else None

    def place(self, state: Jugs) -> Jugs:
        return state

    def show(self, state: Jugs) -> str:
        return f"{state.small} and {state.large}"


@dataclass(frozen=True)
class Dial:
    """Numbers below `size`: the next, or twice; `forbidden` steps and `fatal` states are wrong."""

    size: int
    forbidden: tuple[int, int] | None = None
    fatal: int | None = None
    trap: int | None = None

    def initial(self) -> list[int]:
        return [1]

    def steps(self, state: int) -> list[Step[int]]:
        if state == self.fatal:
            raise ZeroDivisionError("no step from here")
        if state == self.trap:
            return []
        following = {"next": (state + 1) % self.size, "twice": state * 2 % self.size}
        return [(action, after, self._wrong(state, after)) for action, after in following.items()]

    def broken(self, state: int) -> str | None:  # noqa: ARG002
        return None

    def place(self, state: int) -> int:
        return state // 3

    def _wrong(self, before: int, after: int) -> str | None:
        return "a forbidden step" if (before, after) == self.forbidden else None

    def show(self, state: int) -> str:
        return str(state)


def summary(exploration: Exploration) -> tuple[object, ...]:
    """Return everything but how long it took."""
    e = exploration
    return e.states, e.transitions, e.depth, e.complete, e.counterexample
