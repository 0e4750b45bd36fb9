"""Coordination over objects: whoever is next and whatever answer is lost, every promise holds, and no guard is idle."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.protocol import guards
from strandline.sim.explore import find_stuck
from tests.exploring import explore
from tests.models import object_coordination as models
from tests.models.object_coordination import ObjectCoordinationModel
from tests.mutations import mutate

World = Callable[[int], ObjectCoordinationModel]
SMALL: dict[str, tuple[World, int]] = {
    "takeover": (models.takeover, 0),
    "twins": (models.twins, 2),
    "cancelled": (models.cancelled, 1),
    "split": (models.split, 1),
    "unparked": (models.unparked, 0),
    "unparked at the end": (models.unparked_at_the_end, 1),
    "created": (models.created, 2),
}
LARGE: dict[str, tuple[World, int]] = {
    "takeover": (models.takeover, 2),
    "cancelled": (models.cancelled, 2),
    "split": (models.split, 2),
    "split twice": (models.split_twice, 0),
    "unparked": (models.unparked, 2),
    "unparked at the end": (models.unparked_at_the_end, 2),
}


class Mutation(NamedTuple):
    """A guard of `ObjectRecords`, and what it is replaced by; the world that shows the problem."""

    name: str
    old: str
    new: str
    world: World
    faults: int
    problem: str


MUTATIONS = [
    Mutation("_put", ", if_match=before.etag", "", models.takeover, 0, "a fence was given out twice"),
    Mutation("_put", ", if_absent=True", "", models.created, 0, "told of a run that is not there"),
    Mutation(
        "_put", "found.envelope.write == envelope.write", "True", models.takeover, 1, "told of a claim that is not"
    ),
    Mutation(
        "_put", "return False  # another", "return True  # another", models.twins, 1, "a fence was given out twice"
    ),
    Mutation(
        "_put",
        "secrets.token_bytes(NONCE_BYTES)",
        "bytes(NONCE_BYTES)",
        models.twins,
        1,
        "told of a claim that is not",
    ),
    Mutation(
        "commit",
        "if plan.unchanged_run is not None and not self._is_unchanged(plan.unchanged_run)",
        "if False",
        models.cancelled,
        0,
        "a shard was claimed after the end of its run",
    ),
    Mutation("_undo", "._replace(fence=change.after.fence)", "", models.cancelled, 0, "a fence went back"),
    Mutation("_apply", "found.envelope.applied == intent.id", "False", models.unparked, 0, "its run does not say so"),
    Mutation("_resolve", "if applied else", "if not applied else", models.unparked, 0, "an unpark that is not there"),
    Mutation("_existing", "record.parent is not None", "False", models.split, 0, "told of a part"),
    Mutation("_existing_shards", "record.parent is None or key in parts", "True", models.split, 0, "part"),
]


@pytest.mark.parametrize("world", SMALL)
def test_whoever_is_next_every_promise_holds(world: str) -> None:
    model, faults = SMALL[world]
    found = explore(model(faults))
    assert found.complete, found
    assert found.counterexample is None, found
    assert found.states > 100


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", LARGE)
def test_with_more_lost_answers_every_promise_holds(world: str) -> None:
    model, faults = LARGE[world]
    found = explore(model(faults))
    assert found.complete, found
    assert found.counterexample is None, found
    assert found.states > 10_000


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: f"{it.name}: {it.old}")
def test_without_a_guard_there_is_a_counterexample(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, ObjectRecords, mutation.name, mutation.old, mutation.new)
    found = explore(mutation.world(mutation.faults)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert mutation.problem in found.problem, found


def test_with_no_check_of_leases_a_shard_changes_under_an_old_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "check_lease", lambda *_: None)
    found = explore(models.takeover(0)).counterexample
    assert found is not None
    assert "under an old fence" in found.problem, found


def test_from_every_state_programs_that_go_on_come_to_an_end() -> None:
    model = models.unparked_at_the_end(1)
    assert find_stuck(model, model.is_over) is None
