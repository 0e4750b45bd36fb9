"""An exploration in bounded memory finds what one that keeps all states finds."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strandline.protocol import artifacts
from strandline.sim.explore import Exploration, Model, Tally, explore
from strandline.sim.explore_large import FingerprintTable, explore_large
from tests.models.fleet import FleetBounds, FleetModel
from tests.sim.small_models import Dial, Jugs, Pouring

MODELS: list[Model[Any]] = [
    Dial(5000),
    Dial(5000, forbidden=(700, 701)),
    Dial(5000, fatal=777),
    Dial(2),
    Pouring(),
    Pouring(unwanted=0),
    Pouring(None, Jugs(7, 11)),
    FleetModel(FleetBounds(nodes=1, revisions=2, exports=1, crashes=1)),
]


def counts(found: Exploration) -> tuple[object, ...]:
    """Return everything but how long it took and which of the shortest counterexamples it is."""
    way = found.counterexample
    return found.states, found.transitions, found.depth, found.complete, way and (way.problem, way.steps)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model).partition(" object")[0])
@pytest.mark.parametrize("cores", [1, 3])
def test_it_finds_what_explore_finds(model: Model[Any], cores: int) -> None:
    assert counts(explore_large(model, cores=cores)) == counts(explore(model))


def test_the_counterexample_reads_as_a_story() -> None:
    assert explore_large(Pouring(), cores=2).counterexample == explore(Pouring()).counterexample


def test_a_rule_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "pointer_publish_allowed", lambda *_: True)
    model = FleetModel(FleetBounds(revisions=2))
    assert counts(explore_large(model, cores=2)) == counts(explore(model))


def test_bounds_end_it_after_a_level() -> None:
    model = Dial(5000)
    assert counts(explore_large(model, cores=2, states_max=100)) == counts(explore(model, states_max=100))
    assert counts(explore_large(model, cores=2, depth_max=3)) == counts(explore(model, depth_max=3))


def test_each_level_is_told_and_no_file_stays(tmp_path: Path) -> None:
    told: list[Tally] = []
    found = explore_large(Dial(5000), folder=tmp_path, on_level=told.append)
    assert told[-1].states == found.states
    assert len(told) == found.depth + 1  # the last one finds nothing new
    assert not list(tmp_path.iterdir())


def test_a_table_is_a_set_with_parents() -> None:
    chance = random.Random(7)
    table, expected = FingerprintTable(4), dict[int, int]()
    for _ in range(300):
        # Neighbours and equal low bits come to the same slots.
        batch = {chance.choice([chance.randrange(1, 3000), chance.randrange(1, 99) << 48]) for _ in range(60)}
        parents = {key: chance.randrange(1 << 63) for key in batch}
        keys = np.array(sorted(batch), np.uint64)
        is_new = table.add(keys, np.array([parents[int(key)] for key in keys], np.uint64))
        assert is_new.tolist() == [int(key) not in expected for key in keys]
        expected = parents | expected
    assert len(table) == len(expected)
    assert {key: table.parent(key) for key in expected} == expected
    assert table.parent(1 << 60) is None


def test_a_table_takes_54_bytes_a_state_at_most() -> None:
    table = FingerprintTable()
    keys = np.arange(1, 1 << 17, dtype=np.uint64) * np.uint64(0x5851F42D4C957F2D)
    table.add(keys, keys)
    assert table.nbytes <= 54 * len(keys)
