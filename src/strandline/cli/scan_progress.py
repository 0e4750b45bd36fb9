"""Progress of a scan: a live line on a terminal, plain lines now and then elsewhere.

Invariants: everything goes to standard error; figures are those of the coordinator, so they count what is committed;
no line holds a path or a secret.
"""

import time

from strandline.cli.command_log import CommandLog
from strandline.cli.status_line import StatusLine
from strandline.scan import Event, Listed, NoExecutor, Planned, Progress, Resumed, StateNearby, rates
from strandline.scan.metrics import ScanCounts

_WARN_EVERY_S = 60.0


class ScanProgress(StatusLine):
    """Prints the events of a scan; use it in a `with` statement."""

    def __init__(self, *, quiet: bool = False, log: CommandLog | None = None) -> None:
        super().__init__(quiet=quiet, log=log)
        self.counts = ScanCounts()
        self._first: tuple[float, Progress] | None = None
        self._warned: tuple[float, str] | None = None

    def tell(self, event: Event) -> None:
        """Show an event."""
        self.counts.tell(event)
        match event:
            case Listed(items):
                self.show(f"listing: {items:,} items")
            case Resumed():
                self.say("resuming an interrupted run")
            case Planned(plan):
                self.show(f"{plan.items:,} items listed, {plan.todo_items:,} to scan")
            case Progress():
                self.show(self._progress_line(event))
            case NoExecutor(seconds, reason):
                self._warn(seconds, reason)
            case StateNearby(place):
                self.warn(
                    f"the state is at {place}, an address of this machine alone: workers on other machines cannot "
                    "reach it; give --state an address that they can reach"
                )

    def _warn(self, seconds: float, reason: str) -> None:
        """Warn that there is no executor: at once, when the reason changes, and every minute."""
        now = time.monotonic()
        if self._warned is not None and self._warned[1] == reason and now - self._warned[0] < _WARN_EVERY_S:
            return
        self._warned = now, reason
        self.warn(f"waiting: no executor for {seconds:.0f} s: {reason}; Ctrl-C ends the scan")

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
            parts.append(f"{now.shards_parked} parked")
        if rate.left_s is not None:
            parts.append(f"{duration(rate.left_s)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration as text."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {whole % 60:02} s" if minutes else f"{whole} s"
