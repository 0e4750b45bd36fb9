"""What a server logs, brought to whoever wants it in the words of nats-server's log.

Invariants: a server with a log of its own is heard there and nowhere else; all others are heard by the logger
`strandline.broker`, at the level that it has. Whose line it is, the context tells in which it is logged: that of a
server begins in `heard_by`, and whatever the server does later runs in a copy of it.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Log = Callable[[str, str], None]
"""Told a level (`TRC`, `DBG`, `INF`, `WRN`, `ERR`) and a text."""
TRACE = 5
"""The level of what clients say and are told, below `logging.DEBUG`."""
_LEVELS = {TRACE: "TRC", logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}
_own: ContextVar[Log | None] = ContextVar("strandline_broker_log", default=None)
_format = logging.Formatter().format


class _Sorter(logging.Filter):
    """Takes the lines of those who have a log of their own out of the logger's."""

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
    """Let lines of all levels be made while the block runs, for somebody who wants them; nobody does if it is None."""
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
    """Bring what is logged in the block, and in all that begins in it, to somebody; to the logger if it is None."""
    token = _own.set(log)
    try:
        yield
    finally:
        _own.reset(token)
