"""Real nodes in processes behind the proxy: a hand-over refuses no write, and a kill loses nothing acknowledged."""

import http.client
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from strandline.objects import open_objects
from strandline.replica import ReplicaDirectory, discover
from strandline.replica.routing import ProxySettings, ProxyThread
from tests import tally
from tests.replica.databases import database
from tests.replica.routing.fakes import PATIENT, Got, ask
from tests.waiting import PATIENCE_S, eventually

WRITERS = 4
ENOUGH = 8
"""How many answers of a leader are waited for."""
FAILOVERS = 100


class Child:
    """A node with its application, in a process of its own."""

    def __init__(self, folder: Path, name: str, kind: str, lease: str) -> None:
        command = [sys.executable, "-m", "tests.replica.routing.serving_child", str(folder), name, kind, lease]
        self.name, self.kind = name, kind
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.role = ""
        self.address = ""
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()
        eventually(lambda: self.address)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, word, *_ = line.split()
            if kind == "address":
                self.address = word
            else:
                self.role = word

    def hand_over(self) -> None:
        """Have it hand over."""
        assert self.process.stdin is not None
        self.process.stdin.write("hand over\n")
        self.process.stdin.flush()

    def end(self, number: int | None = None) -> None:
        """End it in order, or by a signal."""
        if number is not None:
            self.process.send_signal(number)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._listening.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Writers:
    """Clients that write numbers through the proxy, each number once, and remember the answers."""

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self.answers: list[tuple[int, Got]] = []
        self._threads = [threading.Thread(target=self._write) for _ in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        while not self._ended.is_set():
            number = next(self._numbers)
            with suppress(http.client.IncompleteRead):  # a node was killed in the midst of its answer: nothing was said
                self.answers.append((number, ask(self._proxy, "POST", f"/{number}")))

    def acknowledged(self) -> set[int]:
        """Return the numbers that were said to be durable."""
        return {number for number, got in list(self.answers) if got.status == 200}

    def refused(self) -> list[tuple[int, str, bytes]]:
        """Return the answers that acknowledge nothing."""
        return [
            (got.status, got.headers.get("strandline-outcome", ""), got.body)
            for _, got in list(self.answers)
            if got.status != 200
        ]

    def wait_for_more(self) -> None:
        """Wait until some more are acknowledged."""
        before = len(self.acknowledged())
        eventually(lambda: len(self.acknowledged()) >= before + ENOUGH)

    def end(self) -> None:
        """Write no more."""
        self._ended.set()
        for thread in self._threads:
            thread.join()


class Cluster:
    """Two nodes, a proxy, and writers."""

    def __init__(self, folder: Path, lease: str) -> None:
        self._folder = folder
        with database(folder / "a.db") as application:
            application.execute("CREATE TABLE t (number INTEGER)")
        self.children = {"a": Child(folder, "a", "asgi", lease)}
        eventually(lambda: self.children["a"].role == "leader")
        self.children["b"] = Child(folder, "b", "wsgi", lease)

    @contextmanager
    def writing(self) -> Iterator[Writers]:
        """Write through a proxy."""
        store = open_objects(f"file://{self._folder}/replica")
        with (
            ReplicaDirectory(lambda: discover(store)) as directory,
            ProxyThread(directory, ProxySettings(limits=PATIENT)) as proxy,
        ):
            self.proxy = proxy.address
            writers = Writers(proxy.address)
            try:
                yield writers
            finally:
                writers.end()
        store.close()

    def other(self, child: Child) -> Child:
        """Return the node that is not this one."""
        return next(each for each in self.children.values() if each is not child)

    def leader(self) -> Child:
        """Wait for a leader."""
        found = eventually(lambda: next((each for each in self.children.values() if each.role == "leader"), None))
        assert found is not None
        return found

    def hand_over(self, writers: Writers) -> None:
        """Hand over in the midst of writes, and write on at the other node."""
        leader = self.leader()
        self._wait_until_followed(leader)
        leader.hand_over()
        eventually(lambda: self.other(leader).role == "leader")
        writers.wait_for_more()

    def _wait_until_followed(self, leader: Child) -> None:
        """Wait until the other node knows the leader: after a hand-over of its own it does not claim before that."""
        other = self.other(leader)
        eventually(lambda: other.role == "follower" or leader.role != "leader")
        eventually(
            lambda: ask(other.address, path="/leader").body.decode() == leader.address or leader.role != "leader"
        )

    def shorten(self, writers: Writers) -> Child:
        """Have a node lead whose lease ends soon after it was killed; return it."""
        name = self.other(self.leader()).name
        self.children[name].end()
        self.children[name] = Child(self._folder, name, self.children[name].kind, "short")
        self.hand_over(writers)
        return self.children[name]

    def kill(self, writers: Writers, leader: Child) -> None:
        """Kill a leader, write on at the other node, and start it again."""
        self._wait_until_followed(leader)
        leader.end(signal.SIGKILL)
        eventually(lambda: self.other(leader).role == "leader")
        writers.wait_for_more()
        self.children[leader.name] = Child(self._folder, leader.name, leader.kind, "short")

    def check(self, writers: Writers) -> None:
        """Nothing acknowledged is lost, and nothing is there twice."""
        rows = Counter(int(number) for number in ask(self.leader().address).body.split())
        assert writers.acknowledged() <= set(rows), "an acknowledged write is lost"
        assert [number for number, count in rows.items() if count > 1] == [], "a write was executed twice"
        tally.count("acknowledged writes through the proxy", len(writers.acknowledged()))

    def end(self) -> None:
        """End both."""
        for child in self.children.values():
            child.end()


@contextmanager
def running_cluster(folder: Path, lease: str) -> Iterator[Cluster]:
    """Run two nodes."""
    cluster = Cluster(folder, lease)
    try:
        yield cluster
    finally:
        cluster.end()


UNKNOWN = {(502, "unknown"), (504, "unknown")}
"""A node was killed in the middle of a write, or its lease ended while the machine paused."""


def test_a_hand_over_refuses_no_write_and_a_kill_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "long") as cluster, cluster.writing() as writers:
        writers.wait_for_more()
        for _ in range(2):
            cluster.hand_over(writers)
        assert writers.refused() == []
        cluster.kill(writers, cluster.shorten(writers))
        writers.end()
        refused = writers.refused()
        assert {(status, outcome) for status, outcome, _ in refused} <= UNKNOWN, refused
        cluster.check(writers)


@pytest.mark.campaign("failover")
@pytest.mark.timeout(7200)
def test_nothing_acknowledged_through_the_proxy_is_lost_in_100_failovers(tmp_path: Path) -> None:
    chance = random.Random(14)
    begun_s = time.monotonic()
    with running_cluster(tmp_path, "short") as cluster, cluster.writing() as writers:
        for _ in range(FAILOVERS):
            if chance.random() < 0.5:
                cluster.hand_over(writers)
            else:
                cluster.kill(writers, cluster.leader())
            tally.count("failovers behind the proxy")
        writers.end()
        refused = writers.refused()
        assert {(status, outcome) for status, outcome, _ in refused} <= UNKNOWN, refused
        cluster.check(writers)
    tally.count("ms for each failover behind the proxy", int((time.monotonic() - begun_s) * 1000 / FAILOVERS))
