"""Snapshots and restores within one account: what it may use holds for what comes back as well."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.snapshots import service
from tests.broker.jetstream.fakes import World
from tests.broker.snapshots.test_s2 import REAL


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.jetstream.streams.executor = None  # so that nothing is left to other threads
    yield world
    world.close()


def _limit(world: World, **limits: int) -> None:
    world.jetstream.streams.limits = replace(world.jetstream.streams.limits, **limits)  # type: ignore[arg-type]


def _begin(world: World, name: str = "S") -> dict[str, Any]:
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
    return world.ask(f"STREAM.RESTORE.{name}", {"config": config})


def _end(world: World, place: str) -> dict[str, Any]:
    world.routes.take()
    world.routes.publish((place, b"", "end"))
    answer: dict[str, Any] = json.loads(next(payload for subject, payload in world.routes.take() if subject == "end"))
    return answer


def _restore(world: World, name: str = "S") -> dict[str, Any]:
    place = _begin(world, name)["deliver_subject"]
    for at in range(0, len(REAL), 10_000):
        world.routes.publish((place, REAL[at : at + 10_000], "chunk"))
    return _end(world, place)


def test_a_stream_comes_back_where_there_is_room(world: World) -> None:
    _limit(world, max_streams=1, max_memory=10_000_000, max_consumers=1)
    assert _restore(world)["state"]["messages"] == 22


def test_a_restore_that_is_one_stream_too_many_is_refused(world: World) -> None:
    _limit(world, max_streams=1)
    world.stream("A", "a")
    assert _begin(world)["error"]["err_code"] == 10027


def test_of_two_restores_the_one_that_ends_too_late_is_refused(world: World) -> None:
    _limit(world, max_streams=1)
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, REAL, "chunk"))
    world.stream("A", "a")
    assert _end(world, place)["error"]["err_code"] == 10027
    assert list(world.jetstream.streams.streams) == ["A"]


def test_a_restore_that_is_too_large_is_refused_and_takes_no_more(world: World) -> None:
    _limit(world, max_memory=5_000)
    assert _restore(world)["error"]["err_code"] == 10028
    assert not world.jetstream.streams.streams


def test_a_restore_with_too_many_consumers_is_refused(world: World) -> None:
    _limit(world, max_consumers=1)
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, REAL, "chunk"))
    found = next(iter(world.jetstream.snapshots._restores.values())).restoring.consumers  # noqa: SLF001
    found.append(found[0]._replace(name="d"))
    assert _end(world, place)["error"]["err_code"] == 10026
    assert not world.jetstream.streams.streams


def test_only_so_many_restores_are_under_way_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RESTORES_MAX", 2)
    assert all("error" not in _begin(world, name) for name in "ST")
    assert _begin(world, "U")["error"]["err_code"] == 10062
