"""A fold's cursor names only what is stored, whatever fails: every state of the model is fine, and no rule is idle."""

import os
from collections.abc import Callable, Sequence

import pytest

from strandline.protocol.flushes import Reopened
from strandline.sim.explore import explore, find_stuck
from tests.models.cursors import CursorBounds, CursorModel, Update

SMALL = CursorBounds(revisions=5, crashes=2)
TORN = SMALL._replace(torn=True)
CORES = os.cpu_count() or 1


def drop_failed_batch(_: Sequence[Update], pending: Sequence[Update]) -> tuple[Update, ...]:
    return tuple(pending)


def requeue_behind(failed: Sequence[Update], pending: Sequence[Update]) -> tuple[Update, ...]:
    return (*pending, *failed)


def unknown_revision_is_zero(_: int, revision: int | None) -> int:
    return revision or 0


MUTATIONS: list[tuple[str, Callable[..., object], int, str]] = [
    ("requeue", drop_failed_batch, 4, "the cursor names an update that is not stored"),
    ("requeue", requeue_behind, 5, "the cursor names an update that is not stored"),
    ("batch_high", unknown_revision_is_zero, 4, "the cursor went back"),
]


def stores_again_whatever_is_there(*_: int) -> Reopened:
    return Reopened.AGAIN


@pytest.mark.parametrize("bounds", [SMALL, TORN], ids=["answers are lost", "batches are torn too"])
def test_a_cursor_names_only_what_is_stored(bounds: CursorBounds) -> None:
    found = explore(CursorModel(bounds))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize("bounds", [SMALL, TORN], ids=["answers are lost", "batches are torn too"])
def test_from_every_state_everything_can_still_be_stored(bounds: CursorBounds) -> None:
    model = CursorModel(bounds)
    assert find_stuck(model, model.is_done) is None


@pytest.mark.parametrize("reopens", [True, False])
def test_a_store_that_tears_batches_and_loses_answers_is_opened_again_and_believed(
    reopens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reopens:
        monkeypatch.setattr("strandline.protocol.flushes.after_reopening", stores_again_whatever_is_there)
    found = explore(CursorModel(TORN._replace(reopens=reopens))).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (5, "the cursor names an update that is not stored"), found


@pytest.mark.parametrize(("rule", "broken", "steps", "problem"), MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(
    rule: str, broken: Callable[..., object], steps: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"strandline.protocol.flushes.{rule}", broken)
    found = explore(CursorModel(SMALL)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, problem in found.problem) == (steps, True), found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("torn", [False, True], ids=["answers are lost", "batches are torn too"])
def test_a_cursor_names_only_what_is_stored_over_more_crashes(torn: bool) -> None:
    bounds = CursorBounds(revisions=7, pending_max=4, failures_max=3, crashes=3, torn=torn)
    found = explore(CursorModel(bounds), cores=CORES)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
