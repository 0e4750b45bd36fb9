"""The explorer beside the plainest search that could do it: states per second on one core and on all of them.

The peer is a breadth-first search with a set and a deque over the same steps of the same model: it keeps no way back,
so it cannot tell how it came to a bad state, and it knows one core only. Both begin with a model that has decided
nothing yet. Before a figure counts, both must have visited the same number of states by the same number of steps.
"""

import gc
import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, TypeVar

from benchmarks._harness import Row, alone, compare, medians, report
from strandline.sim.explore import Model, explore
from strandline.sim.explore_large import explore_large
from tests.models import FleetBounds, FleetModel, LeaseBounds, LeaseModel, PageBounds, PageCommitModel

ROUNDS = 3
CORES = os.cpu_count() or 1
PER_CORE_MIN = 10_000
"""Tens of thousands of states per second and core is what was asked for."""
StateT = TypeVar("StateT", bound=Hashable)


class Size(NamedTuple):
    """What a search found."""

    states: int
    transitions: int


def search_plainly(model: Model[StateT]) -> Size:
    """Visit every state with a set and a deque."""
    seen = set(model.initial())
    waiting = deque(seen)
    transitions = 0
    while waiting:
        for _, after, problem in model.steps(waiting.popleft()):
            assert problem is None
            transitions += 1
            if after not in seen:
                assert model.broken(after) is None
                seen.add(after)
                waiting.append(after)
    return Size(len(seen), transitions)


def search_with(cores: int, model: Model[StateT]) -> Size:
    """Visit every state with the explorer."""
    found = explore(model, cores=cores)
    assert found.complete, found
    return Size(found.states, found.transitions)


def search_in_files(model: Model[StateT]) -> Size:
    """Visit every state with the explorer in bounded memory, on all cores."""
    found = explore_large(model, cores=CORES)
    assert found.complete, found
    return Size(found.states, found.transitions)


def rate(search: Callable[[], Size], wanted: Size, clock: Callable[[], float]) -> float:
    """Return the states per second of a search, after checking what it found."""
    gc.collect()
    begin = clock()
    size = search()
    seconds = clock() - begin
    assert size == wanted
    return size.states / seconds


def rows(name: str, fresh: Callable[[], Model[StateT]]) -> Iterator[Row]:
    """Yield a model's figures: by processor time on one core, as a neighbour is nobody's cost, else by the wall."""
    wanted = search_plainly(fresh())
    one_core, plain, all_cores, in_files, plain_wall = medians(
        ROUNDS,
        [
            lambda: rate(lambda: search_with(1, fresh()), wanted, time.process_time),
            lambda: rate(lambda: search_plainly(fresh()), wanted, time.process_time),
            lambda: rate(lambda: search_with(CORES, fresh()), wanted, time.perf_counter),
            lambda: rate(lambda: search_in_files(fresh()), wanted, time.perf_counter),
            lambda: rate(lambda: search_plainly(fresh()), wanted, time.perf_counter),
        ],
    )
    title = f"{name}, {wanted.states:,} states"
    yield compare(f"{title}, one core", one_core, "set + deque", plain, "states/s")
    yield compare(f"{title}, {CORES} cores", all_cores, "set + deque, one core", plain_wall, "states/s")
    yield compare(f"{title}, {CORES} cores, in files", in_files, "set + deque, one core", plain_wall, "states/s")
    yield alone(f"{title}, one core (goal: at least)", one_core, "states/s", goal=PER_CORE_MIN)


def main() -> None:
    """Measure, check and print."""
    report(
        "explorer",
        [
            *rows("leases", lambda: LeaseModel(LeaseBounds())),
            *rows("page commit", lambda: PageCommitModel(PageBounds())),
            *rows("fleet", lambda: FleetModel(FleetBounds(nodes=3, revisions=2, chain=1))),
        ],
    )


if __name__ == "__main__":
    main()
