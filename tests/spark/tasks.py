"""What the tests of sessions run in tasks: in a module of its own, so that workers import it."""

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark

from strandline.errors import Damaged
from strandline.spark.error_transport import transport_errors

ABOUT = "pid long, python string, frozen long, sockets string, pyspark string"


def about_the_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell one row about the process that runs the task."""
    for _ in batches:
        pass
    sockets = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()
    values = (os.getpid(), sys.executable, gc.get_freeze_count(), sockets, pyspark.__file__)
    yield pa.RecordBatch.from_pydict({field.split()[0]: [value] for field, value in zip(ABOUT.split(", "), values)})  # noqa: B905


def damaged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail with an error of ours."""
    with transport_errors():
        yield from batches
        raise Damaged("a/b", "torn", safe="repair it")


def crash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail with an error that is not ours, and print."""
    sys.stderr.write("from a worker\n")
    with transport_errors():
        yield from batches
        raise ValueError("hunter2")


class Sleep:
    """Take very long, and say so with a file in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on, and sleep."""
        yield from batches
        (self._folder / str(os.getpid())).touch()
        time.sleep(3600)


class DieOnce:
    """Kill the worker at the first try, as the system does when memory is short."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on, unless this is the first try."""
        if not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches


def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kill the worker at every try."""
    yield from batches
    os.kill(os.getpid(), signal.SIGKILL)
