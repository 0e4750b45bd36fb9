"""The progress of a running fold: its revision, its rate, its lag, and its repairs.

Invariants: everything goes to standard error. A terminal gets one line that moves; elsewhere a plain line is printed
now and then, and at once for events that need attention.
"""

from dataclasses import asdict

from strandline.cli.command_log import CommandLog
from strandline.cli.status_line import StatusLine
from strandline.events import Event
from strandline.fold.events import (
    CaughtUp,
    EntriesLeft,
    EvictingSeen,
    GapPassed,
    RepairBegan,
    RepairEnded,
    SourceAway,
    SourceBack,
    StaleKeysPossible,
    StoreFailed,
    StoreReopened,
    WatchBegan,
)
from strandline.fold.progress import FoldProgress, FoldStatus

_WARNINGS = (StaleKeysPossible, SourceAway, StoreFailed)


class FoldDisplay(StatusLine):
    """Shows the events of a watched fold; use it in a `with` statement."""

    def __init__(self, *, quiet: bool = False, log: CommandLog | None = None) -> None:
        super().__init__(quiet=quiet, log=log)
        self.progress = FoldProgress()

    def status(self) -> FoldStatus:
        """Return the progress so far."""
        return self.progress.status()

    def tell(self, event: Event) -> None:
        """Show an event."""
        self.progress(event)
        line = _described(event)
        if line is not None:
            fields = {name: value for name, value in asdict(event).items() if isinstance(value, str | int | float)}
            level = "warning" if isinstance(event, _WARNINGS) else "info"
            self.say(line, level, event=type(event).__name__, **fields)
        else:
            self.show(_line(self.status()))


def _line(status: FoldStatus) -> str:
    parts = [
        f"at revision {status.revision:,}",
        f"{status.updates:,} updates",
        f"{status.updates_per_s:,.0f} updates/s",
    ]
    if status.lag is not None:
        parts.append(f"{status.lag:,} behind" if status.lag else "up to date")
    if status.repairs:
        parts.append(f"repaired {status.repairs} times" if status.repairs > 1 else "repaired once")
    if status.trouble is not None:
        parts.append(status.trouble)
    return ", ".join(parts)


def _described(event: Event) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one for each kind of event
    """Return the line to print for an event, None if it only changes the status line."""
    match event:
        case WatchBegan(bucket=bucket, revision=revision, anew=anew):
            return f"watching {bucket}" + (" from its state" if anew else f" after revision {revision:,}")
        case CaughtUp(revision=revision):
            return f"up to date at revision {revision:,}"
        case RepairBegan(reason=reason):
            return f"repair: {reason}"
        case RepairEnded(put=put, deleted=deleted):
            return f"repaired: {put:,} keys put, {deleted:,} deleted"
        case GapPassed(revision=revision):
            return f"resumed after revision {revision:,}: the removed updates were overwritten since"
        case StaleKeysPossible():
            return "warning: deletes may have been missed and are not repaired (--repair none)"
        case EvictingSeen():
            return "note: this bucket can evict current values; a mirror removes them, an archive keeps them"
        case EntriesLeft(removed=removed):
            return f"{removed:,} keys that the bucket evicted were removed"
        case SourceAway(reason=reason, seconds=seconds):
            return f"the bucket has been unreachable for {seconds:.0f} s: {reason}"
        case SourceBack(seconds=seconds):
            return f"the bucket is reachable again after {seconds:.0f} s"
        case StoreFailed(failures=failures, reason=reason):
            return f"storing failed ({failures} in a row): {reason}"
        case StoreReopened(revision=revision):
            return f"the store was reopened at revision {revision:,}"
        case _:
            return None
