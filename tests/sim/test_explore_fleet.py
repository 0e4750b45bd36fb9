"""The pointer of a fleet never moves back and never names what is not whole, and no fold is silently wrong."""

import os
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from strandline.protocol.fold_modes import FoldMode
from strandline.sim.explore import find_stuck
from tests.exploring import explore, explore_large
from tests.models.fleet import (
    BACK,
    DANGLING,
    DIVERGED,
    LOST,
    UNREADABLE,
    Cell,
    Fetching,
    FleetBounds,
    FleetModel,
    Node,
    Phase,
    Publishing,
    Removing,
    World,
    pack_node,
    pack_world,
    unpack_node,
    unpack_world,
)

TWO = FleetBounds(revisions=2)
SHARED = FleetBounds(revisions=3, chain=2)
"""An increment is published, and one more revision can be."""
NEWCOMER = SHARED._replace(nodes=1, newcomers=1, exports=1)
WORLDS: dict[str, tuple[FleetBounds, int, int]] = {
    "two exporters": (TWO, 9_817, 26_543),
    "three exporters": (TWO._replace(nodes=3, exports=1, chain=1), 9_514, 28_827),
    "two removals": (SHARED._replace(exports=1, removals=2), 7_898, 20_972),
    "a newcomer": (NEWCOMER, 6_204, 16_498),
    "a newcomer, mirror": (NEWCOMER._replace(mode=FoldMode.MIRROR, removals=0), 3_643, 9_630),
    "a newcomer, two keys": (NEWCOMER._replace(chain=0, revisions=2, keys=2, removals=0), 637, 1_210),
    "one crashes": (TWO._replace(chain=1, exports=1, crashes=1), 7_708, 24_748),
    "a pointer comes late": (TWO._replace(chain=1, removals=0, lost=1), 11_272, 28_664),
    "two keys": (TWO._replace(revisions=3, keys=2, exports=1, removals=0), 15_291, 38_326),
    "a bucket that keeps": (TWO._replace(evicts=False, exports=1), 447, 1_034),
}
"""Each with its states and transitions, as counted when a state was not packed into bytes."""
LIVE: dict[str, Any] = {"unread": False, "exports": None, "removals": 0}
LIVELY = {
    "a newcomer": NEWCOMER._replace(chain=1, revisions=2, **LIVE),
    "one that fell behind": TWO._replace(**LIVE),
}
LARGE = FleetBounds(nodes=3, newcomers=1, revisions=4, keys=2, exports=4, removals=2, crashes=1, lost=1, chain=2)
CORES = os.cpu_count() or 1


def always(*_: object, **__: object) -> bool:
    return True


def prune_by_age_only(_: int | None, __: int, *, is_target: bool, is_aged: bool) -> bool:
    return is_aged and not is_target


def prune_the_pointers_rank(rank: int | None, pointer_rank: int, *, is_target: bool, is_aged: bool) -> bool:
    return not is_target and is_aged and rank is not None and rank <= pointer_rank


def prune_the_target(rank: int | None, pointer_rank: int, *, is_target: bool, is_aged: bool) -> bool:
    _ = is_target
    return is_aged and rank is not None and rank < pointer_rank


def mark_nothing(_: Iterable[AbstractSet[str]]) -> AbstractSet[str]:
    return frozenset()


MUTATIONS: dict[str, tuple[str, Callable[..., object], FleetBounds, int, str]] = {
    "LwwPointer": ("artifacts.pointer_publish_allowed", always, TWO._replace(removals=0), 15, BACK),
    "PruneAgeOnly": ("artifacts.payload_prunable", prune_by_age_only, TWO, 16, DANGLING),
    "PruneOwnRank": ("artifacts.payload_prunable", prune_the_pointers_rank, TWO._replace(exports=3), 16, DANGLING),
    "PruneTarget": ("artifacts.payload_prunable", prune_the_target, SHARED._replace(exports=0), 4, DANGLING),
    "PruneSharedRun": ("artifacts.marked_files", mark_nothing, SHARED._replace(exports=0), 4, DANGLING),
    "PruneHalfMarked": (
        "artifacts.marks_are_whole",
        always,
        SHARED._replace(exports=1, removals=2),
        15,
        DANGLING,
    ),
    "ShareAnything": ("artifacts.shared_files_allowed", always, SHARED, 18, DANGLING),
    "SilentClamp": ("windows.resume_window_ok", always, TWO, 2, LOST),
    "TrustListing": ("repairs.listing_is_truth", always, TWO._replace(exports=0), 4, DIVERGED),
}


