"""A hole after a cursor, and whether it can hold an eviction: messages age, are overwritten and evicted by age alone.

The log keeps the last message of each key until it is too old by the server's clock. A fold stopped at a cursor and
knows when; its clock may be behind the server's by `skew`. When the log begins above the cursor it asks
`gap_holds_no_eviction`, and if that says yes it goes on from where the log begins.

What must hold: whoever goes on finds for every key that changed since its cursor the last message still there. That is
so while clocks disagree by less than half of what it takes to expire.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import windows
from strandline.sim.explore import Step


class AgedBounds(NamedTuple):
    """How large the world is, in ticks; `age_only` is whether age alone evicts."""

    revisions: int = 4
    keys: int = 2
    ticks: int = 7
    age_max: int = 4
    skew: int = 1
    age_only: bool = True


class AgedState(NamedTuple):
    """The last message of each key, when it was written, whether it is there; the fold's cursor and the time then."""

    revisions: tuple[int, ...]
    written: tuple[int, ...]
    kept: tuple[bool, ...]
    last: int = 0
    now: int = 0
    cursor: int = 0
    stopped: int = 0
    resumed: bool = False

    @property
    def first(self) -> int:
        """Where the log begins."""
        kept = [revision for revision, is_kept in zip(self.revisions, self.kept, strict=True) if is_kept]
        return min(kept, default=self.last + 1)


class AgedGapModel:
    """The model."""

    def __init__(self, bounds: AgedBounds | None = None) -> None:
        self.bounds = bounds or AgedBounds()

    def initial(self) -> list[AgedState]:
        """Return an empty log, and a fold that has everything."""
        keys = self.bounds.keys
        return [AgedState((0,) * keys, (0,) * keys, (False,) * keys)]

    def place(self, state: AgedState) -> AgedState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: AgedState) -> Iterator[Step[AgedState]]:
        """Yield what time, writers, retention and the fold can do; going on is the end."""
        if state.resumed:
            return
        if state.now < self.bounds.ticks:
            yield "tick", state._replace(now=state.now + 1), None
        for key in range(self.bounds.keys):
            if state.last < self.bounds.revisions:
                yield f"write {'abcd'[key]}", _written(state, key), None
            is_old = state.now - state.written[key] >= self.bounds.age_max
            if state.kept[key] and (is_old or not self.bounds.age_only):
                yield f"evict {'abcd'[key]}", state._replace(kept=_put(state.kept, key, value=False)), None
        yield "catch up", state._replace(cursor=state.last, stopped=state.now), None
        if not windows.resume_window_ok(state.cursor, state.first) and self._is_young(state):
            yield "go on", state._replace(resumed=True), None

    def broken(self, state: AgedState) -> str | None:
        """Return whether a fold that went on has missed something."""
        changed = (kept for revision, kept in zip(state.revisions, state.kept, strict=True) if revision > state.cursor)
        return "a change is missed" if state.resumed and not all(changed) else None

    def show(self, state: AgedState) -> str:
        """Return the log and the fold."""
        cells = " ".join(
            f"{'abcd'[key]}{revision}@{state.written[key]}{'' if state.kept[key] else ' gone'}"
            for key, revision in enumerate(state.revisions)
            if revision
        )
        return f"[{cells}] from {state.first} at {state.now}, fold at {state.cursor} since {state.stopped}"

    def _is_young(self, state: AgedState) -> bool:
        age = max(0, state.now - self.bounds.skew - state.stopped)
        return windows.gap_holds_no_eviction(self.bounds.age_max, age, age_only=self.bounds.age_only)


def _written(state: AgedState, key: int) -> AgedState:
    revision = state.last + 1
    return state._replace(
        revisions=(*state.revisions[:key], revision, *state.revisions[key + 1 :]),
        written=(*state.written[:key], state.now, *state.written[key + 1 :]),
        kept=_put(state.kept, key, value=True),
        last=revision,
    )


def _put(kept: tuple[bool, ...], key: int, *, value: bool) -> tuple[bool, ...]:
    return (*kept[:key], value, *kept[key + 1 :])
