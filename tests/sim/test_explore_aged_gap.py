"""A hole after a young cursor holds no eviction, unless clocks disagree by more than half of what expires."""

from collections.abc import Callable

import pytest

from tests.exploring import explore
from tests.models import AgedBounds, AgedGapModel

SMALL = AgedBounds(revisions=3)


def young_if_not_expired(age_max_ns: int, cursor_age_ns: int, *, age_only: bool) -> bool:
    return age_only and cursor_age_ns < age_max_ns


def young_whatever_evicts(age_max_ns: int, cursor_age_ns: int, *, age_only: bool) -> bool:
    _ = age_only
    return 2 * cursor_age_ns <= age_max_ns


MUTATIONS: list[tuple[Callable[..., object], AgedBounds, int]] = [
    (young_if_not_expired, SMALL, 7),
    (young_whatever_evicts, SMALL._replace(age_only=False), 3),
]


@pytest.mark.parametrize("skew", [0, 1])
def test_whoever_goes_on_past_a_young_hole_misses_nothing(skew: int) -> None:
    found = explore(AgedGapModel(SMALL._replace(skew=skew)))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize(("broken", "bounds", "steps"), MUTATIONS)
def test_without_a_clause_there_is_a_counterexample(
    broken: Callable[..., object], bounds: AgedBounds, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.protocol.windows.gap_holds_no_eviction", broken)
    found = explore(AgedGapModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, "a change is missed"), found


def test_clocks_that_disagree_by_half_or_more_are_too_much() -> None:
    found = explore(AgedGapModel(SMALL._replace(skew=2))).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.problem == "a change is missed", found
