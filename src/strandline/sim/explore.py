"""Exhaustive exploration, breadth first: every state that a small model can reach, and a shortest path to a bad one.

A model is a few pure functions over hashable states. `explore` visits each state once, level by level, checks every
state and every step, and finishes the level of the first problem; so the counterexample is a shortest one. `find_stuck`
searches for states from which no good state can be reached.

With several cores, each owns a share of the states and expands only those; it sends states of other cores once, at the
end of the level. Invariants: counts, depth and counterexample do not depend on the number of
cores; the order of states and steps is the model's own, so equal runs have equal results.
"""

import gc
import pickle
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
Step: TypeAlias = tuple[str, StateT, str | None]


class Model(Protocol[StateT]):
    """States, the steps between them, and their invariants."""

    def initial(self) -> Iterable[StateT]:
        """Return the states to start from."""
        ...

    def steps(self, state: StateT) -> Iterable[Step[StateT]]:
        """Return the possible steps: an action, the state after it, and the problem of the step or None."""
        ...

    def broken(self, state: StateT) -> str | None:
        """Return the problem of a state, or None."""
        ...

    def place(self, state: StateT) -> Hashable:
        """Return the key that assigns the state to a core; states that share the model's caches share a key."""
        ...

    def show(self, state: StateT) -> str:
        """Return a state as one line."""
        ...


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A shortest path to a problem: `trace` holds each action and the state after it, as text."""

    problem: str
    trace: tuple[tuple[str, str], ...]

    @property
    def steps(self) -> int:
        """The number of actions."""
        return len(self.trace) - 1

    def __str__(self) -> str:
        width = max(len(action) for action, _ in self.trace)
        lines = [f"{number:3}  {action:{width}}  {state}" for number, (action, state) in enumerate(self.trace)]
        return "\n".join([f"{self.problem}, after {self.steps} steps:", *lines])


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of an exploration. `complete`: no bound cut it short; `depth`: steps to the farthest state."""

    states: int
    transitions: int
    depth: int
    complete: bool
    seconds: float
    counterexample: Counterexample | None

    @property
    def states_per_s(self) -> float:
        """The speed of the exploration."""
        return self.states / self.seconds

    def __str__(self) -> str:
        extent = "all" if self.complete else "the first"
        line = (
            f"{extent} {self.states:,} states, {self.transitions:,} transitions, depth {self.depth}, "
            f"{self.seconds:.1f} s ({self.states_per_s:,.0f} states/s)"
        )
        return line if self.counterexample is None else f"{line}\n{self.counterexample}"


def explore(
    model: Model[StateT], *, cores: int = 1, states_max: int | None = None, depth_max: int | None = None
) -> Exploration:
    """Visit every reachable state; a bound ends it after the level that reaches it."""
    begin = time.perf_counter()
    bounds = Bounds(states_max, depth_max)
    if cores == 1:
        shard, (tally, complete) = _search_alone(model, bounds)
    else:
        tally, complete = _search_together(model, cores, bounds)
        if tally.failed:
            # The cores only detect a problem; one core then finds the path, as without them.
            shard, _ = _search_alone(model, Bounds(None, None))
    counterexample = shard.counterexample() if tally.failed else None
    seconds = time.perf_counter() - begin
    return Exploration(tally.states, tally.transitions, tally.depth, complete, seconds, counterexample)


def find_stuck(model: Model[StateT], good: Callable[[StateT], bool]) -> Counterexample | None:
    """Return a shortest path to a state from which no good one can be reached, or None; explores on one core."""
    shard = _Shard(model)
    befores: dict[StateT, list[StateT]] = {}
    with _uncollected():
        shard.start()
        while shard.frontier:
            shard.expand(befores)
            shard.admit(())
        hopeful = [state for state in shard.known if good(state)]
        reached = set(hopeful)
        while hopeful:
            fresh = [state for state in befores.get(hopeful.pop(), ()) if state not in reached]
            reached.update(fresh)
            hopeful += fresh
    stuck = next((state for state in shard.known if state not in reached), None)
    return None if stuck is None else shard.way_to("nothing good can be reached", stuck)


class Bounds(NamedTuple):
    """The level that reaches one of them is the last."""

    states_max: int | None
    depth_max: int | None

    def reached(self, tally: "Tally") -> bool:
        """Tell whether a bound is reached."""
        return (self.states_max is not None and tally.states >= self.states_max) or (
            self.depth_max is not None and tally.depth >= self.depth_max
        )


class Tally(NamedTuple):
    """The counts of one shard, or of all; `waiting` states are not expanded yet."""

    states: int
    waiting: int
    transitions: int
    depth: int
    failed: bool


class Failure(NamedTuple, Generic[StateT]):
    """A problem of a step, or of the state `after` if no state is `before` it."""

    problem: str
    before: StateT | None
    action: str
    after: StateT | None


