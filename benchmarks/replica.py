"""SQLite replicated to S3, beside litestream: latency, throughput, restore, cost, and what the application feels.

Both run as their users run them, a process beside the application, against one SeaweedFS on this machine, with each
request seen on its way (`_s3_trace`). A figure counts only if every row that was committed is in the restored database
and its `integrity_check` is clean. `durable` is the exception: the peer is one upload for each commit, and the store is
in memory and takes `LATENCY_S` for each request. `--only` names parts.
"""

import argparse
import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import apsw

from benchmarks._harness import Row, compare, medians, report, scratch, sized
from benchmarks._replicators import (
    LITESTREAM,
    OURS,
    QUICK_LITESTREAM,
    QUICK_OURS,
    Replicated,
    memory_mb,
    replicating,
    restore_s,
)
from benchmarks._s3_trace import S3Trace, traced
from strandline.objects import MemoryObjects, open_objects
from strandline.replica import Layout, Replicator, restore
from tests.servers_seaweed import BUCKET, running_seaweed

LATENCY_S = 0.02
WRITERS = 64
SECONDS = 3.0
ROUNDS = 3
BUSY_MS = 60_000
COMMITS = sized("REPLICA_COMMITS", 100)
"""How many single commits are watched on their way to the store."""
WRITTEN_MB = sized("REPLICA_WRITTEN_MB", 200)
COMMITTING_S = float(sized("REPLICA_COMMITTING_S", 8))
COUNTED_S = float(sized("REPLICA_COUNTED_S", 60))
RESTORED_MB = (sized("REPLICA_SMALL_MB", 50), sized("REPLICA_LARGE_MB", 1000))
ROW_BYTES = 4000
"""So large that rows are bytes of the database, give or take a few."""


def connect(path: Path) -> apsw.Connection:
    """Open the database as an application does."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


@contextmanager
def application(trace: S3Trace) -> Iterator[tuple[apsw.Connection, Replicated]]:
    """Yield a connection to a fresh database with one table, and the place for its replica."""
    with scratch() as folder:
        trace.clear()
        connection = connect(folder / "a.db")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        try:
            yield connection, Replicated(folder / "a.db", uuid.uuid4().hex, trace)
        finally:
            connection.close()


def check(side: str, connection: apsw.Connection, replicated: Replicated) -> None:
    """Restore, and compare every row with the application's."""
    output = replicated.database.with_name("checked.db")
    restore_s(side, replicated, output)
    expected = list(connection.execute(_SUMS))
    restored = apsw.Connection(str(output))
    found, whole = list(restored.execute(_SUMS)), list(restored.execute("PRAGMA integrity_check"))
    restored.close()
    output.unlink()
    if found != expected or whole != [("ok",)]:
        raise AssertionError(f"{side} restored {found} of {expected}, and integrity_check says {whole}")


_SUMS = "SELECT count(*), sum(id), sum(length(body)), group_concat(hex(substr(body, 1, 2)), '') FROM t"


