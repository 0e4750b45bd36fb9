"""Processes to be killed: `python -m tests.replica.kill_children` forks one for each line of JSON that it reads.

It prints the process id, then the exit status. A child waits for the file `go`, then does its part; it appends what was
said to be durable to the file `said`.

    both         an application with its replicator inside
    replicator   a replicator beside an application that runs elsewhere
    application  an application whose replicator runs elsewhere

With `after_s` its own timer kills it, that long after `go`: no signal can come to another process of its number.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import apsw

from strandline.errors import Unavailable
from strandline.objects import LocalObjects
from strandline.objects.contracts import Buffer
from strandline.replica import Maintenance, MaintenancePolicy, Replicator, capture, connections, replicator
from tests.waiting import PATIENCE_S

BUSY_MS = 120_000
CHECKPOINT_BYTES = 40_000


class Hindered(LocalObjects):
    """A store that is slow, or away now and then, before a write or after it."""

    def __init__(self, folder: Path, how: str, seed: int) -> None:
        super().__init__(folder)
        self._how, self._chance = how, random.Random(seed)

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object, with trouble."""
        if self._how == "slow":
            time.sleep(self._chance.uniform(0, 0.03))
        # A start needs the store; what is away later is waited for.
        strikes = self._how == "away" and key.endswith(".ltx") and self._chance.random() < 0.3
        if strikes and self._chance.random() < 0.5:
            raise Unavailable("the store is away")
        etag = super().put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)
        if strikes:
            raise Unavailable("the answer was lost")
        return etag


def opened(path: Path) -> apsw.Connection:
    """Open the database of the application, which checkpoints often."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA wal_autocheckpoint = 10")
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


def insert(connection: apsw.Connection, chance: random.Random) -> int:
    """Commit the next row; return its number."""
    connection.execute("INSERT INTO t (body) VALUES (?)", (chance.randbytes(chance.randint(1, 3000)),))
    return connection.last_insert_rowid()


def work(place: Path, part: str, how: str, seed: int, rows: int, after_s: float | None) -> None:
    """Do the part of a child."""
    replicator.CHECKPOINT_BYTES = CHECKPOINT_BYTES
    for module in (capture, connections):
        vars(module)["BUSY_MS"] = BUSY_MS
    replicator.FLUSH_S = PATIENCE_S
    replicator._PAUSE_S = replicator._PAUSE_S_MAX = 0.01  # noqa: SLF001
    chance = random.Random(seed)
    said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    while not (place / "go").exists():
        time.sleep(0.002)
    if after_s is not None:
        signal.setitimer(signal.ITIMER_REAL, max(after_s, 1e-6))  # SIGALRM ends it at once, as SIGKILL does
    connection = opened(place / "a.db")
    if part == "application":
        for _ in range(rows):
            os.write(said, b"%d\n" % insert(connection, chance))
        return
    store = Hindered(place / "replica", how, seed)
    maintenance = Maintenance(store, MaintenancePolicy((0.05, 0.2, 1.0), 0.3))
    with Replicator(place / "a.db", store) as running:
        maintenance.start()
        for _ in range(rows):
            if part == "both":
                number = insert(connection, chance)
            else:
                number = next(iter(connection.execute("SELECT coalesce(max(id), 0) FROM t")))[0]
            running.wait_durable()
            os.write(said, b"%d\n" % number)
        maintenance.close()


def main() -> None:
    """Fork a child for each line."""
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                work(Path(asked["place"]), asked["part"], asked["how"], asked["seed"], asked["rows"], asked["after_s"])
                code = 0
            except BaseException as error:  # noqa: BLE001 - told by the status, and below
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            finally:
                os._exit(code)
        print(pid, flush=True)  # noqa: T201
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
