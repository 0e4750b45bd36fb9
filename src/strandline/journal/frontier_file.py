"""The frontier file as its writer keeps it: overwritten in place, for readers in other processes.

Invariants: an older frontier is never written over a newer one; the file is not synced, since a reader that misses a
frontier only sees less.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from strandline.files import Disk, File
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier

STALE_S = 0.005
"""How old the published frontier may be while appends keep coming."""


class FrontierFile:
    """Writes the frontier file; `is_new` says that the file did not exist before."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._lock = threading.Lock()
        self._published = (-1, -1)
        self._published_s = 0.0
        self.is_new = False
        self._file = self._open(disk, folder / FRONTIER_NAME)

    def _open(self, disk: Disk, path: Path) -> File:
        try:
            return disk.open(path, "write")
        except FileNotFoundError:
            self.is_new = True
            return disk.open(path, "create")

    def is_stale(self) -> bool:
        """Return whether the published frontier is older than readers should wait."""
        return time.monotonic() - self._published_s > STALE_S

    def has_published(self, written: int, durable: int) -> bool:
        """Return whether readers can see these offsets."""
        return self._published == (written, durable)

    def publish(self, read: Callable[[], Frontier | None]) -> None:
        """Write the frontier that `read` returns, unless it is None."""
        with self._lock:
            self._published_s = time.monotonic()
            frontier = read()
            if frontier is not None:
                self._published = (frontier.written_offset, frontier.durable_offset)
                self._file.pwritev([format_frontier(frontier)], 0)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
