"""A folder for everything that a running Spark writes: its temp files, sockets, warehouse and log.

Invariants: nothing of Spark is written anywhere else; the folder is removed with its process, and the folder of a
killed process is removed by the next one that starts: a living process holds the folder's lock.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "strandline-spark-"
LOG_VARIABLE = "STRANDLINE_SPARK_LOG"
_LOCK = "lock"
# Spark makes sockets in it whose whole path must fit in 108 bytes, 43 of them for the name of the socket.
_PATH_MAX = 60
_SHOWN_LINES = 20


class Workspace:
    """The folder of one process, held by a lock until it is removed.

    `log` is where Java's output goes: in the folder, or wherever STRANDLINE_SPARK_LOG says, to be kept.
    """

    def __init__(self) -> None:
        base = tempfile.gettempdir()
        if len(os.fsencode(base)) + len(PREFIX) + len("/12345678") > _PATH_MAX:
            base = "/tmp"  # noqa: S108 - the folder made in it is private and its name unpredictable
        sweep(Path(base))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._owner = os.getpid()
        self.warehouse = self.path / "warehouse"
        self.temporary = self.path / "tmp"
        self.temporary.mkdir()
        self.log = Path(os.environ.get(LOG_VARIABLE) or self.path / "log")

    def is_owner(self) -> bool:
        """Tell whether this is the process that made it, not a fork of that."""
        return os.getpid() == self._owner

    def last_lines(self) -> str:
        """Return the end of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])
        return ""

    def remove(self) -> None:
        """Remove it with all that is in it; a second time, or in a forked child, does nothing."""
        if self._lock >= 0 and self.is_owner():
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def sweep(base: Path) -> None:
    """Remove the folders under `base` whose process is gone."""
    for folder in base.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):  # another's, or another sweep was quicker
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
