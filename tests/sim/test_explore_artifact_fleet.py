"""The pointer never moves back and never names what is not there, whatever exporters and removals do side by side."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

import pytest

from tests.exploring import explore
from tests.models import ArtifactFleetModel, FleetBounds

SMALL = FleetBounds(revisions=2, pointers=2)
BACK, DANGLING = "the pointer moved back", "the pointer names what is not there"


def always(*_: object, **__: object) -> bool:
    return True


def aged_only(rank: int | None, pointer_rank: int, *, is_target: bool, is_aged: bool) -> bool:
    _ = rank, pointer_rank
    return is_aged and not is_target


def not_above(rank: int | None, pointer_rank: int, *, is_target: bool, is_aged: bool) -> bool:
    return not is_target and is_aged and rank is not None and rank <= pointer_rank


def marks_nothing(kept: Iterable[AbstractSet[str]]) -> AbstractSet[str]:
    _ = kept
    return frozenset()


MUTATIONS: dict[str, tuple[str, Callable[..., object], FleetBounds, str]] = {
    "LwwPointer": ("pointer_publish_allowed", always, SMALL, BACK),
    "PruneAgeOnly": ("payload_prunable", aged_only, SMALL, DANGLING),
    "PruneNotAbove": ("payload_prunable", not_above, SMALL._replace(revisions=1), DANGLING),
    "PruneSharedRun": ("marked_files", marks_nothing, SMALL, DANGLING),
    "ShareAnything": ("shared_files_allowed", always, SMALL._replace(pointers=3), DANGLING),
}


def test_the_pointer_is_sound_in_every_state_of_a_fleet_of_two() -> None:
    found = explore(ArtifactFleetModel(SMALL))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 10_000


@pytest.mark.long
@pytest.mark.parametrize("bounds", [FleetBounds(exporters=3), FleetBounds()], ids=str)
def test_the_pointer_is_sound_in_a_million_states_of_larger_fleets(bounds: FleetBounds) -> None:
    found = explore(ArtifactFleetModel(bounds), states_max=1_000_000)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.counterexample is None, found
    assert found.states > 900_000


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, broken, bounds, problem = MUTATIONS[mutation]
    monkeypatch.setattr(f"strandline.protocol.artifacts.{rule}", broken)
    found = explore(ArtifactFleetModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.problem == problem, found
