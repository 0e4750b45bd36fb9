"""Durable commits of a replicated database: writers that wait for the object store share its uploads.

The peer is the same database with one upload for each commit, which is what a single writer that waits after each
commit comes to. The store is in memory and takes `LATENCY_S` for each request. Every row is in the restored database
before a figure counts.
"""

import threading
import time
from pathlib import Path

import apsw

from benchmarks._harness import Row, compare, medians, report, scratch
from strandline.objects import MemoryObjects
from strandline.replica import Layout, Replicator, restore

LATENCY_S = 0.02
WRITERS = 64
SECONDS = 3.0
ROUNDS = 3
BUSY_MS = 60_000


def connect(path: Path) -> apsw.Connection:
    """Open the database as an application does."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def durable_commits(writers: int) -> float:
    """Return how many durable commits a second so many writers make."""
    with scratch() as folder:
        path, store = folder / "a.db", MemoryObjects()
        connections = [connect(path) for _ in range(writers)]
        connections[0].execute("CREATE TABLE t (id INTEGER PRIMARY KEY, writer INTEGER, body BLOB)")
        counts = [0] * writers
        store.faults.delay_s = LATENCY_S
        with Replicator(path, store) as replicator:
            replicator.wait_durable()
            for connection in connections:
                replicator.every_commit(connection)
            stop_s = time.monotonic() + SECONDS

            def write(number: int) -> None:
                while time.monotonic() < stop_s:
                    connections[number].execute("INSERT INTO t (writer, body) VALUES (?, randomblob(100))", (number,))
                    counts[number] += 1

            threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
            started = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took_s = time.monotonic() - started
        for connection in connections:
            connection.close()
        store.faults.delay_s = 0.0
        restore(store, Layout(store), folder / "out.db")
        found = next(iter(apsw.Connection(str(folder / "out.db")).execute("SELECT count(*) FROM t")))[0]
        if found != sum(counts):
            raise AssertionError(f"{found} rows are in the replica, and {sum(counts)} commits returned")
        return sum(counts) / took_s


def main() -> None:
    """Print durable commits per second."""
    rows: list[Row] = []
    ours, theirs = medians(ROUNDS, [lambda: durable_commits(WRITERS), lambda: durable_commits(1)])
    rows.append(
        compare(
            f"durable commits, {WRITERS} writers, {LATENCY_S * 1000:.0f} ms a request",
            ours,
            "one upload for each commit",
            theirs,
            "commits/s",
            goal=20,
        )
    )
    report("replica", rows)


if __name__ == "__main__":
    main()
