"""What a running scan shows: a line on the terminal that moves, or a few plain lines where there is none.

Invariants: everything goes to standard error; figures are those of the coordinator, so they count what is committed;
nothing is shown that would tell a path or a secret.
"""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from strandline.spark.jobs import Event, Listed, Planned, Progress, Resumed, rates

_REFRESH_PER_S = 5
_PLAIN_EVERY_S = 10.0


class ScanProgress:
    """Hears what a scan tells, and shows it; use it in a `with` statement."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._live = Live(console=self._console, refresh_per_second=_REFRESH_PER_S, transient=True)
        self._is_live = self._console.is_terminal and not quiet
        self._first: tuple[float, Progress] | None = None
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

    def tell(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Listed(items):
                self.show(f"listing: {items:,} items")
            case Resumed():
                self._say("going on with a run that was begun before")
            case Planned(plan):
                self.show(f"{plan.items:,} items listed, {len(plan.todo):,} to look at")
            case Progress():
                self.show(self._progress_line(event))

    def _progress_line(self, now: Progress) -> str:
        moment = time.monotonic()
        if self._first is None:
            self._first = (moment, now)
        began, first = self._first
        rate = rates(first, now, moment - began)
        parts = [f"{now.done.items:,} of {now.items_todo:,} items"]
        if now is not first:  # one look tells no rate
            parts += [f"{rate.items_per_s:,.0f} items/s", f"{rate.bytes_per_s / 1e6:,.1f} MB/s"]
        parts += [
            f"{now.done.findings:,} findings",
            f"shards: {now.shards_done} done, {now.shards_active} active",
        ]
        if now.shards_parked:
            parts.append(f"{now.shards_parked} put aside")
        if rate.left_s is not None:
            parts.append(f"{duration(rate.left_s)} left")
        return ", ".join(parts)

    def show(self, line: str) -> None:
        """Show a line in place of the last one; without a terminal, now and then."""
        if self._is_live:
            self._live.update(Text(line))
        elif not self._quiet and time.monotonic() - self._said_at >= _PLAIN_EVERY_S:
            self._say(line)

    def _say(self, line: str) -> None:
        if self._quiet:
            return
        self._said_at = time.monotonic()
        if self._is_live:
            self._live.console.print(Text(line))
        else:
            print(line, file=sys.stderr)


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {whole % 60:02} s" if minutes else f"{whole} s"
