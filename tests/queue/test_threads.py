"""Many takers at once: each job is done once, and nobody has what somebody else has."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from strandline.errors import StaleDelivery
from strandline.queue import Job, JournalStorage, MemoryStorage, Queue, QueueConfig
from tests.queue.helpers import in_threads, tiny
from tests.waiting import PATIENCE_S

JOBS = 10_000
TAKERS = 8
DAWDLED = 300


class Watched:
    """Keeps count of who has what, and of what was done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: set[int] = set()
        self.acked: Counter[int] = Counter()
        self.taken_twice: list[int] = []

    def take(self, job: Job) -> None:
        with self.lock:
            if job.offset in self.held or job.deliveries != 1:
                self.taken_twice.append(job.offset)
            self.held.add(job.offset)

    def done(self, jobs: list[Job]) -> None:
        with self.lock:
            for job in jobs:
                self.acked[job.offset] += 1
                self.held.discard(job.offset)


@pytest.fixture(params=["disk", "disk, tiny", "memory"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    if request.param == "memory":
        yield Queue.in_memory()
        return
    config = QueueConfig() if request.param == "disk" else tiny()
    with Queue(JournalStorage.open(tmp_path / "queue", config)) as queue:
        yield queue


def work(queue: Queue, watched: Watched, prefetch: int) -> int:
    done = 0
    batch: list[Job] = []
    for job in queue.take("workers", visibility_s=600, prefetch=prefetch):
        watched.take(job)
        batch.append(job)
        if len(batch) >= prefetch:
            queue.ack_many(batch)
            watched.done(batch)
            done += len(batch)
            batch = []
    queue.ack_many(batch)
    watched.done(batch)
    return done + len(batch)


def test_eight_takers_do_ten_thousand_jobs_once_each(queue: Queue) -> None:
    for begin in range(0, JOBS, 500):
        queue.put_many([b"%d" % number for number in range(begin, begin + 500)])
    watched = Watched()
    done = in_threads([lambda: work(queue, watched, 20)] * TAKERS)
    assert sum(done) == JOBS
    assert watched.acked == Counter(range(JOBS))
    assert not watched.taken_twice
    assert not watched.held
    assert next(queue.take("workers"), None) is None
    assert queue.dead_letters("workers") == []


def test_putters_and_takers_of_several_groups_work_side_by_side(queue: Queue) -> None:
    puts, per_putter, groups = 4, 50, ("one", "two")
    seen = {group: Counter[bytes]() for group in groups}
    lock = threading.Lock()

    def put(putter: int) -> None:
        for number in range(per_putter):
            queue.put(b"%d:%d" % (putter, number))

    def take(group: str) -> None:
        while True:
            for job in queue.take(group, visibility_s=600, wait_s=0.2):
                with lock:
                    seen[group][job.value] += 1
                job.ack()
            with lock:
                if sum(seen[group].values()) >= puts * per_putter:
                    return

    in_threads([*(partial(put, putter) for putter in range(puts)), *(partial(take, group) for group in groups * 3)])
    wanted = Counter({b"%d:%d" % (putter, number): 1 for putter in range(puts) for number in range(per_putter)})
    assert seen == dict.fromkeys(groups, wanted)


def test_among_takers_that_fail_and_dawdle_nothing_acknowledged_is_given_again(tmp_path: Path) -> None:
    with Queue(JournalStorage.open(tmp_path, QueueConfig(deliveries_max=None))) as queue:
        queue.put_many([b"%d" % number for number in range(DAWDLED)])
        acked: set[int] = set()
        given_again: list[int] = []

        def take(number: int) -> None:
            give_up_s = time.monotonic() + PATIENCE_S
            for turn in itertools.count(number):
                before = frozenset(acked)
                if len(before) == DAWDLED or time.monotonic() > give_up_s:
                    return
                job = next(queue.take("workers", visibility_s=0.2, wait_s=0.05), None)
                if job is None or turn % 5 == 0:
                    continue  # it expires
                if job.offset in before:
                    given_again.append(job.offset)
                if turn % 7 == 0:
                    with suppress(StaleDelivery):
                        job.nack()
                    continue
                job.ack()
                acked.add(job.offset)

        in_threads([partial(take, number) for number in range(4)])
        assert acked == set(range(DAWDLED))
        assert not given_again
        assert queue.status()[0].backlog == 0


def test_takers_together_share_what_the_disk_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the mark of one taker is written, another taker's is: none waits for the other."""
    both, marks = threading.Barrier(2), 0
    whole = MemoryStorage.mark_inflight

    def slow(self: MemoryStorage, *args: object) -> object:
        nonlocal marks
        marks += 1
        if marks <= 2:
            both.wait(PATIENCE_S)
        return whole(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStorage, "mark_inflight", slow)
    queue = Queue.in_memory()
    queue.put_many([b"x"] * 80)
    in_threads([lambda: queue.ack_many(list(queue.take("workers")))] * TAKERS)
    assert marks == 80
