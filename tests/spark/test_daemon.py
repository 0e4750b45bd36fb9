"""The parent of Spark's Python workers freezes the heap of each, once."""

import gc
import socket
from collections.abc import Iterator

import pytest

from strandline.spark import daemon


@pytest.fixture(autouse=True)
def _unfrozen_afterwards() -> Iterator[None]:
    yield
    gc.unfreeze()


def is_collected(thing: object) -> bool:
    return any(found is thing for found in gc.get_objects())


def test_the_first_task_of_a_worker_freezes_its_heap_although_the_interpreter_froze_some_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon, "_worker", lambda *_: 0)
    monkeypatch.setattr(daemon, "_is_heap_frozen", False)
    gc.freeze()  # as Python 3.12 does at its start
    loaded: list[object] = [[]]
    with socket.socket() as unused:
        assert daemon.worker(unused, True) == 0
        assert not is_collected(loaded)
        later: list[object] = [[]]
        daemon.worker(unused, True)
    assert is_collected(later)
