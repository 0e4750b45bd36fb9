"""The log of `strandline serve`: lines as nats-server writes them, or JSON, on standard error or in a file.

Invariants: a line is written whole and at once; where no process reads or the disk is full it is lost, and the server
goes on. A file that was moved away is opened anew when asked (`reopen`), and begun anew beyond its size limit; what was
logged before is kept under the name with `.old`.
"""

import contextlib
import os
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from strandline.broker.settings.model import LogSettings
from strandline.cli.log_line import format_log_line
from strandline.errors import InvalidInput

STDERR = 2
_LEVELS = {"TRC": "debug", "DBG": "debug", "INF": "info", "WRN": "warning", "ERR": "error", "FTL": "error"}


class ServerLog:
    """Where a server tells what it does."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self._out = _open(settings.file)
        self._written = settings.file.stat().st_size if settings.file else 0

    def tell(self, level: str, text: str) -> None:
        """Write a line; `level` is INF, WRN, ERR, FTL, DBG or TRC, the last two only where they were asked for."""
        if (level == "DBG" and not self.settings.debug) or (level == "TRC" and not self.settings.trace):
            return
        if self.settings.form == "json":
            line = f"{format_log_line(_LEVELS[level], 'broker', text, pid=os.getpid())}\n".encode()
        else:
            line = self._format(level, text)
        with contextlib.suppress(OSError):
            self._out.write(line)
            self._written += len(line)
            if self.settings.file and 0 < self.settings.size_limit < self._written:
                self.settings.file.replace(self.settings.file.with_name(f"{self.settings.file.name}.old"))
                self.reopen()

    def _format(self, level: str, text: str) -> bytes:
        stamp = f"{self._now():%Y/%m/%d %H:%M:%S.%f} " if self.settings.timestamps else ""
        return f"[{os.getpid()}] {stamp}[{level}] {text}\n".encode(errors="backslashreplace")

    def note(self, text: str) -> None:
        """Tell what happens."""
        self.tell("INF", text)

    def error(self, text: str) -> None:
        """Tell what went wrong."""
        self.tell("ERR", text)

    def change(self, settings: LogSettings) -> None:
        """Go on with other settings; as before, if the file cannot be opened."""
        out = _open(settings.file)
        self.close()
        self.settings, self._out = settings, out
        self._written = settings.file.stat().st_size if settings.file else 0

    def reopen(self) -> None:
        """Open the file again by its name."""
        self.change(self.settings)

    def close(self) -> None:
        """Close the file, if it is one."""
        self._out.close()

    def _now(self) -> datetime:
        return datetime.now(UTC) if self.settings.utc else datetime.now(UTC).astimezone()


def _open(file: Path | None) -> FileIO:
    if file is None:
        return FileIO(STDERR, "w", closefd=False)
    try:
        return FileIO(file, "a")
    except OSError as error:
        raise InvalidInput(f"cannot open the log file {file}: {error.strerror}", hint="-l FILE") from error
