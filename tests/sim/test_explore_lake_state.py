"""Scanner state of a lake: whichever writer is next, batches are whole and none is lost, and no guard is idle."""

from collections.abc import Callable

import pytest

from strandline.pipeline.lake.state_log import StateLog
from tests.exploring import explore
from tests.models import lake_state as models
from tests.models.lake_state import StateLogModel
from tests.mutations import mutate

WORLDS = {
    "two writers": lambda: models.two_writers(2),
    "writer and reader": lambda: models.writer_and_reader(2),
}
MUTATIONS = [
    ("_create", ", if_absent=True", "", models.two_writers, "a batch was lost"),
    ("_is_ours", "parse_batch(found.body, key).id == batch.id", "True", models.two_writers, "a batch was lost"),
    (
        "_is_next",
        "self._store.head(format_trimmed(self._tenant)) is None",
        "True",
        models.sleeper,
        "a batch was lost",
    ),
]


@pytest.mark.parametrize("world", WORLDS)
def test_whichever_writer_is_next_every_batch_is_whole_and_none_is_lost(world: str) -> None:
    found = explore(WORLDS[world]())
    assert found.complete, found
    assert found.counterexample is None, found
    assert found.states > 1_000


def test_a_writer_that_slept_until_its_number_was_deleted_loses_no_batch_to_a_depth() -> None:
    found = explore(models.sleeper(0), depth_max=23)
    assert found.counterexample is None, found
    assert found.states > 10_000


@pytest.mark.parametrize(("name", "old", "new", "world", "problem"), MUTATIONS)
def test_without_a_guard_a_batch_is_lost(
    name: str, old: str, new: str, world: Callable[[int], StateLogModel], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, StateLog, name, old, new)
    found = explore(world(0)).counterexample
    assert found is not None
    assert problem in found.problem, found


def test_with_no_check_of_fences_a_batch_is_accepted_under_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.pipeline.lake.state.check_fence", lambda *_: None)
    found = explore(models.two_writers(0)).counterexample
    assert found is not None
    assert "under an old fence" in found.problem, found