@pytest.mark.parametrize(("bounds", "states", "transitions"), WORLDS.values(), ids=WORLDS)
def test_the_pointer_is_whole_and_no_fold_is_silently_wrong(bounds: FleetBounds, states: int, transitions: int) -> None:
    found = explore(FleetModel(bounds))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert (found.states, found.transitions) == (states, transitions)


def test_steps_are_forgotten_when_there_are_many_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.models.fleet._KNOWN_MAX", 50)
    bounds, states, transitions = WORLDS["one crashes"]
    found = explore(FleetModel(bounds))
    assert (found.states, found.transitions) == (states, transitions)


def test_what_is_packed_is_read_as_it_was() -> None:
    job = Removing((2, ("a", "b")), ((1, ("a",)),), ("a", "c"), ((1, ("a",)), "c"))
    late = ((UNREADABLE, None), ((2, ("a",)), (1, ("a",))))
    for each in (None, job, Fetching((1, ("a",))), Publishing(3, "b", ("a",), UNREADABLE, (3, ("a", "b")), True)):
        node = Node(Phase.WATCHING, 3, (0, 2), each)
        assert unpack_node(pack_node(node)) == node
    world = World((Cell(2, True, False), Cell()), 3, (2, ("a",)), ((2, ("a",)),), ("a", "b"), late, (1, 0, 0, 0, 2))
    assert unpack_world(pack_world(world)) == world


@pytest.mark.parametrize("bounds", LIVELY.values(), ids=LIVELY)
def test_from_every_state_the_whole_fleet_can_still_become_right(bounds: FleetBounds) -> None:
    model = FleetModel(bounds)
    assert find_stuck(model, model.is_done) is None


@pytest.mark.parametrize(("rule", "broken", "bounds", "steps", "problem"), MUTATIONS.values(), ids=MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(
    rule: str,
    broken: Callable[..., object],
    bounds: FleetBounds,
    steps: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"strandline.protocol.{rule}", broken)
    found = explore(FleetModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, problem), found


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [(TWO._replace(conditions=False, removals=0), BACK), (TWO._replace(corruptions=1), DANGLING)],
    ids=["a store that ignores conditions", "a pointer that others destroy while a removal is under way"],
)
def test_what_is_assumed_is_needed(bounds: FleetBounds, problem: str) -> None:
    found = explore(FleetModel(bounds)).counterexample
    assert found is not None
    assert found.problem == problem, found


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_mirror_can_become_right_from_every_state() -> None:
    model = FleetModel(NEWCOMER._replace(chain=1, revisions=2, mode=FoldMode.MIRROR, **LIVE))
    assert find_stuck(model, model.is_done) is None


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_messages_that_go_before_any_fold_has_them_can_stop_an_archive_for_good() -> None:
    model = FleetModel(TWO._replace(exports=None, removals=0, unread=True))
    assert find_stuck(model, model.is_done) is not None


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "bounds",
    [
        TWO._replace(nodes=3, chain=1, removals=1),
        TWO._replace(chain=1, crashes=1, lost=1),
        SHARED._replace(removals=2),
        SHARED._replace(nodes=1, newcomers=1, removals=1, crashes=1),
        SHARED._replace(nodes=1, newcomers=1, removals=1, mode=FoldMode.MIRROR),
        FleetBounds(nodes=3, keys=2, exports=1, removals=0, newcomers=0),
    ],
    ids=["three", "crashes and late pointers", "two removals", "a newcomer", "a newcomer, mirror", "two keys"],
)
def test_larger_fleets_keep_the_same(bounds: FleetBounds) -> None:
    found = explore(FleetModel(bounds), cores=CORES)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 50_000


def test_the_first_states_of_a_large_fleet_keep_the_same() -> None:
    found = explore(FleetModel(LARGE), states_max=5_000)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.counterexample is None, found
    assert found.states >= 5_000


@pytest.mark.parametrize(
    "states",
    [
        pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
        pytest.param(100_000_000, marks=[pytest.mark.campaign("fleet"), pytest.mark.timeout(6 * 3600)]),
    ],
)
def test_a_large_fleet_keeps_the_same_in_bounded_memory(states: int) -> None:
    found = explore_large(FleetModel(LARGE), cores=CORES, states_max=states)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.counterexample is None, found
    assert found.states >= states
