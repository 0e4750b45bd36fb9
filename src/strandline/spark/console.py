"""PySpark and the terminal: its output in this process is suppressed, and Ctrl-C cancels its jobs.

Failures reach the caller as errors, and once. Java's own output, and that of the workers, goes to the log of the
workspace (`strandline.spark.driver`).
"""

import contextlib
import logging
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pyspark import SparkContext


class _NotFromPy4J(logging.Filter):
    """Py4J logs a traceback for every call that Ctrl-C, or the end of Java, cuts short; most of them to the root."""

    def filter(self, record: logging.LogRecord) -> bool:
        return Path(record.pathname).parent.name != "py4j"


_FILTER = _NotFromPy4J()
_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")  # a filter of the root sees no records of other loggers
_CANCELS_WITHIN_S = 5.0


def silence_py4j() -> None:
    """Silence Py4J's log: before a session is made, for one that cannot be made leaves calls that Java cuts short."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


def silence_counters(context: "SparkContext") -> None:
    """Silence the server that the workers' counters report to when Java goes away."""
    context._accumulatorServer.handle_error = _ignore  # type: ignore[assignment,method-assign]  # noqa: SLF001 - it would print


def _ignore(*_: Any) -> None:  # noqa: ANN401 - whatever it is given
    pass


def cancel_on_interrupt(context: "SparkContext") -> None:
    """Let Ctrl-C cancel all jobs before it raises.

    PySpark's own handler asks Java over the connection that the interrupted call is waiting on, fails, and says
    nothing; the job goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # handlers are the main thread's, and PySpark has set none either

    def cancel() -> None:
        with contextlib.suppress(Exception):  # Java may be gone, and with it the jobs
            context.cancelAllJobs()

    def interrupted(_: int, __: FrameType | None) -> NoReturn:
        cancelling = threading.Thread(target=cancel, daemon=True)
        cancelling.start()
        cancelling.join(_CANCELS_WITHIN_S)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
