"""A pool of replicators: one that is held up holds up no other."""

import threading
from pathlib import Path

import pytest

from strandline.objects import MemoryObjects
from strandline.replica import Layout, ReplicaPool, Replicator, restore
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S


class Hanging(MemoryObjects):
    """A store that does not answer while it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.is_hanging = False
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def put(self, *arguments: object, **options: object) -> str:
        """Write an object when the store answers again."""
        if self.is_hanging:
            self.asked.set()
            assert self.goes_on.wait(PATIENCE_S)
        return super().put(*arguments, **options)  # type: ignore[arg-type]


def test_stores_that_do_not_answer_hold_no_other_replicator_up(tmp_path: Path) -> None:
    stores, healthy = [Hanging(), Hanging(), Hanging()], MemoryObjects()
    for number in range(4):
        with database(tmp_path / f"{number}.db") as connection:
            fill(connection, 2)
    with ReplicaPool(workers=1) as pool:
        for number, store in enumerate(stores):
            pool.start(Replicator(tmp_path / f"{number}.db", store)).wait_durable(PATIENCE_S)
            store.is_hanging = True
        running = pool.start(Replicator(tmp_path / "3.db", healthy))
        for number, store in enumerate(stores):
            with database(tmp_path / f"{number}.db") as connection:
                fill(connection, 1)
            assert store.asked.wait(PATIENCE_S), "it has a thread"
        with database(tmp_path / "3.db") as connection:
            fill(connection, 5, seed=1)
        running.wait_durable(PATIENCE_S)
        restore(healthy, Layout(healthy), tmp_path / "copy.db")
        assert content(tmp_path / "copy.db") == content(tmp_path / "3.db")
        for store in stores:
            store.goes_on.set()


def test_all_replicators_of_a_pool_ship_what_is_left_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.replica.pace.BURST", 1)
    monkeypatch.setattr("strandline.replica.pool.FLUSH_S", PATIENCE_S)

    class Last(MemoryObjects):
        """A store that lets another one go on."""

        def put(self, *arguments: object, **options: object) -> str:
            if first.is_hanging:
                first.goes_on.set()
            return super().put(*arguments, **options)  # type: ignore[arg-type]

    first, last = Hanging(), Last()
    for name in ("first.db", "last.db"):
        with database(tmp_path / name) as connection:
            fill(connection, 2)
    pool = ReplicaPool()
    for name, store in (("first.db", first), ("last.db", last)):
        pool.start(Replicator(tmp_path / name, store, upload_every_s=3600.0)).wait_durable(PATIENCE_S)
    first.is_hanging = True
    for name in ("first.db", "last.db"):
        with database(tmp_path / name) as connection:
            fill(connection, 1)
    pool.close()  # raises where the first is waited for before the last is asked
    restore(last, Layout(last), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "last.db")
