"""The queue beside a table in SQLite that does the same work: put, take, acknowledge, each durable before it returns.

The peer is the queue that people build on SQLite: one table, `UPDATE … RETURNING` to claim the lowest rows that are
visible, `DELETE` to acknowledge, WAL mode with synchronous=FULL, a connection for each thread. Both put and take the
same jobs in the same way; every job has to come once, with its value, and nothing may be left, before a figure counts.

What expired is listed with few and with many deliveries in flight: the cost should not follow what did not expire.
"""

import random
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from benchmarks._harness import Row, compare, medians, report, scratch
from strandline.clock import ManualClock
from strandline.queue import Job, JournalStorage, Queue

ROUNDS = 5
SIZE = 128
SEED = 7
VISIBLE_S = 600.0
FEW, MANY, EXPIRED = 1_000, 100_000, 10


class Worker(Protocol):
    """One thread's access to a queue of either kind."""

    def put(self, values: Sequence[bytes]) -> None:
        """Put jobs, durably."""
        ...

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """Claim up to so many jobs, durably, and return their numbers and values."""
        ...

    def ack(self, numbers: Sequence[int]) -> None:
        """Remove jobs that this worker claimed, durably."""
        ...


Connect = Callable[[], AbstractContextManager[Worker]]
OpenQueue = Callable[[Path], AbstractContextManager[Connect]]


class OurWorker:
    """A taker of our queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._jobs: dict[int, Job] = {}

    def put(self, values: Sequence[bytes]) -> None:
        """Put jobs, durably."""
        self._queue.put_many(values)

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """Claim up to so many jobs, durably."""
        taker = self._queue.take("workers", visibility_s=VISIBLE_S, prefetch=count)
        self._jobs = {job.offset: job for job in islice(taker, count)}
        return [(number, job.value) for number, job in self._jobs.items()]

    def ack(self, numbers: Sequence[int]) -> None:
        """Acknowledge jobs, durably."""
        self._queue.ack_many([self._jobs[number] for number in numbers])


@contextmanager
def open_ours(folder: Path) -> Iterator[Connect]:
    """Open our queue; all threads share it."""
    with Queue.open(folder / "queue") as queue:

        @contextmanager
        def connect() -> Iterator[Worker]:
            yield OurWorker(queue)

        yield connect
        (status,) = queue.status()
        assert status.backlog == 0


SCHEMA = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, value BLOB NOT NULL, visible_ns INTEGER NOT NULL, deliveries INTEGER NOT NULL
);
CREATE INDEX jobs_visible ON jobs (visible_ns, id);
"""
CLAIM = """
UPDATE jobs SET visible_ns = ?, deliveries = deliveries + 1
WHERE id IN (SELECT id FROM jobs WHERE visible_ns <= ? ORDER BY visible_ns, id LIMIT ?) RETURNING id, value
"""


