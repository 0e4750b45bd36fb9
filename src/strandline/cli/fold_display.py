"""What a running fold shows: where it stands, how fast it goes, how far behind it is, and what it had to mend.

Invariants: everything goes to standard error. A terminal gets one line that moves; elsewhere a plain line is printed
now and then, and at once for what somebody should know.
"""

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


class FoldDisplay(StatusLine):
    """Hears the events of a watched fold, and shows them; use it in a `with` statement."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._progress = FoldProgress()

    def status(self) -> FoldStatus:
        """Return what was heard so far."""
        return self._progress.status()

    def tell(self, event: Event) -> None:
        """Take an event in, and show what it changes."""
        self._progress(event)
        line = _described(event)
        if line is not None:
            self.say(line)
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
    """Return what somebody should know at once, None for anything else."""
    match event:
        case WatchBegan(bucket=bucket, revision=revision, anew=anew):
            return f"watching {bucket}" + (", its state first" if anew else f" after revision {revision:,}")
        case CaughtUp(revision=revision):
            return f"up to date at revision {revision:,}"
        case RepairBegan(reason=reason):
            return f"repair: {reason}"
        case RepairEnded(put=put, deleted=deleted):
            return f"repaired: {put:,} keys put, {deleted:,} deleted"
        case GapPassed(revision=revision):
            return f"going on after revision {revision:,}: what the bucket dropped there was overwritten"
        case StaleKeysPossible():
            return "warning: deletes may have been missed, and nothing was asked to find them (--repair none)"
        case EvictingSeen():
            return "note: this bucket can drop current values; a mirror follows it there, an archive keeps them"
        case EntriesLeft(removed=removed):
            return f"{removed:,} keys left the bucket, and the fold"
        case SourceAway(reason=reason, seconds=seconds):
            return f"the bucket has been away for {seconds:.0f} s: {reason}"
        case SourceBack(seconds=seconds):
            return f"the bucket is back after {seconds:.0f} s"
        case StoreFailed(failures=failures, reason=reason):
            return f"storing failed ({failures} in a row): {reason}"
        case StoreReopened(revision=revision):
            return f"the store was opened again at revision {revision:,}"
        case _:
            return None
