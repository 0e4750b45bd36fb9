"""The explorer visits every state once, finds a shortest counterexample, and is the same on any number of cores."""

from typing import Any

import pytest

from strandline.sim.explore import Model, explore, find_stuck
from tests.sim.small_models import Dial, Jugs, Pouring, summary


def test_every_state_is_visited_once() -> None:
    found = explore(Pouring(unwanted=None))
    assert (found.states, found.transitions, found.complete, found.counterexample) == (16, 96, True, None)
    assert found.states_per_s > 0
    assert str(found).startswith("all 16 states, 96 transitions, depth ")


def test_the_counterexample_is_a_shortest_one_and_reads_as_a_story() -> None:
    found = explore(Pouring()).counterexample
    assert found is not None
    assert found.steps == 6
    assert str(found).splitlines() == [
        "measured, after 6 steps:",
        "  0  start            0 and 0",
        "  1  fill large       0 and 5",
        "  2  pour into small  3 and 2",
        "  3  empty small      0 and 2",
        "  4  pour into small  2 and 0",
        "  5  fill large       2 and 5",
        "  6  pour into small  3 and 4",
    ]


def test_a_wrong_step_is_found_between_two_good_states() -> None:
    found = explore(Dial(100, forbidden=(6, 12))).counterexample
    assert found is not None
    assert (found.problem, found.trace[-2:]) == ("a forbidden step", (("twice", "6"), ("twice", "12")))


def test_the_search_ends_with_the_level_that_went_wrong() -> None:
    found = explore(Dial(5000, forbidden=(6, 12)))
    assert found.counterexample is not None
    assert (found.depth, found.complete) == (found.counterexample.steps, False)
    assert found.states < 30


def test_a_step_that_raises_is_a_counterexample() -> None:
    found = explore(Dial(100, fatal=3)).counterexample
    assert found is not None
    assert found.problem == "ZeroDivisionError: no step from here"
    assert found.trace[-2] == ("next", "3")


def test_a_wrong_start_is_a_counterexample_of_no_steps() -> None:
    found = explore(Pouring(unwanted=0)).counterexample
    assert found is not None
    assert (found.steps, found.trace) == (0, (("start", "0 and 0"),))


def test_the_depth_is_that_of_the_farthest_state() -> None:
    assert explore(Dial(2)).depth == 1
    assert explore(Dial(1)).depth == 1
    assert explore(Dial(9)).depth == 4


def test_a_bound_ends_it_after_a_level_and_says_so() -> None:
    few = explore(Dial(1000), states_max=10)
    assert 10 <= few.states < 30
    assert not few.complete
    assert str(few).startswith("the first ")
    near = explore(Dial(1000), depth_max=3)
    assert (near.states, near.depth, near.complete) == (7, 3, False)


@pytest.mark.parametrize(
    "model",
    [
        Dial(5000),
        Dial(5000, forbidden=(700, 701)),
        Dial(5000, fatal=777),
        Dial(2),
        Pouring(),
        Pouring(None, Jugs(7, 11)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("cores", [2, 3])
def test_cores_change_nothing_but_the_time(model: Model[Any], cores: int) -> None:
    assert summary(explore(model)) == summary(explore(model, cores=cores))


def test_bounds_hold_on_several_cores() -> None:
    assert summary(explore(Dial(5000), states_max=100)) == summary(explore(Dial(5000), states_max=100, cores=2))


def test_states_from_which_nothing_good_is_reachable_are_found() -> None:
    assert find_stuck(Dial(100), lambda state: state == 0) is None
    found = find_stuck(Dial(100, trap=24), lambda state: state == 0)
    assert found is not None
    assert found.trace[-1] == ("twice", "24")
    assert found.steps == 5