class SqliteWorker:
    """A connection to the table."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        yield self._database
        self._database.execute("COMMIT")

    def put(self, values: Sequence[bytes]) -> None:
        """Insert rows."""
        with self._transaction() as database:
            rows = [(value,) for value in values]
            database.executemany("INSERT INTO jobs (value, visible_ns, deliveries) VALUES (?, 0, 0)", rows)

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """Claim rows that are visible."""
        now_ns = time.time_ns()
        with self._transaction() as database:
            return database.execute(CLAIM, (now_ns + int(VISIBLE_S * 1e9), now_ns, count)).fetchall()

    def ack(self, numbers: Sequence[int]) -> None:
        """Delete rows."""
        with self._transaction() as database:
            database.executemany("DELETE FROM jobs WHERE id = ?", [(number,) for number in numbers])


@contextmanager
def open_sqlite(folder: Path) -> Iterator[Connect]:
    """Open the table; each thread has a connection of its own."""
    path = folder / "jobs.db"

    @contextmanager
    def connect() -> Iterator[Worker]:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as database:
            database.execute("PRAGMA synchronous = FULL")
            yield SqliteWorker(database)

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        database.executescript(SCHEMA)
        yield connect
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def values_of(thread: int, count: int) -> list[bytes]:
    """Return distinct jobs."""
    data = random.Random(SEED + thread).randbytes(SIZE * count)
    return [data[at * SIZE : (at + 1) * SIZE] for at in range(count)]


def work(worker: Worker, values: Sequence[bytes], batch: int) -> list[bytes]:
    """Put jobs and do as many, a batch at a time; return the values of what was done."""
    done: list[bytes] = []
    for at in range(0, len(values), batch):
        worker.put(values[at : at + batch])
        jobs = worker.take(batch)
        worker.ack([number for number, _ in jobs])
        done += [value for _, value in jobs]
    return done


def jobs_per_second(open_queue: OpenQueue, threads: int, jobs: int, batch: int) -> float:
    """Return how many jobs a second go through put, take and acknowledge; all of them are checked."""
    values = [values_of(thread, jobs // threads) for thread in range(threads)]
    done: list[bytes] = []
    left: list[bytes] = []
    barrier = threading.Barrier(threads + 1)
    with scratch() as folder, open_queue(folder) as connect:

        def run(thread: int) -> None:
            with connect() as worker:
                barrier.wait()
                done.extend(work(worker, values[thread], batch))
                barrier.wait()
                while rest := worker.take(batch):  # what others put, and left when they ended
                    worker.ack([number for number, _ in rest])
                    left.extend(value for _, value in rest)

        workers = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
        for one in workers:
            one.start()
        barrier.wait()
        begin = time.perf_counter()
        barrier.wait()
        seconds = time.perf_counter() - begin
        for one in workers:
            one.join()
    assert sorted(done + left) == sorted(value for mine in values for value in mine)
    return len(done) / seconds


def job_rows() -> Iterator[Row]:
    """Measure jobs from end to end, in three ways."""
    cases = [
        ("one by one, 1 taker", 1, 600, 1),
        ("100 at a time, 1 taker", 1, 20_000, 100),
        ("one by one, 8 takers", 8, 2_400, 1),
        ("100 at a time, 8 takers", 8, 40_000, 100),
    ]
    for name, threads, jobs, batch in cases:
        sides = [partial(jobs_per_second, opens, threads, jobs, batch) for opens in (open_ours, open_sqlite)]
        ours, sqlite = medians(ROUNDS, sides)
        yield compare(f"put, take, ack: {name}", ours, "SQLite, WAL, FULL", sqlite, "jobs/s")


def backlog_rows() -> Iterator[Row]:
    """Measure taking from a queue that was filled one by one before: the reader has to find small batches."""
    jobs = 2_000
    values = values_of(0, jobs)

    def drain(open_queue: OpenQueue) -> float:
        with scratch() as folder, open_queue(folder) as connect, connect() as worker:
            for value in values:
                worker.put([value])
            begin = time.perf_counter()
            done = []
            while taken := worker.take(1):
                worker.ack([number for number, _ in taken])
                done += [value for _, value in taken]
            seconds = time.perf_counter() - begin
        assert done == values
        return jobs / seconds

    ours, sqlite = medians(ROUNDS, [lambda: drain(open_ours), lambda: drain(open_sqlite)])
    yield compare("take, ack of 2,000 that wait, one by one", ours, "SQLite, WAL, FULL", sqlite, "jobs/s")


def list_expired_us(in_flight: int) -> float:
    """Return how long it takes to list a few expired deliveries, with so many others in flight."""
    clock = ManualClock()
    with scratch() as folder, JournalStorage.open(folder / "queue", clock=clock) as storage:
        storage.append_batch([b"x" * SIZE] * (in_flight + EXPIRED))
        storage.add_group("workers")
        far_ns = clock.now_ns() + 10**15
        storage.mark_inflight("workers", range(in_flight), far_ns)
        figures = []
        expiring = range(in_flight, in_flight + EXPIRED)
        for _ in range(7):
            storage.mark_inflight("workers", expiring, clock.now_ns() + 10**9)
            clock.advance(2)
            begin = time.perf_counter()
            expired = storage.list_expired(clock.now_ns())
            figures.append((time.perf_counter() - begin) * 1e6)
            assert [found.message.offset for found in expired] == list(expiring)
            assert storage.list_expired(clock.now_ns()) == []
        return statistics.median(figures)


def expiry_rows() -> Iterator[Row]:
    """Measure listing what expired: flat in what is in flight."""
    many, few = medians(3, [lambda: list_expired_us(MANY), lambda: list_expired_us(FEW)])
    case = f"list_expired, {EXPIRED} expired of {MANY:,} in flight"
    yield compare(case, many, f"{EXPIRED} of {FEW:,} in flight", few, "µs", better="lower", goal=0.5)


def main() -> None:
    """Run everything and report it."""
    report("queue", [*job_rows(), *backlog_rows(), *expiry_rows()])


if __name__ == "__main__":
    main()
