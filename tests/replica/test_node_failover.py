"""Three processes, a leader that is handed over, killed or stopped, and a writer: nothing acknowledged is lost."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from strandline.objects import open_objects
from strandline.replica import Layout, restore
from tests import tally
from tests.replica.databases import content, database
from tests.replica.node_child import TIMING
from tests.waiting import PATIENCE_S, eventually

NAMES = "abc"
STEPS = ("hand over", "kill", "stop", "kill")
FAILOVERS = 200
ACKNOWLEDGED_MIN = 3
"""How many commits of a new leader are waited for before it is struck."""
STOPPED_S_MAX = 6 * TIMING.ttl_s
"""A process that is stopped while it holds a lock of the local store keeps others from it, so it goes on then."""

Row = tuple[int, int]


class Child:
    """A node in a process of its own, and what it has said."""

    def __init__(self, folder: Path, name: str, *more: str) -> None:
        self.name = name
        self.epoch = 0
        self.aside: list[str] = []
        self.durable: list[tuple[float, Row]] = []
        command = [sys.executable, "-m", "tests.replica.node_child", str(folder), name, *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, *words = line.split()
            if kind == "durable":
                self.durable.append((time.monotonic(), (int(words[0]), int(words[1]))))
            elif kind == "role":
                self.epoch = int(words[1])
            elif kind == "aside":
                self.aside.append(words[0])

    def hand_over(self) -> None:
        """Have it hand over."""
        assert self.process.stdin is not None
        self.process.stdin.write("hand over\n")
        self.process.stdin.flush()

    def end(self, number: int | None = None) -> None:
        """End it in order, or by a signal, and hear what it has said."""
        self.process.send_signal(signal.SIGCONT)
        if number is not None:
            self.process.send_signal(number)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._listening.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Cluster:
    """Three nodes, and what was acknowledged by any of them."""

    def __init__(self, folder: Path, *more: str) -> None:
        self._folder, self._more = folder, more
        with database(folder / "a.db") as application:
            application.execute(
                "CREATE TABLE t (epoch INTEGER, number INTEGER, name TEXT, PRIMARY KEY (epoch, number))"
            )
        self.children = {NAMES[0]: Child(folder, NAMES[0], *more)}
        self.acknowledged = set[Row]()
        self.aside = list[str]()
        self.takeovers_s = defaultdict[str, list[float]](list)

    def begin(self) -> None:
        """Wait until the node with a database has begun the replica, then start the others."""
        self.leader()
        self.children |= {name: Child(self._folder, name, *self._more) for name in NAMES[1:]}

    def leader(self, after: int = 0) -> Child:
        """Return the node that has acknowledged a few commits under an epoch behind `after`."""

        def leading() -> Child | None:
            for child in self.children.values():
                assert child.process.poll() is None, f"{child.name} ended by itself"
                if sum(row[0] > after for _, row in list(child.durable)[-ACKNOWLEDGED_MIN:]) >= ACKNOWLEDGED_MIN:
                    return child
            return None

        found = eventually(leading)
        assert found is not None
        return found

    def strike(self, step: str) -> None:
        """Do something to the leader, and wait until another node has led."""
        child = max((one for one in self.children.values() if one.durable), key=lambda one: one.durable[-1][1])
        epoch, struck_s = child.durable[-1][1][0], time.monotonic()
        if step == "hand over":
            child.hand_over()
        elif step == "kill":
            child.end(signal.SIGKILL)
            self._hear(child)
            self.children[child.name] = Child(self._folder, child.name, *self._more)
        else:
            self._stop(child, epoch)
        other = self.leader(epoch)
        first_s = next(at_s for at_s, row in other.durable if row[0] > epoch)
        self.takeovers_s[step].append(first_s - struck_s)
        tally.count("failovers")

    def _stop(self, child: Child, epoch: int) -> None:
        """Stop a leader past its lease, then let it go on: nothing that it commits from then on is accepted."""
        child.process.send_signal(signal.SIGSTOP)
        give_up = time.monotonic() + STOPPED_S_MAX
        others = [one for one in self.children.values() if one is not child]
        while time.monotonic() < give_up and not any(one.epoch > epoch for one in others):
            time.sleep(0.01)
        before = self.rows() if any(one.epoch > epoch for one in others) else None
        child.process.send_signal(signal.SIGCONT)
        if before is None:
            return
        self.leader(epoch)
        late = {row for row in self.rows() - before if row[0] <= epoch}
        assert not late, f"a leader that was stopped past its lease had {late} accepted"

    def rows(self) -> set[Row]:
        """Return what the replica holds now."""
        out = self._folder / "restored.db"
        store = open_objects(f"file://{self._folder}/replica")
        restore(store, Layout(store), out)
        store.close()
        found = rows_of(out)
        out.unlink()
        return found

    def _hear(self, child: Child) -> None:
        self.acknowledged |= {row for _, row in child.durable}
        self.aside += child.aside

    def end(self) -> None:
        """End all nodes, and hear what they have said."""
        for child in self.children.values():
            child.end()
            self._hear(child)

    def check(self) -> None:
        """Nothing acknowledged is lost, and nothing is there that was not committed in its order."""
        found = self.rows()
        assert self.acknowledged
        assert self.acknowledged <= found, f"lost {sorted(self.acknowledged - found)}"
        numbers = defaultdict[int, set[int]](set)
        for epoch, number in found:
            numbers[epoch].add(number)
        assert all(seen == set(range(len(seen))) for seen in numbers.values()), "of each epoch there is a prefix"
        for child in self.children.values():
            assert child.process.returncode == 0
        tally.count("acknowledged commits", len(self.acknowledged))


def rows_of(path: Path) -> set[Row]:
    """Return the rows of a database that SQLite finds whole."""
    content(path)
    connection = apsw.Connection(str(path))
    try:
        return set(connection.execute("SELECT epoch, number FROM t"))
    finally:
        connection.close()


def check_failovers(folder: Path, steps: list[str], *more: str) -> Cluster:
    """Strike leaders again and again, and check what is left."""
    cluster = Cluster(folder, *more)
    try:
        cluster.begin()
        for step in steps:
            cluster.strike(step)
    finally:
        cluster.end()
    cluster.check()
    return cluster


def test_nothing_acknowledged_is_lost_when_leaders_change(tmp_path: Path) -> None:
    check_failovers(tmp_path, ["hand over", "kill", "stop"])


@pytest.mark.long
def test_wall_clocks_that_jump_an_hour_change_nothing(tmp_path: Path) -> None:
    check_failovers(tmp_path, [*STEPS, *STEPS], "jumps")


@pytest.mark.campaign("failover")
@pytest.mark.timeout(7200)
def test_nothing_acknowledged_is_lost_in_200_failovers(tmp_path: Path) -> None:
    chance = random.Random(14)
    cluster = check_failovers(tmp_path, [chance.choice(STEPS) for _ in range(FAILOVERS)])
    for step, found in sorted(cluster.takeovers_s.items()):
        found.sort()
        tally.count(f"ms at the median until the first durable commit after {step}", int(found[len(found) // 2] * 1000))
        tally.count(f"ms at most after {step}", int(found[-1] * 1000))
