"""A lake's pages and tables: whoever is next and whatever answer is lost, every promise holds, and no guard is idle."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.delta_log import DeltaLog
from strandline.pipeline.lake.page_cache import PageCache
from tests.exploring import explore
from tests.models import lake_pages as models
from tests.models.object_programs import ObjectModel
from tests.mutations import mutate

World = Callable[[int], ObjectModel]
SMALL: dict[str, tuple[World, int]] = {
    "overtaken": (models.overtaken, 1),
    "compactor and reader": (models.compactor_and_reader, 1),
}
LARGE: dict[str, tuple[World, int]] = {
    "overtaken": (models.overtaken, 2),
    "compactor and reader": (lambda faults: models.compactor_and_reader(faults, reads=2), 2),
    "folds and writer": (models.folds_and_writer, 1),
}


class Mutation(NamedTuple):
    """A guard, and what it is replaced by; the world that shows the problem."""

    owner: type
    name: str
    old: str
    new: str
    world: World
    faults: int
    problem: str


EARLY_RECORD = """pages = [page for pages in plan.pages.values() for page in pages]
        self._store.put(f"{COMPACTION}early.json", format_record(pages, []), if_absent=True)
        # Parents first"""

MUTATIONS = [
    Mutation(
        PageCache, "write", "if self.store.head(key) is not None", "if True", models.overtaken, 1, "that are not there"
    ),
    Mutation(Compaction, "_run", "# Parents first", EARLY_RECORD, models.compactor_and_reader, 0, "a row was lost"),
]

LONG_MUTATIONS = [
    Mutation(DeltaLog, "commit", ", if_absent=True", "", models.folds_and_writer, 0, "a row was lost"),
    Mutation(
        DeltaLog, "commit", "if named.encode() in found.body", "if True", models.folds_and_writer, 1, "a row was lost"
    ),
]
EVERY_MUTATION = [*MUTATIONS, *(pytest.param(one, marks=pytest.mark.long) for one in LONG_MUTATIONS)]


@pytest.mark.parametrize("world", SMALL)
def test_whoever_is_next_every_promise_holds(world: str) -> None:
    model, faults = SMALL[world]
    found = explore(model(faults))
    assert found.complete, found
    assert found.counterexample is None, found
    assert found.states > 1_000


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", LARGE)
def test_with_more_lost_answers_every_promise_holds(world: str) -> None:
    model, faults = LARGE[world]
    found = explore(model(faults))
    assert found.complete, found
    assert found.counterexample is None, found
    assert found.states > 1_000


@pytest.mark.parametrize("mutation", EVERY_MUTATION, ids=lambda it: f"{it.name}: {it.old}")
def test_without_a_guard_there_is_a_counterexample(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, mutation.owner, mutation.name, mutation.old, mutation.new)
    found = explore(mutation.world(mutation.faults)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert mutation.problem in found.problem, found


@pytest.mark.parametrize("module", ["ledger", "findings"])
def test_with_no_check_of_fences_a_page_begun_under_an_old_one_is_taken(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"strandline.pipeline.lake.{module}.check_fence", lambda *_: None)
    found = explore(models.overtaken(0)).counterexample
    assert found is not None
    assert f"{module} begun under an old fence" in found.problem, found


def test_a_reader_that_takes_a_first_commit_for_one_of_another_tool_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, DeltaLog, "_has_begun", "format_commit_key(self._table, 0) not in listed", "True")
    found = explore(models.compactor_and_reader(0)).counterexample
    assert found is not None
    assert "TableAltered" in found.problem, found
