"""The parent of Spark's Python workers, which hides a worker's loaded modules from the garbage collector.

Spark collects garbage after every task, and with pyarrow and pandas loaded that takes longer than many tasks. After
its first task a worker freezes its heap; garbage of later tasks is collected.

Named by `spark.python.daemon.module`, so it runs in executors: it imports nothing but PySpark's own daemon.
"""

import gc
import socket

import pyspark.daemon

_worker = pyspark.daemon.worker
_is_heap_frozen = False  # the collector's own count is no sign: Python 3.12 starts with frozen objects


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - the signature is Spark's
    """Run a task as PySpark does; the first one of a process also freezes its heap."""
    global _is_heap_frozen  # noqa: PLW0603 - once in a process
    code = _worker(sock, authenticated)
    if not _is_heap_frozen:
        _is_heap_frozen = True
        gc.collect()
        gc.freeze()
    return code


def manager() -> None:
    """Fork workers as PySpark's daemon does, until Spark closes the standard input."""
    pyspark.daemon.worker = worker
    pyspark.daemon.manager()


if __name__ == "__main__":
    manager()
