"""The collector is told to leave alone what a planner has loaded, and nothing in any other process."""

import gc
import sys
from importlib.machinery import ModuleSpec

import pytest

from strandline.spark import collector


def spared(monkeypatch: pytest.MonkeyPatch, main: str | None) -> int:
    """Return how many objects are out of sight after a call, in a process whose main module has this name."""
    spec = None if main is None else ModuleSpec(main, None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(collector, "_is_done", False)
    gc.unfreeze()
    try:
        collector.spare_planner()
        collector.spare_planner()
        return gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_a_planner_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spared(monkeypatch, "pyspark.daemon") > 1000


@pytest.mark.parametrize("main", ["pytest", None])
def test_the_heap_of_any_other_process_is_left_alone(monkeypatch: pytest.MonkeyPatch, main: str | None) -> None:
    assert spared(monkeypatch, main) == 0
