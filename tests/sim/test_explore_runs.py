"""Whatever orchestrators do, a run has one beginning and one end: every state is fine, and no guard can be left out."""

from collections.abc import Callable

import pytest

from strandline.protocol import runs
from strandline.protocol.shards import OpEntry, Outcome
from tests.exploring import explore
from tests.models import RunModel


def allow(*_: object) -> None:
    """Refuse nothing, and remember nothing."""


def replay_whatever_the_content(ops: tuple[OpEntry, ...], op_id: int, _: int) -> Outcome | None:
    return next((entry.outcome for entry in ops if entry.op_id == op_id), None)


def remember_nothing(*_: object) -> tuple[OpEntry, ...]:
    return ()


MUTATIONS: list[tuple[str, Callable[..., object], int, str]] = [
    ("check_run_not_over", allow, 3, "a run that is over changed"),
    ("check_run_active", allow, 3, "a run that is over changed"),
    ("check_run_initializing", allow, 3, "it is active and still being given its shards"),
    ("check_run_finished", allow, 3, "a run is done, and a shard is not"),
    ("check_parked", allow, 3, "a shard was unparked that was not parked"),
    ("check_initial_shards", allow, 2, "an active run has not the shards of one registration"),
    ("replay", allow, 2, "a repeated operation was refused"),
    ("replay", replay_whatever_the_content, 3, "an operation's id was taken for other content"),
    ("remember", remember_nothing, 1, "an operation that was done is not remembered"),
]


def test_no_step_breaks_a_law() -> None:
    found = explore(RunModel())
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize(("guard", "broken", "steps", "problem"), MUTATIONS)
def test_without_a_guard_there_is_a_counterexample(
    guard: str, broken: Callable[..., object], steps: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, guard, broken)
    found = explore(RunModel()).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, problem in found.problem) == (steps, True), found
