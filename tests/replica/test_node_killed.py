"""A node that is killed at any line while it writes the log and its index, with and without a reader beside it.

The reader has another library of SQLite: the one that Python brings.
"""

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strandline.objects import LocalObjects
from strandline.replica import Replicator
from strandline.replica.node_copy import NodeCopy
from tests import tally
from tests.replica.databases import content, database
from tests.waiting import PATIENCE_S

TRANSACTIONS = 12
BEHIND = 4
SAMPLE = 4
SAMPLED_LINES = 1200
Rows = list[tuple[int, bytes]]


class Children:
    """The process that forks followers."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asks, self._answers = process.stdin, process.stdout

    def follow(self, replica: Path, copy: Path, when: int = 0) -> int:
        """Have a child follow, and die before a line; return how it ended."""
        print(replica, copy, when, file=self._asks, flush=True)
        return int(self._answers.readline())

    def lines_that_begin_anew(self, replica: Path, copy: Path) -> list[int]:
        """Have a child follow to the end; return the numbers of the lines at which it begins the log anew."""
        print(replica, copy, -1, file=self._asks, flush=True)
        found = list(map(int, self._answers.readline().split()))
        assert int(self._answers.readline()) == 0
        return found


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    """A process that forks followers, with everything imported."""
    command = [sys.executable, "-m", "tests.replica.node_kill_children"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Children(process)
        assert process.stdin is not None
        process.stdin.close()


def rows_of(connection: sqlite3.Connection) -> Rows:
    """Return all rows, of one snapshot, after a check of every page."""
    connection.execute("BEGIN")
    rows = connection.execute("SELECT id, body FROM t").fetchall()
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute("COMMIT")
    return rows


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Rows]]:
    """A replica with a copy that is some transactions behind, and the rows after each transaction."""
    place, chance, states = tmp_path_factory.mktemp("leader"), random.Random(1), list[Rows]()
    (place / "copy").mkdir()
    with database(place / "a.db", 512) as application:
        application.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        with Replicator(place / "a.db", LocalObjects(place / "replica")) as running:
            for number in range(TRANSACTIONS):
                with application:
                    for _ in range(chance.randint(1, 6)):
                        application.execute("INSERT INTO t (body) VALUES (?)", (chance.randbytes(700),))
                    application.execute("DELETE FROM t WHERE id % 7 = ?", (number % 7,))
                running.wait_durable(PATIENCE_S)
                states.append(list(application.execute("SELECT id, body FROM t")))
                if number < BEHIND:
                    copy = NodeCopy(LocalObjects(place / "replica"), place / "copy" / "b.db")
                    copy.catch_up()
                    copy.close()
    return place, states


def check_kill(children: Children, leader: tuple[Path, list[Rows]], here: Path, when: int, *, is_read: bool) -> int:
    """Kill a node before a line, look at its database, and have it go on; return how it ended."""
    place, states = leader
    shutil.copytree(place / "copy", here, ignore=shutil.ignore_patterns("*-shm"))
    with closing(sqlite3.connect(here / "b.db", timeout=PATIENCE_S)) as reader:
        if is_read:
            assert rows_of(reader) in states
        status = children.follow(place / "replica", here / "b.db", when)
        assert status in (0, -signal.SIGKILL)
        assert rows_of(reader) in states, f"killed before line {when}"
        assert children.follow(place / "replica", here / "b.db") == 0
        assert rows_of(reader) == states[-1], f"killed before line {when}"
    assert content(here / "b.db")
    assert not list(here.glob("*set-aside*")), f"killed before line {when}"
    shutil.rmtree(here)
    tally.count(tally.KILLS)
    return status


def test_a_node_killed_at_a_line_leaves_a_whole_transaction(
    children: Children, leader: tuple[Path, list[Rows]], tmp_path: Path
) -> None:
    for number in range(SAMPLE):
        when = random.SystemRandom().randint(1, SAMPLED_LINES)
        assert check_kill(children, leader, tmp_path / "here", when, is_read=number % 2 > 0) == -signal.SIGKILL


def test_a_node_killed_while_its_log_begins_anew_shows_readers_what_comes_after(
    children: Children, leader: tuple[Path, list[Rows]], tmp_path: Path
) -> None:
    """Whether the index says of a log without frames that some are in the database: then readers pass over new ones."""
    place, _ = leader
    shutil.copytree(place / "copy", tmp_path / "first", ignore=shutil.ignore_patterns("*-shm"))
    with closing(sqlite3.connect(tmp_path / "first" / "b.db")) as reader:
        rows_of(reader)
        lines = children.lines_that_begin_anew(place / "replica", tmp_path / "first" / "b.db")
    assert lines
    for when in lines:
        assert check_kill(children, leader, tmp_path / "here", when, is_read=True) == -signal.SIGKILL


@pytest.mark.campaign("replica-kills")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("is_read", [False, True])
def test_a_node_killed_at_every_line_leaves_a_whole_transaction(
    children: Children, leader: tuple[Path, list[Rows]], tmp_path: Path, is_read: bool
) -> None:
    when = 1
    while check_kill(children, leader, tmp_path / "here", when, is_read=is_read) != 0:
        when += 1
    assert when > SAMPLED_LINES
