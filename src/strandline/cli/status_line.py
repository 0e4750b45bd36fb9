"""A progress line on standard error: redrawn on a terminal, printed now and then elsewhere.

Invariant: nothing but warnings is shown if it is quiet, and nothing ever goes to standard output.
"""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

_REFRESH_PER_S = 5
_PLAIN_EVERY_S = 10.0


class StatusLine:
    """The line; use it in a `with` statement."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._quiet = quiet
        self._live = Live(console=console, refresh_per_second=_REFRESH_PER_S, transient=True)
        self._is_live = console.is_terminal and not quiet
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_live:
            self._live.stop()

    def show(self, line: str) -> None:
        """Show a line in place of the last one; without a terminal, now and then."""
        if self._is_live:
            self._live.update(Text(line))
        elif not self._quiet and time.monotonic() - self._said_at >= _PLAIN_EVERY_S:
            self.say(line)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        """Print a line that stays, also where it is quiet."""
        self._said_at = time.monotonic()
        if self._is_live:
            self._live.console.print(Text(line))
        else:
            print(line, file=sys.stderr)
