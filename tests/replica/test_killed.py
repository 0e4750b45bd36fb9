"""Replication that is killed anywhere: what was said to be durable is restored, and the database is whole."""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest

from strandline.objects import open_objects
from strandline.replica import Layout, restore
from tests.replica.databases import content
from tests.waiting import PATIENCE_S

ROUNDS = 6
ROUNDS_LONG = 150


def rows_of(path: Path) -> set[int]:
    """Return the numbers of the rows of a database that SQLite finds whole."""
    content(path)
    connection = apsw.Connection(str(path))
    try:
        return {number for (number,) in connection.execute("SELECT id FROM t")}
    finally:
        connection.close()


def struck_once(place: Path, first: int, rows: int, chance: random.Random) -> set[int]:
    """Start the application, kill it some time after it has said `rows` rows; return what it said was durable."""
    arguments = [sys.executable, "-m", "tests.replica.durable_writer", str(place / "a.db"), str(place / "replica")]
    running = subprocess.Popen([*arguments, str(first)], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    killer = threading.Timer(PATIENCE_S, running.kill)
    killer.start()
    said = set[int]()
    for line in running.stdout:
        if line.strip().isdigit():
            said.add(int(line))
        if len(said) >= rows:
            time.sleep(chance.uniform(0, 0.02))  # somewhere within the next commits and uploads
            break
    running.kill()
    said |= {int(line) for line in running.stdout.read().split() if line.isdigit()}
    running.stdout.close()
    running.wait()
    killer.cancel()
    return said


def check_rounds(place: Path, rounds: int, seed: int) -> None:
    """Kill and go on, again and again; after each kill the replica has all that was said to be durable."""
    chance, said = random.Random(seed), set[int]()
    for number in range(rounds):
        first = max(rows_of(place / "a.db"), default=0) + 1 if (place / "a.db").exists() else 1
        said |= struck_once(place, first, chance.randint(1, 12), chance)
        out = place / f"{number}.db"
        store = open_objects(f"file://{place}/replica")
        restore(store, Layout(store), out)
        store.close()
        found = rows_of(out)
        assert said <= found, f"seed {seed}, round {number}: lost {sorted(said - found)}"
        assert found == set(range(1, max(found) + 1)), "a restored database is a prefix of the application's commits"
        out.unlink()
    assert said


def test_what_was_durable_survives_kills_at_random(tmp_path: Path) -> None:
    check_rounds(tmp_path, ROUNDS, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_what_was_durable_survives_many_kills(tmp_path: Path, seed: int) -> None:
    check_rounds(tmp_path, ROUNDS_LONG, seed)
