"""Replicators and applications killed at a system call, or at random, with a store that is slow or away.

After each kill everything that was said to be durable is restored, and the database is whole; the next process goes on.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, NamedTuple

import apsw
import pytest

from strandline.objects import open_objects
from strandline.replica import Layout, Replicator, replicator, restore
from tests import tally
from tests.replica.databases import content
from tests.replica.kill_children import CHECKPOINT_BYTES, insert, opened
from tests.straced import strace_problem, traced
from tests.waiting import PATIENCE_S

CALLS = ("pwrite64", "write", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "openat")
PARTS = ("both", "both", "replicator", "application")
HOW = ("plain", "slow", "away")
CALL_MAX = {"pwrite64": 60, "write": 30, "openat": 40}
ROWS = 40
POINTS = 6
POINTS_CAMPAIGN = 1000
RANDOM_CAMPAIGN = 300
FRESH_EVERY = 40


class Kill(NamedTuple):
    """Where a process is killed: at the n-th of a call of one of its threads, or after a while."""

    part: str
    how: str
    call: str | None
    when: int
    after_s: float


class Children:
    """The process that forks children."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asks: IO[str] = process.stdin
        self._answers: IO[str] = process.stdout

    def run(self, place: Path, kill: Kill, seed: int) -> int:
        """Start a child, kill it where it is to be killed, and return how it ended."""
        (place / "go").unlink(missing_ok=True)
        asked: dict[str, object] = {"place": str(place), "part": kill.part, "how": kill.how, "seed": seed, "rows": ROWS}
        asked["after_s"] = None if kill.call else kill.after_s
        print(json.dumps(asked), file=self._asks, flush=True)
        pid = int(self._answers.readline())
        inject = ("-e", f"trace={kill.call}", "-e", f"inject={kill.call}:signal=SIGKILL:when={kill.when}")
        with traced(pid, *inject) if kill.call else nullcontext():
            (place / "go").touch()
            return int(self._answers.readline())


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    """A process that forks children, with everything imported."""
    command = [sys.executable, "-m", "tests.replica.kill_children"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield Children(process)
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def beside(place: Path, kill: Kill, seed: int) -> Iterator[None]:
    """Have the other half run here while one half is killed."""
    if kill.part == "both":
        yield
        return
    stop = threading.Event()

    def write() -> None:
        connection, chance = opened(place / "a.db"), random.Random(seed)
        while not stop.is_set():
            insert(connection, chance)
            time.sleep(0.001)
        connection.close()

    if kill.part == "replicator":
        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        return
    opened(place / "a.db").close()
    store = open_objects(f"file://{place}/replica")
    with Replicator(place / "a.db", store) as running:
        yield
        running.wait_durable(PATIENCE_S)
    store.close()


def check(place: Path, kill: Kill, seed: int) -> None:
    """Restore, and hold it against what was said."""
    said = {int(line) for line in (place / "said").read_text().splitlines(keepends=True) if line.endswith("\n")}
    if not (place / "replica").exists() or not said:
        return
    out = place / "out.db"
    store = open_objects(f"file://{place}/replica")
    restore(store, Layout(store), out)
    store.close()
    content(out)
    connection = apsw.Connection(str(out))
    found = {number for (number,) in connection.execute("SELECT id FROM t")}
    connection.close()
    out.unlink()
    assert max(said) in found, f"seed {seed}, {kill}: lost {sorted(said - found)}"
    assert found == set(range(1, max(found) + 1)), "a restored database is a prefix of the application's commits"


def strike(children: Children, tmp_path: Path, seed: int, points: int, *, is_random: bool = False) -> int:
    """Kill again and again; return how many were killed, rather than done before."""
    chance, killed, place = random.Random(seed), 0, tmp_path
    for number in range(points):
        if number % FRESH_EVERY == 0:
            shutil.rmtree(place, ignore_errors=True)
            place = tmp_path / f"place-{number}"
            place.mkdir(parents=True)
        call = None if is_random else chance.choice(CALLS)
        when = chance.randint(1, CALL_MAX.get(call or "", 15))
        kill = Kill(chance.choice(PARTS), chance.choice(HOW), call, when, chance.uniform(0, 0.6))
        with beside(place, kill, seed + number):
            status = children.run(place, kill, seed + number)
        assert status in (0, -signal.SIGKILL, -signal.SIGALRM), f"seed {seed}, {kill}: the child ended with {status}"
        killed += status != 0
        tally.count(tally.KILLS, status == -signal.SIGALRM)
        check(place, kill, seed)
    return killed


@pytest.fixture
def _checkpoints_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicator, "CHECKPOINT_BYTES", CHECKPOINT_BYTES)


@pytest.mark.skipif(strace_problem() is not None, reason="strace cannot trace here")
@pytest.mark.usefixtures("_checkpoints_often")
def test_what_was_durable_survives_kills_at_system_calls(children: Children, tmp_path: Path) -> None:
    killed = 0
    while not killed:  # by chance all of them may be done before they come to the call
        seed = random.SystemRandom().randrange(1 << 30)
        killed = strike(children, tmp_path / str(seed), seed, POINTS)


@pytest.mark.campaign("replica-kills")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first_seed", range(4))
@pytest.mark.skipif(strace_problem() is not None, reason="strace cannot trace here")
@pytest.mark.usefixtures("_checkpoints_often")
def test_what_was_durable_survives_a_thousand_kills_at_system_calls(
    children: Children, tmp_path: Path, first_seed: int
) -> None:
    killed, seed = 0, 1_000_000 * first_seed
    while killed < POINTS_CAMPAIGN // 4:
        killed += strike(children, tmp_path / str(seed), seed, FRESH_EVERY)
        seed += 1000


@pytest.mark.campaign("replica-kills")
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("_checkpoints_often")
def test_what_was_durable_survives_kills_at_random_times(children: Children, tmp_path: Path) -> None:
    assert strike(children, tmp_path, 7, RANDOM_CAMPAIGN, is_random=True)
