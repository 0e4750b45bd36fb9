"""Rare garbage collections during a scan, which makes very many small objects without cycles.

Invariant: of several scans in one process, the first changes the collector, and the last restores it.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 200_000
_FROZEN_AT_START_MAX = 1_000  # Python 3.12 freezes some hundred objects itself; who calls gc.freeze() has thousands


class _Setting:
    """The collector's settings before the first running scan."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scans = 0
        self._threshold = gc.get_threshold()
        self._is_frozen = False

    def begin(self) -> None:
        with self._lock:
            self._scans += 1
            if self._scans == 1:
                self._threshold, self._is_frozen = gc.get_threshold(), gc.get_freeze_count() > _FROZEN_AT_START_MAX
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
    """Collect rarely, and only objects that are made in the block; restore the settings afterwards."""
    _setting.begin()
    try:
        yield
    finally:
        _setting.end()
