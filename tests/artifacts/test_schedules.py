"""Whatever order requests take and wherever they fail, the pointer stays whole and newcomers have the truth."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from strandline.artifacts import ArtifactFile, ArtifactInvalid, Manifest, PublishedArtifacts
from strandline.artifacts.transfers import Uploads
from strandline.protocol import artifacts as rules
from tests import tally
from tests.artifacts.schedules import in_one_thread, run_schedule

SEEDS, SEEDS_LONG, SEEDS_CAMPAIGN = 20, 500, 32_000
PARTS = 16


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    in_one_thread(monkeypatch)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Lend a folder in memory, where the system has one: schedules wait for no disk."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it is this test's own
    with TemporaryDirectory(prefix="strandline-schedules-", dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def run_all(seeds: Iterable[int], folder: Path) -> None:
    for seed in seeds:
        run_schedule(seed, folder / str(seed))
        tally.count(tally.SEEDS)


def test_the_fleet_stays_right(folder: Path) -> None:
    only = os.environ.get("STRANDLINE_SCHEDULE")
    run_all(range(SEEDS) if only is None else [int(only)], folder)


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("pointer_publish_allowed", lambda *_: True),
        ("marked_files", lambda _: frozenset()),
        pytest.param(
            "payload_prunable", lambda *_, is_target, is_aged: is_aged and not is_target, marks=pytest.mark.long
        ),
    ],
    ids=["LwwPointer", "PruneSharedRun", "PruneAgeOnly"],
)
def test_without_a_rule_some_seed_fails(
    rule: str, broken: Callable[..., object], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, rule, broken)
    with pytest.raises((AssertionError, ArtifactInvalid)):
        run_all(range(SEEDS_LONG), folder)


def test_with_the_pointer_before_the_payload_some_seed_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, move = Uploads.upload, PublishedArtifacts._move_pointer  # noqa: SLF001
    waiting: list[Callable[[], bool]] = []

    def put_off(self: Uploads, files: Iterable[ArtifactFile]) -> bool:
        waiting.append(partial(upload, self, list(files)))
        return True

    def move_first(self: PublishedArtifacts, manifest: Manifest, seen: Any) -> bool:  # noqa: ANN401 - its own
        return move(self, manifest, seen) and waiting.pop()()

    monkeypatch.setattr(Uploads, "upload", put_off)
    monkeypatch.setattr(PublishedArtifacts, "_move_pointer", move_first)
    with pytest.raises((AssertionError, ArtifactInvalid)):
        run_all(range(SEEDS_LONG), folder)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_fleet_stays_right_in_many_schedules(folder: Path) -> None:
    run_all(range(SEEDS, SEEDS_LONG), folder)


@pytest.mark.campaign("artifact-faults")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_fleet_stays_right_in_all_schedules(part: int, folder: Path) -> None:
    run_all(range(part, SEEDS_CAMPAIGN, PARTS), folder)
