"""A process that works on a queue in several threads, and says on its standard output what it was told.

    python -m tests.queue.child <folder> <threads> <steps> <seed>

One line for each: `putting n`, `put offset value`, `taken group offset deliveries`, `acking group offset`, `acked group
offset`. What is about to happen is said before, what happened after it was acknowledged; so whoever kills the process
knows what must be there, and what may. A typed error ends it with status 3, after trying whether the queue still takes
anything.
"""

import os
import sys
import threading
from itertools import islice
from pathlib import Path
from random import Random

from strandline.clock import SystemClock
from strandline.errors import Conflict, Poisoned, StrandlineError
from strandline.groups import GroupConfig
from strandline.journal import JournalConfig
from strandline.queue import Job, JournalStorage, Queue, QueueConfig

GROUPS = ("workers", "others")
CONFIG = QueueConfig(
    deliveries_max=3,
    journal=JournalConfig(segment_bytes_max=1024, reserve_bytes_max=512),
    group=GroupConfig(compact_bytes_min=1024, compact_age_s=None),
)
TYPED = 3


def say(*words: object) -> None:
    """Write a line with one system call, so that it is whole or not there."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def put(queue: Queue, random: Random) -> None:
    """Put a few messages."""
    values = [
        f"{random.getrandbits(64):x}".ljust(random.choice([1, 40, 250]), ".") for _ in range(random.randint(1, 3))
    ]
    say("putting", len(values))
    base = queue.put_many([value.encode() for value in values]).base_offset
    for at, value in enumerate(values):
        say("put", base + at, value)


def answer(queue: Queue, jobs: list[Job], random: Random) -> None:
    """Do some, give some back, and forget some."""
    for job in jobs:
        say("taken", job.group, job.offset, job.deliveries)
    done = [job for job in jobs if random.random() < 0.6]
    for job in done:
        say("acking", job.group, job.offset)
    queue.ack_many(done)
    for job in done:
        say("acked", job.group, job.offset)
    for job in jobs:
        if job not in done and random.random() < 0.5:
            try:
                job.nack()
            except Conflict:
                say("late", job.group, job.offset)


def work(queue: Queue, steps: int, random: Random) -> None:
    """Put and take, so many times."""
    for _ in range(steps):
        put(queue, random)
        jobs = list(islice(queue.take(random.choice(GROUPS), visibility_s=0.02, prefetch=3), 4))
        answer(queue, jobs, random)


def main(folder: Path, threads: int, steps: int, seed: int) -> int:
    """Work until all is done, or something fails; return the exit status."""
    failures: list[StrandlineError] = []

    def run(queue: Queue, number: int) -> None:
        try:
            work(queue, steps, Random(seed + number))
        except StrandlineError as error:
            say("failed", type(error).__name__, error)
            failures.append(error)

    try:
        queue = Queue(JournalStorage.open(folder, CONFIG), clock=SystemClock())
        for group in GROUPS:
            queue.add_group(group)
        workers = [threading.Thread(target=run, args=(queue, number)) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        run(queue, 0)
        for worker in workers:
            worker.join()
        if failures:
            still_takes(queue)
        queue.close()
    except StrandlineError as error:
        say("failed", type(error).__name__, error)
        failures.append(error)
    return TYPED if failures else 0


def still_takes(queue: Queue) -> None:
    """Say whether a queue that failed takes anything more."""
    try:
        queue.put(b"after")
        job = next(queue.take(GROUPS[0]), None)
        if job is not None:
            say("acking", GROUPS[0], job.offset)
            job.ack()
        say("still takes")
    except Poisoned:
        say("poisoned")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:5])))
