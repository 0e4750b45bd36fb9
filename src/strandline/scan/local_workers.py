"""A worker in this process, without Spark: for few items, such as the staged files of a commit.

Invariants: it takes shards under leases and commits pages as every other worker does, and may work beside them.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from strandline.errors import StrandlineError
from strandline.scan.request import ScanRequest
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask

POLL_S = 0.5


class LocalWorkers:
    """One worker, in this process."""

    are_here = True

    def check(self, request: ScanRequest) -> None:
        """Accept any request."""

    def make_ready(self, request: ScanRequest) -> None:
        """Do nothing: this process is ready."""

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work until no shard of the run is active."""
        over = threading.Event()
        watcher = threading.Thread(target=_poll_until, args=(over, poll), daemon=True)
        watcher.start()
        try:
            work(task(1), shards[0])
        finally:
            over.set()
            watcher.join()


def _poll_until(over: threading.Event, poll: Callable[[], None]) -> None:
    # The work is in the main thread, where Ctrl-C ends it. This thread only shows progress: the worker meets the errors
    # of the stores too, and raises them.
    with suppress(StrandlineError):
        while not over.wait(POLL_S):
            poll()