class _Shard(Generic[StateT]):
    """The states of one core. `known` also holds states that were sent to other cores, once.

    A state's value in `known` is the state it was first reached from; None if that is unknown or there is none.
    """

    def __init__(self, model: Model[StateT], index: int = 0, count: int = 1) -> None:
        self.known: dict[StateT, StateT | None] = {}
        self.frontier: list[StateT] = []
        self.failure: Failure[StateT] | None = None
        self._model = model
        self._index = index
        self._count = count
        self._found: list[list[StateT]] = [[] for _ in range(count)]
        self._states = 0
        self._transitions = 0
        self._depth = 0

    def start(self) -> None:
        place, count = self._model.place, self._count
        self.admit(state for state in self._model.initial() if hash(place(state)) % count == self._index)
        self._depth = 0

    def expand(self, befores: dict[StateT, list[StateT]] | None = None) -> list[list[StateT]]:
        """Take every step from the frontier; return the states found for each shard.

        `befores` gets the states that each state was reached from, where it is given.
        """
        known, steps, place = self.known, self._model.steps, self._model.place
        count, found, own = self._count, self._found, self._found[self._index]
        for before in self.frontier:
            try:
                for action, after, problem in steps(before):
                    self._transitions += 1
                    if befores is not None:
                        befores.setdefault(after, []).append(before)
                    if problem is not None:
                        self._fail(Failure(problem, before, action, after))
                    if after not in known:
                        known[after] = before
                        (own if count == 1 else found[hash(place(after)) % count]).append(after)
            except Exception as error:  # noqa: BLE001 - an unexpected error of a decision is a finding
                self._fail(Failure(f"{type(error).__name__}: {error}", before, "a step that raises", None))
        return found

    def admit(self, sent: Iterable[StateT]) -> None:
        """Make the own states found, and those that others sent, the next frontier."""
        known = self.known
        fresh = self._found[self._index]
        for state in sent:
            if state not in known:
                known[state] = None
                fresh.append(state)
        broken = self._model.broken
        for state in fresh:
            problem = broken(state)
            if problem is not None:
                self._fail(Failure(problem, None, "", state))
        self.frontier = fresh
        self._found = [[] for _ in range(self._count)]
        self._states += len(fresh)
        self._depth += 1

    def tally(self) -> Tally:
        failed = self.failure is not None
        return Tally(self._states, len(self.frontier), self._transitions, self._depth, failed)

    def counterexample(self) -> Counterexample:
        problem, before, action, after = self.failure or Failure("", None, "", None)
        if before is None:
            assert after is not None  # noqa: S101 - a failure has a state
            return self.way_to(problem, after)
        way = self.way_to(problem, before)
        last = "nothing" if after is None else self._model.show(after)
        return Counterexample(problem, (*way.trace, (action, last)))

    def way_to(self, problem: str, state: StateT) -> Counterexample:
        """Return the actions from a start to a state."""
        way = [state]
        while (before := self.known[way[-1]]) is not None:
            way.append(before)
        way.reverse()
        show = self._model.show
        trace = [("start", show(way[0]))]
        for before, after in pairwise(way):
            action = next(action for action, found, _ in self._model.steps(before) if found == after)
            trace.append((action, show(after)))
        return Counterexample(problem, tuple(trace))

    def _fail(self, failure: Failure[StateT]) -> None:
        if self.failure is None:
            self.failure = failure


def _search_alone(model: Model[StateT], bounds: Bounds) -> tuple[_Shard[StateT], tuple[Tally, bool]]:
    shard = _Shard(model)
    with _uncollected():
        shard.start()
        while goes_on(shard.tally(), bounds):
            shard.expand()
            shard.admit(())
    return shard, ended(shard.tally())


def goes_on(tally: Tally, bounds: Bounds) -> bool:
    """Tell whether there is another level to explore."""
    return bool(tally.waiting) and not tally.failed and not bounds.reached(tally)


def ended(tally: Tally) -> tuple[Tally, bool]:
    """Return the counts of an exploration that ended, and whether it is complete."""
    # The level that found nothing new took no step further.
    depth = tally.depth if tally.waiting else tally.depth - 1
    return tally._replace(depth=depth), not tally.waiting and not tally.failed


def _search_together(model: Model[StateT], cores: int, bounds: Bounds) -> tuple[Tally, bool]:
    context = get_context("fork")
    links, children = [], []
    try:
        for index in range(cores):
            link, other = context.Pipe()
            child = context.Process(target=_serve, args=(other, model, index, cores), daemon=True)
            child.start()
            other.close()
            links.append(link)
            children.append(child)
        tally = _conduct(links, bounds)
        for child in children:
            child.join()
    finally:
        for link in links:
            link.close()
        for child in children:
            if child.is_alive():
                child.terminate()
    return ended(tally)


def _conduct(links: Sequence[Connection], bounds: Bounds) -> Tally:
    """Lead the cores level by level, and exchange the states that they found for each other."""
    while True:
        tally = total([link.recv() for link in links])
        is_going_on = goes_on(tally, bounds)
        for link in links:
            link.send(is_going_on)
        if not is_going_on:
            return tally
        found = [[link.recv_bytes() for _ in links] for link in links]
        for index, link in enumerate(links):
            for parts in found:
                link.send_bytes(parts[index])


def total(tallies: list[Tally]) -> Tally:
    """Return the counts of all shards together."""
    states, waiting, transitions, depths, failures = zip(*tallies, strict=True)
    return Tally(sum(states), sum(waiting), sum(transitions), max(depths), any(failures))


def _serve(link: Connection, model: Model[StateT], index: int, cores: int) -> None:
    gc.disable()
    shard = _Shard(model, index, cores)
    shard.start()
    while True:
        link.send(shard.tally())
        if not link.recv():
            return
        found = shard.expand()
        for owner, states in enumerate(found):
            link.send_bytes(b"" if owner == index else pickle.dumps(states, pickle.HIGHEST_PROTOCOL))
        sent = [link.recv_bytes() for _ in found]
        shard.admit(state for data in sent if data for state in pickle.loads(data))  # noqa: S301 - our children's


@contextmanager
def _uncollected() -> Iterator[None]:
    """Spare the collector a walk over millions of states, none of which is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
