"""A process that uses a served queue, and says on its standard output what it was told.

    python -m tests.queue.remote_child take <address> <group> <count>     takes so many, says so, and keeps them
    python -m tests.queue.remote_child put <address> <name>               puts numbers until it is killed
    python -m tests.queue.remote_child work <address> <group>             takes and acknowledges until it is killed

A put whose outcome is not known is said as `unknown n`, and not done again.
"""

import sys
import time
from itertools import count, islice

from strandline.errors import UnknownOutcome
from strandline.queue import Queue
from tests.queue.child import say


def main(task: str, address: str, name: str, number: int = 0) -> None:
    """Do one of the tasks."""
    queue = Queue.connect(address, timeout_s=60)
    if task == "take":
        jobs = list(islice(queue.take(name, visibility_s=3600, wait_s=60, prefetch=number), number))
        say("taken", *(job.offset for job in jobs))
        while True:
            time.sleep(60)
    if task == "work":
        for job in queue.take(name, visibility_s=3600, wait_s=None, prefetch=4):
            say("taken", job.offset, job.value.decode())
            job.ack()
            say("acked", job.offset)
    for at in count():
        value = f"{name}-{at}"
        say("putting", value)
        try:
            offset = queue.put(value.encode())
        except UnknownOutcome:
            say("unknown", value)
        else:
            say("put", value, offset)


if __name__ == "__main__":
    task, address, name, *number = sys.argv[1:]
    main(task, address, name, *map(int, number))
