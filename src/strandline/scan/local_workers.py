"""Workers on this machine, without Spark: one in this process, and more in processes of their own for much work.

Invariants: they take shards under leases and commit pages as every other worker does, and may work beside them; a
process that is killed costs its lease and nothing else; processes end with this one, however it ends.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from strandline.errors import StrandlineError
from strandline.scan.request import ScanRequest
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask

POLL_S = 0.5
OTHERS_WEIGHT_MIN = 48 << 20
"""The weight of a run (bytes, and a constant for each item) that pays for starting another process."""


class LocalWorkers:
    """One worker in this process, and up to `processes - 1` more for a run that is worth them."""

    are_here = True

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes

    def check(self, request: ScanRequest) -> None:
        """Accept any request."""

    def make_ready(self, request: ScanRequest) -> None:
        """Do nothing: this process is ready."""

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work until no shard of the run is active."""
        count = min(self._processes, len(shards)) if task(1).weight >= OTHERS_WEIGHT_MIN else 1
        given = task(count)
        with _polled(poll), _others(given, shards[1:count]):
            work(given, shards[0])


@contextmanager
def _others(task: WorkerTask, shards: Sequence[int]) -> Iterator[None]:
    """Let other processes work on the run too, each beginning with a shard of its own."""
    if not shards:
        yield
        return
    from strandline.scan.worker.processes import WorkerProcesses  # noqa: PLC0415 - few runs need it

    with WorkerProcesses(task, shards) as processes:
        yield
        processes.finish()


@contextmanager
def _polled(poll: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()
    watcher = threading.Thread(target=_poll_until, args=(over, poll), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _poll_until(over: threading.Event, poll: Callable[[], None]) -> None:
    # The work is in the main thread, where Ctrl-C ends it. This thread only shows progress: the worker meets the errors
    # of the stores too, and raises them.
    with suppress(StrandlineError):
        while not over.wait(POLL_S):
            poll()
