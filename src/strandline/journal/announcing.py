"""The word to readers in other processes: the frontier file, overwritten in place.

Invariants: an older word is never written over a newer one; the file is not synced, since a reader that misses a word
only sees less.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from strandline.files import Disk, File
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier

LATE_S = 0.005
"""How old the word may be while appends keep coming."""


class Announcer:
    """Writes the frontier file; `is_new` tells that the file was not there before."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._lock = threading.Lock()
        self._told = (-1, -1)
        self._told_s = 0.0
        self.is_new = False
        self._file = self._open(disk, folder / FRONTIER_NAME)

    def _open(self, disk: Disk, path: Path) -> File:
        try:
            return disk.open(path, "write")
        except FileNotFoundError:
            self.is_new = True
            return disk.open(path, "create")

    def is_late(self) -> bool:
        """Tell whether the last word is older than readers should wait."""
        return time.monotonic() - self._told_s > LATE_S

    def has_told(self, written: int, durable: int) -> bool:
        """Tell whether readers know of these offsets."""
        return self._told == (written, durable)

    def tell(self, look: Callable[[], Frontier | None]) -> None:
        """Write what `look` sees now; nothing where that is None."""
        with self._lock:
            self._told_s = time.monotonic()
            frontier = look()
            if frontier is not None:
                self._told = (frontier.written_offset, frontier.durable_offset)
                self._file.pwritev([format_frontier(frontier)], 0)

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._file.close()
