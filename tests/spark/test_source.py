"""The format by name: a planner's heap is frozen once, and that of any other process is left alone."""

import gc
import pickle
import sys
from importlib.machinery import ModuleSpec

import pytest
from pyspark.sql.types import BinaryType, StructType

from strandline.spark import source


def frozen(monkeypatch: pytest.MonkeyPatch, main: str | None) -> int:
    """Return how many objects are frozen after two calls, in a process whose main module has this name."""
    spec = None if main is None else ModuleSpec(main, None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(source, "_is_heap_frozen", False)
    gc.unfreeze()
    try:
        source.freeze_planner_heap()
        source.freeze_planner_heap()
        return gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_a_planner_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert frozen(monkeypatch, "pyspark.daemon") > 1000


@pytest.mark.parametrize("main", ["pytest", None])
def test_the_heap_of_any_other_process_is_left_alone(monkeypatch: pytest.MonkeyPatch, main: str | None) -> None:
    assert frozen(monkeypatch, main) == 0


@pytest.mark.parametrize("door", ["reader", "streamReader", "writer", "streamWriter"])
def test_every_door_of_an_unpickled_source_freezes_its_planner(monkeypatch: pytest.MonkeyPatch, door: str) -> None:
    made = pickle.loads(pickle.dumps(source.StrandlineSource({"path": "journal"})))  # noqa: S301 - our own
    called = list[str]()
    monkeypatch.setattr(source, "freeze_planner_heap", lambda: called.append(door))
    given = [StructType().add("value", BinaryType())]
    getattr(made, door)(*given, *([False] if door.lower().endswith("writer") else []))
    assert called == [door]
