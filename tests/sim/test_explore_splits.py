"""However a shard is split, its parts are exactly the whole: every state of the model is fine, and no guard is idle."""

import os
from collections.abc import Callable

import pytest

from strandline.protocol import splits
from strandline.protocol.shards import ShardRecord, ShardSpec
from tests.exploring import explore
from tests.models import SplitBounds, SplitModel

SMALL = SplitBounds(keys=3, shards_max=4)
CORES = os.cpu_count() or 1
part_of = splits._child  # noqa: SLF001 - what a part begins with has no name of its own


def allow(*_: object) -> None:
    """Refuse nothing, and find nothing."""


def part_that_begins_at_its_end(parent: ShardRecord, shard: int, spec: ShardSpec) -> ShardRecord:
    record = part_of(parent, shard, spec)
    return record._replace(cursor=record.cursor._replace(key=bytes([spec.end[0] - 1])))


def part_that_begins_anew(parent: ShardRecord, shard: int, spec: ShardSpec) -> ShardRecord:
    return part_of(parent._replace(cursor=parent.cursor._replace(key=b"")), shard, spec)


def same_id(*_: object) -> int:
    return -1


MUTATIONS: list[tuple[str, Callable[..., object], int, str]] = [
    ("guards.check_parts", allow, 2, "the shards are not exactly all keys"),
    ("guards.check_children_count", allow, 2, "it is split into fewer than two"),
    ("guards.check_cursor_kept", allow, 3, "its cursor is out of bounds"),
    ("splits.replay", allow, 3, "a repeated split was refused"),
    ("splits._child", part_that_begins_at_its_end, 2, "a split made keys count as scanned"),
    ("splits._child", part_that_begins_anew, 3, "a split forgot its cursor"),
    ("splits.split_id", same_id, 2, "it spawned a shard twice"),
]


@pytest.mark.parametrize("memory", [16, 1], ids=["operations are remembered", "operations are soon forgotten"])
def test_the_shards_are_always_exactly_all_keys(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocol.leases.OPS_PER_SHARD_MAX", memory)
    found = explore(SplitModel(SMALL))
    assert found.complete, found
    assert found.states > 400


@pytest.mark.parametrize(("guard", "broken", "steps", "problem"), MUTATIONS)
def test_without_a_guard_there_is_a_counterexample(
    guard: str, broken: Callable[..., object], steps: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"strandline.protocol.{guard}", broken)
    found = explore(SplitModel(SMALL)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, problem in found.problem) == (steps, True), found


def test_a_residual_split_that_is_forgotten_is_still_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocol.leases.OPS_PER_SHARD_MAX", 1)
    monkeypatch.setattr("strandline.protocol.splits.find_residual", allow)
    found = explore(SplitModel(SMALL)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.problem == "a repeated split was refused"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("memory", [16, 2, 1])
def test_the_shards_of_a_larger_family_are_exactly_all_keys(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocol.leases.OPS_PER_SHARD_MAX", memory)
    found = explore(SplitModel(SplitBounds(keys=4, shards_max=5)), cores=CORES)
    assert found.complete, found
