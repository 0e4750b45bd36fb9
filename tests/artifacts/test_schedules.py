"""Whatever order requests take and wherever they fail, the pointer stays whole and newcomers have the truth."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from strandline.artifacts import ArtifactInvalid, transfers
from strandline.protocol import artifacts as rules
from tests import tally
from tests.artifacts.schedules import run_schedule

SEEDS, SEEDS_LONG, SEEDS_CAMPAIGN = 20, 500, 32_000
PARTS = 16


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request at a time, so that a seed is a schedule."""
    monkeypatch.setattr(transfers, "PARALLEL", 1)


def run_all(seeds: Iterable[int], folder: Path) -> None:
    for seed in seeds:
        run_schedule(seed, folder / str(seed))
        tally.count(tally.SEEDS)


def test_the_fleet_stays_right(tmp_path: Path) -> None:
    only = os.environ.get("STRANDLINE_SCHEDULE")
    run_all(range(SEEDS) if only is None else [int(only)], tmp_path)


@pytest.mark.parametrize(
    ("rule", "broken"),
    [("pointer_publish_allowed", lambda *_: True), ("marked_files", lambda _: frozenset())],
    ids=["LwwPointer", "PruneSharedRun"],
)
def test_without_a_rule_some_seed_fails(
    rule: str, broken: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, rule, broken)
    with pytest.raises((AssertionError, ArtifactInvalid)):
        run_all(range(SEEDS_LONG), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_fleet_stays_right_in_many_schedules(tmp_path: Path) -> None:
    run_all(range(SEEDS, SEEDS_LONG), tmp_path)


@pytest.mark.campaign("artifact-faults")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_fleet_stays_right_in_all_schedules(part: int, tmp_path: Path) -> None:
    run_all(range(part, SEEDS_CAMPAIGN, PARTS), tmp_path)
