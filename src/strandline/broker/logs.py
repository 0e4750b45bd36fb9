"""Where the log lines of a server go, in the words of nats-server's log.

Invariants: the lines of a server with a log of its own go there and nowhere else; the lines of all other servers go to
the logger `strandline.broker`, at its level. The context of a line names its server: the context begins in `heard_by`,
and everything that the server does later runs in a copy of it.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Log = Callable[[str, str], None]
"""Receives a level (`TRC`, `DBG`, `INF`, `WRN`, `ERR`) and a text."""
TRACE = 5
"""The level of protocol traces, below `logging.DEBUG`."""
_LEVELS = {TRACE: "TRC", logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}
_own: ContextVar[Log | None] = ContextVar("strandline_broker_log", default=None)
_format = logging.Formatter().format


class _Sorter(logging.Filter):
    """Diverts the lines of servers that have a log of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.level = logging.NOTSET
        self.least = logging.WARNING

    def filter(self, record: logging.LogRecord) -> bool:
        """Bring a line to its own log; return whether it is for the logger's handlers."""
        log = _own.get()
        if log is None:
            return record.levelno >= self.least
        log(_LEVELS.get(record.levelno, "ERR"), _format(record))
        return False


_logger = logging.getLogger("strandline.broker")
_sorter = _Sorter()
_lock = threading.Lock()


@contextmanager
def own_log(log: Log | None) -> Iterator[None]:
    """Enable lines of all levels while the block runs, for a server with a log of its own; do nothing without one."""
    if log is None:
        yield
        return
    with _lock:
        if not _sorter.count:
            _sorter.level, _sorter.least = _logger.level, _logger.getEffectiveLevel()
            _logger.addFilter(_sorter)
            _logger.setLevel(TRACE)
        _sorter.count += 1
    try:
        yield
    finally:
        with _lock:
            _sorter.count -= 1
            if not _sorter.count:
                _logger.removeFilter(_sorter)
                _logger.setLevel(_sorter.level)


@contextmanager
def heard_by(log: Log | None) -> Iterator[None]:
    """Send the log lines of the block, and of everything that begins in it, to a log; to the logger if it is None."""
    token = _own.set(log)
    try:
        yield
    finally:
        _own.reset(token)
