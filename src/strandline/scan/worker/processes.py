"""Workers in processes of their own, started by a worker of the same run.

    python -P -m strandline.scan.worker.processes     standard input: a pickled (task, shard)
                                                      standard output: nothing, or a JSON array: why it gave up

Invariants: a process is given its task through a pipe, never as an argument or in the environment, because a task has
the tenant's key; it imports nothing from the working folder, which may be the tree that is scanned; it ends at once
when the pipe closes, so that none outlives its parent. Ctrl-C is the parent's alone.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from strandline.errors import StrandlineError
from strandline.lazy_imports import leave_pandas_out
from strandline.scan.errors import WorkersFailed
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask

_COMMAND = (sys.executable, "-P", "-m", "strandline.scan.worker.processes")


class WorkerProcesses:
    """Processes that work on a run; leaving the context ends those that still do."""

    def __init__(self, task: WorkerTask, shards: Sequence[int]) -> None:
        self._running = [_started(task, shard) for shard in shards]

    def finish(self) -> None:
        """Wait for the processes; raise `WorkersFailed` if one gave up. One that was killed left its shards to us."""
        for process in self._running:  # not `communicate`: it closes standard input
            said = process.stdout.read() if process.stdout is not None else b""
            process.wait()
            if said:
                raise WorkersFailed(*json.loads(said))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _started(task: WorkerTask, shard: int) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
    with suppress(BrokenPipeError):  # it is gone already: others do its work
        _write(process, pickle.dumps((task, shard)))
    return process


def _write(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Write to standard input, which stays open: its end is the end of this process."""
    if process.stdin is not None:
        process.stdin.write(data)
        process.stdin.flush()


def main() -> None:
    """Work on the run that standard input names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_pandas_out()
    task, shard = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(task, shard)
    except StrandlineError as error:
        json.dump([type(error).__name__, str(error), error.hint], sys.stdout)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
