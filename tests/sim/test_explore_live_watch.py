"""A watcher that is overrun notices, and one that is not is left alone: guarded, and with a sentinel, not without."""

import os
from collections.abc import Callable

import pytest

from tests.exploring import explore
from tests.models.live_watch import LiveBounds, LiveWatchModel

ALL = LiveBounds(revisions=5, keys=2, own=2)
HISTORY = ALL._replace(history=2)
SOME = LiveBounds(revisions=4, keys=2, own=1, sentinel=True)
ALONE = SOME._replace(sentinel=False)
PROBED = ALONE._replace(probes=True)
UNNOTICED = "a loss went unnoticed"
IDLE = "a watcher that has everything was repaired"
CORES = os.cpu_count() or 1


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def sentinel_runs_ahead(delivered: int, sentinel: int, _: int | None) -> int:
    return max(delivered, sentinel)


def sentinel_is_not_asked(delivered: int, _: int, __: int | None) -> int:
    return delivered


def awaited_counts_as_there(delivered: int, sentinel: int, awaited: int | None) -> int:
    return max(delivered, sentinel if awaited is None else awaited)


def window_of_one_more(revision: int, first: int) -> bool:
    return first <= revision + 2


MUTATIONS: list[tuple[str, Callable[..., object], LiveBounds, int, str]] = [
    ("is_gapped", never, ALL, 5, UNNOTICED),
    ("is_gapped", never, SOME, 5, UNNOTICED),
    ("resume_window_ok", always, ALL, 2, UNNOTICED),
    ("resume_window_ok", window_of_one_more, ALL, 2, UNNOTICED),
    ("resume_window_ok", always, PROBED, 2, UNNOTICED),
    ("is_gapped", never, PROBED._replace(own=2), 5, UNNOTICED),
    ("proven_frontier", sentinel_runs_ahead, SOME, 4, UNNOTICED),
    ("proven_frontier", awaited_counts_as_there, SOME, 4, UNNOTICED),
    ("proven_frontier", sentinel_is_not_asked, SOME, 5, IDLE),
]


@pytest.mark.parametrize(
    "bounds",
    [ALL, HISTORY, SOME, PROBED],
    ids=["all keys", "two values a key", "some, with a sentinel", "some, with probes"],
)
def test_a_guarded_watcher_never_misses_a_loss(bounds: LiveBounds) -> None:
    found = explore(LiveWatchModel(bounds))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        (ALL._replace(guarded=False), UNNOTICED),
        (ALONE._replace(guarded=False), UNNOTICED),
        (ALONE, IDLE),
        (ALL._replace(marker_purges=True), UNNOTICED),
    ],
    ids=["all keys, unguarded", "some, unguarded", "some, guarded alone", "markers go from the middle"],
)
def test_what_no_guard_or_the_wrong_one_leads_to(bounds: LiveBounds, problem: str) -> None:
    found = explore(LiveWatchModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.problem == problem, found


@pytest.mark.parametrize(("rule", "broken", "bounds", "steps", "problem"), MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(
    rule: str,
    broken: Callable[..., object],
    bounds: LiveBounds,
    steps: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"strandline.protocol.windows.{rule}", broken)
    found = explore(LiveWatchModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, found.problem) == (steps, problem), found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "bounds",
    [
        LiveBounds(revisions=7, keys=3, own=3),
        LiveBounds(revisions=6, keys=2, own=2, history=2),
        LiveBounds(revisions=5, keys=3, own=2, sentinel=True),
        LiveBounds(revisions=6, keys=2, own=1, sentinel=True),
        LiveBounds(revisions=6, keys=3, own=2, probes=True),
    ],
    ids=[
        "three keys",
        "two values a key",
        "two of three, with a sentinel",
        "one of two, with a sentinel",
        "two of three, with probes",
    ],
)
def test_a_guarded_watcher_of_a_longer_log_never_misses_a_loss(bounds: LiveBounds) -> None:
    found = explore(LiveWatchModel(bounds), cores=CORES)
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
