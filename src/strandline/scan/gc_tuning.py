"""Python's collector, told to look rarely while very many small objects come and go that are in no cycle.

Invariants: of several scans that a process does at once, the first changes it, and the last puts it back as it was.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 200_000


class _Setting:
    """How the collector was set before the first scan that is still going on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scans = 0
        self._threshold = gc.get_threshold()
        self._is_frozen = False

    def begin(self) -> None:
        with self._lock:
            self._scans += 1
            if self._scans == 1:
                self._threshold, self._is_frozen = gc.get_threshold(), bool(gc.get_freeze_count())
                gc.freeze()
                gc.set_threshold(_OBJECTS, *self._threshold[1:])

    def end(self) -> None:
        with self._lock:
            self._scans -= 1
            if not self._scans:
                gc.set_threshold(*self._threshold)
                if not self._is_frozen:
                    gc.unfreeze()


_setting = _Setting()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles rarely, and never at what is there already; afterwards it is as it was."""
    _setting.begin()
    try:
        yield
    finally:
        _setting.end()
