"""What the server logs, brought to whoever wants it in the words of nats-server's log."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Log = Callable[[str, str], None]
"""Told a level (`DBG`, `INF`, `WRN`, `ERR`) and a text."""
_LEVELS = {logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}


class _Handler(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.DEBUG)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log(_LEVELS.get(record.levelno, "ERR"), self.format(record))


@contextmanager
def logging_to(log: Log | None) -> Iterator[None]:
    """Bring what the broker logs to somebody, and to nobody else, while the block runs."""
    if log is None:
        yield
        return
    logger = logging.getLogger("strandline.broker")
    handler = _Handler(log)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
