"""A cluster that grants no executor: how long that is waited for, and what is said of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.spark import executor_watch
from strandline.spark.executor_watch import ExecutorWatch, MasterState, MasterWorker, Wanted, parse_mib, reason

MASTER = "spark://host:7077"
FREE = MasterWorker(4, 4, 8192, 8192)
TAKEN = MasterWorker(4, 0, 8192, 8192)


def alive(*workers: MasterWorker, others: tuple[str, ...] = (), ended: int = 0) -> MasterState:
    return MasterState("ALIVE", workers, others, ended)


@pytest.mark.parametrize(
    ("state", "wanted", "words"),
    [
        (alive(), Wanted(1024), "no worker is registered with spark://host:7077"),
        (alive(FREE, FREE), Wanted(9000), "(spark.executor.memory); the largest of 2 workers has 8,192"),
        (alive(FREE), Wanted(1024, 5), "needs 5 cores (spark.executor.cores); the largest of 1 worker has 4"),
        (alive(TAKEN, others=("nightly",)), Wanted(1024), "0 free cores and 8,192 MiB free in all, held by nightly"),
        (alive(TAKEN._replace(cores_free=4, memory_free_mib=512)), Wanted(1024), "512 MiB free in all"),
        (alive(FREE, ended=3), Wanted(1024), "3 executors were started and ended at once"),
        (alive(FREE), Wanted(1024), "about to start"),
        (MasterState("STANDBY", (FREE,), (), 0), Wanted(1024), "is STANDBY"),
    ],
)
def test_the_reason_is_what_the_master_lacks(state: MasterState, wanted: Wanted, words: str) -> None:
    assert words in reason(MASTER, state, wanted)


@pytest.mark.parametrize(("text", "mib"), [("512m", 512), ("4g", 4096), ("1T", 1 << 20), ("2048k", 2), ("700", 700)])
def test_sizes_are_read_as_spark_writes_them(text: str, mib: int) -> None:
    assert parse_mib(text) == mib


class FakeJava:
    """A session whose Java says how many there are, the driver included."""

    def __init__(self) -> None:
        self.count = 1
        status = SimpleNamespace(size=lambda: self.count)
        scheduler = SimpleNamespace(getExecutorMemoryStatus=lambda: status)
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scheduler))


def test_it_is_said_in_time_and_again_when_the_last_executor_is_gone() -> None:
    session: Any = FakeJava()
    now = 0.0
    watched = ExecutorWatch(session, "yarn", clock=lambda: now)

    def said_by(until: float) -> float | None:
        nonlocal now
        while now < until:
            now += 0.5
            if (missing := watched.missing()) is not None:
                assert "yarn has not said why" in missing.reason
                return missing.seconds
        return None

    said = said_by(15)
    assert said is not None
    assert executor_watch.SAID_AFTER_S <= said < 15
    session.count = 3
    assert said_by(200) is None
    session.count = 1
    assert said_by(215) is not None


def test_a_master_that_cannot_be_asked_leaves_the_general_words() -> None:
    session: Any = FakeJava()
    now = 0.0
    watched = ExecutorWatch(session, MASTER, clock=lambda: now)
    now = 20.0
    missing = watched.missing()
    assert missing is not None
    assert "has not said why" in missing.reason