def insert(connection: apsw.Connection, rows: int, size: int = ROW_BYTES) -> None:
    """Insert rows of random bytes, half of them zeros, in one transaction."""
    statement = "INSERT INTO t (body) VALUES (CAST(randomblob(?) || zeroblob(?) AS BLOB))"
    with connection:
        connection.executemany(statement, [(size // 2, size - size // 2)] * rows)


def latency_ms(side: str, trace: S3Trace) -> list[float]:
    """Return how long after each of some commits its transaction was in the store."""
    pause = random.Random(0)
    with application(trace) as (connection, replicated):
        taken = []
        with replicating(side, replicated):
            for _ in range(COMMITS):
                time.sleep(pause.uniform(0.05, 0.35))
                known = len(trace.transactions())
                insert(connection, 1, 100)
                began_s = time.monotonic()
                taken.append(1000 * (trace.wait_for_transaction(known).answered_s - began_s))
        check(side, connection, replicated)
        return taken


def shipped_mb_s(side: str, trace: S3Trace) -> tuple[float, float]:
    """Return the speed of replication under a writer that does not wait, and the memory that it took."""
    with application(trace) as (connection, replicated):
        with replicating(side, replicated) as pid:
            began_s = time.monotonic()
            for _ in range(WRITTEN_MB):
                insert(connection, 1_000_000 // ROW_BYTES)
            took_s = trace.wait_until_quiet(time.monotonic()) - began_s
            memory = memory_mb(pid)
        check(side, connection, replicated)
        return WRITTEN_MB / took_s, memory


def commits_per_s(side: str | None, trace: S3Trace) -> float:
    """Return how many small commits a second the application makes beside a replicator, or alone."""
    with application(trace) as (connection, replicated):
        if side is None:
            return _commit_for(connection)
        with replicating(side, replicated):
            found = _commit_for(connection)
        check(side, connection, replicated)
        return found


def _commit_for(connection: apsw.Connection) -> float:
    began_s, count = time.monotonic(), 0
    while time.monotonic() < began_s + COMMITTING_S:
        insert(connection, 1, 100)
        count += 1
    return count / (time.monotonic() - began_s)


def requests_per_hour(side: str, trace: S3Trace) -> float:
    """Return how many requests an hour takes at one commit a second."""
    with application(trace) as (connection, replicated):
        with replicating(side, replicated):
            trace.clear()
            until_s = time.monotonic() + COUNTED_S
            while time.monotonic() < until_s:
                insert(connection, 1, 100)
                time.sleep(1.0)
            count = trace.counts().total()
            insert(connection, 1, 100)
        check(side, connection, replicated)
        return count * 3600 / COUNTED_S


def restores_s(megabytes: int, trace: S3Trace) -> dict[str, float]:
    """Return how long each command takes to restore one and the same replica, the median of some times in turn."""
    with application(trace) as (connection, replicated):
        with replicating(OURS, replicated):
            for _ in range(megabytes):
                insert(connection, 1_000_000 // ROW_BYTES)
            trace.wait_until_quiet()  # what is left goes when it ends
        check(OURS, connection, replicated)
        check(LITESTREAM, connection, replicated)
        output = replicated.database.with_name("timed.db")

        def timed(side: str) -> float:
            found = restore_s(side, replicated, output)
            output.unlink()
            return found

        figures = medians(ROUNDS, [lambda: timed(OURS), lambda: timed(LITESTREAM)])
        return dict(zip((OURS, LITESTREAM), figures, strict=True))


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


def latency_rows(trace: S3Trace) -> list[Row]:
    """Compare the way of a commit to the store, at the defaults and at the quickest of both."""
    rows = []
    for setting, side, peer in (("defaults", OURS, LITESTREAM), ("quickest", QUICK_OURS, QUICK_LITESTREAM)):
        theirs, ours = latency_ms(peer, trace), latency_ms(side, trace)
        for part in (50, 99):
            name = f"commit to object, {setting}, p{part}"
            figures = _percentile(ours, part), peer, _percentile(theirs, part)
            rows.append(compare(name, *figures, "ms", better="lower", goal=1))
    return rows


def _percentile(values: Sequence[float], part: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[part - 1]


def throughput_rows(trace: S3Trace) -> list[Row]:
    """Compare the speed under a busy writer, and the memory."""
    theirs, ours = shipped_mb_s(LITESTREAM, trace), shipped_mb_s(OURS, trace)
    return [
        compare(f"{WRITTEN_MB} MB written at once, shipped", ours[0], LITESTREAM, theirs[0], "MB/s", goal=1),
        compare("memory meanwhile", ours[1], LITESTREAM, theirs[1], "MB", better="lower"),
    ]


def application_rows(trace: S3Trace) -> list[Row]:
    """Compare what the application's commits lose."""
    sides = [partial(commits_per_s, side, trace) for side in (None, LITESTREAM, OURS)]
    bare, theirs, ours = medians(ROUNDS, sides)
    return [
        compare("commits of the application", ours, LITESTREAM, theirs, "commits/s", goal=1),
        compare("commits of the application", ours, "no replication", bare, "commits/s"),
    ]


def request_rows(trace: S3Trace) -> list[Row]:
    """Compare the number of requests."""
    theirs, ours = requests_per_hour(LITESTREAM, trace), requests_per_hour(OURS, trace)
    return [compare("requests, one commit a second", ours, LITESTREAM, theirs, "per hour", better="lower")]


def restore_rows(trace: S3Trace) -> list[Row]:
    """Compare both commands on one replica."""
    rows = []
    for megabytes in RESTORED_MB:
        found = restores_s(megabytes, trace)
        rows.append(
            compare(
                f"restore of {megabytes} MB", found[OURS], LITESTREAM, found[LITESTREAM], "s", better="lower", goal=1
            )
        )
    return rows


def durable_rows(_: S3Trace) -> list[Row]:
    """Compare writers that share uploads with one upload for each commit."""
    ours, theirs = medians(ROUNDS, [lambda: durable_commits(WRITERS), lambda: durable_commits(1)])
    name = f"durable commits, {WRITERS} writers, {LATENCY_S * 1000:.0f} ms a request"
    return [compare(name, ours, "one upload for each commit", theirs, "commits/s", goal=20)]


PARTS: dict[str, Callable[[S3Trace], list[Row]]] = {
    "latency": latency_rows,
    "throughput": throughput_rows,
    "application": application_rows,
    "requests": request_rows,
    "restore": restore_rows,
    "durable": durable_rows,
}


def main() -> None:
    """Measure the parts and print them beside litestream."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    with running_seaweed() as server, traced(server.endpoint) as trace:
        with closing(open_objects(f"s3://{BUCKET}/begun", environ=server.environ)) as store:
            store.put("bucket", b"")  # the first object makes the bucket, which litestream does not
        report("replica", [row for part in parser.parse_args().only for row in PARTS[part](trace)])


if __name__ == "__main__":
    main()
