"""A progress line on standard error: redrawn on a terminal, printed now and then elsewhere.

Invariant: nothing but warnings is shown if it is quiet, and nothing ever goes to standard output.
"""

import os
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strandline.cli.command_log import CommandLog
from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.live as rich_live
    import rich.text as rich_text
else:
    rich_console, rich_live = deferred("rich.console"), deferred("rich.live")
    rich_text = deferred("rich.text")


_REFRESH_PER_S = 5
_PLAIN_EVERY_S = 10.0


class StatusLine:
    """The line; use it in a `with` statement."""

    def __init__(self, *, quiet: bool = False, log: CommandLog | None = None) -> None:
        self._quiet = quiet
        self._log = log if log is not None and log.is_json else None
        self._live: rich_live.Live | None = None
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        self._live = None if self._quiet or self._log is not None else _live()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, line: str) -> None:
        """Show a line in place of the last one; without a terminal, now and then."""
        if self._live is not None:
            self._live.update(rich_text.Text(line))
        elif not self._quiet and time.monotonic() - self._said_at >= _PLAIN_EVERY_S:
            self.say(line, event="progress")

    def say(self, line: str, level: str = "info", **fields: object) -> None:
        """Print a line that stays; a log in JSON has the level and the fields too."""
        if not self._quiet:
            self._print(level, line, fields)

    def warn(self, line: str, **fields: object) -> None:
        """Print a line that stays, also where it is quiet."""
        self._print("warning", line, fields)

    def _print(self, level: str, line: str, fields: Mapping[str, object]) -> None:
        self._said_at = time.monotonic()
        if self._log is not None:
            self._log.tell(level, line, **fields)
        elif self._live is not None:
            self._live.console.print(rich_text.Text(line))
        else:
            print(line, file=sys.stderr)


def _live() -> "rich_live.Live | None":
    """Return the line of a terminal, None if standard error is none; rich knows the variables that force one."""
    if not sys.stderr.isatty() and not any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE")):
        return None
    console = rich_console.Console(stderr=True)
    if not console.is_terminal:
        return None
    return rich_live.Live(console=console, refresh_per_second=_REFRESH_PER_S, transient=True)
